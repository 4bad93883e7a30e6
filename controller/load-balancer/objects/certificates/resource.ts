import { derived } from '../../schema/attributes.js'
import { defineResource } from '../../schema/resource.js'
import { timestamp } from '../../schema/status.js'
import { PROJECT, shared } from '../shared-attributes.js'

const ofListener = (condition: string): string =>
  `(SELECT coalesce(json_agg(json_build_object('id', l.id) ORDER BY l.created_at, l.id), '[]'::json) FROM listener l
     WHERE l.load_balancer_id = o.load_balancer_id AND l.change <> 'delete' AND (${condition}))`

const usesListener = `l.default_tls_container_ref = o.ref OR l.client_ca_tls_container_ref = o.ref
   OR l.client_crl_container_ref = o.ref OR o.ref = ANY(l.sni_container_refs)`

/** SQL over the proofs of a certificate: of its digest, by listeners that use it. */
const ofProofs = (expression: string): string =>
  `(SELECT ${expression} FROM certificate_proof p WHERE p.load_balancer_id = o.load_balancer_id AND p.digest = o.digest)`

/** What listeners and pools refer to at the key manager: certificates, CAs and revocation lists. */
export const certificate = defineResource({
  label: 'Certificate',
  singular: 'certificate',
  plural: 'certificates',
  table: 'tls_material',
  source: 'tls_material o JOIN load_balancer lb ON lb.id = o.load_balancer_id',
  project: 'lb.project_id',
  tagged: false,
  filters: { project_id: { kind: 'text', sql: 'lb.project_id', about: PROJECT } },
  attributes: {
    id: shared.id,
    project_id: derived('text', 'lb.project_id', 'Project of the load balancer.'),
    loadbalancer_id: derived('uuid', 'o.load_balancer_id', 'Load balancer that uses it.'),
    ref: derived('text', 'o.ref', 'Reference to it at the key manager.'),
    kind: derived('text', 'o.kind', 'What it is: certificate, authority or revocation list.'),
    names: derived('json', `coalesce(o.facts->'names', '[]'::jsonb)`, 'Host names and addresses in the certificate.'),
    issuer: derived('text', `o.facts->>'issuer'`, 'Who issued the certificate.'),
    serial: derived('text', `o.facts->>'serial'`, 'Serial number of the certificate, in hexadecimal.'),
    not_before: derived('time', timestamp(`(o.facts->>'notBefore')::timestamptz`), 'When the certificate begins.'),
    not_after: derived('time', timestamp(`(o.facts->>'notAfter')::timestamptz`), 'When the certificate ends.'),
    digest: derived('text', 'o.digest', 'SHA-256 over the certificate and those above it that are served.'),
    problem: derived('text', 'o.problem', 'Why it cannot be read any more; what was read before stays in use.'),
    problem_since: derived('time', timestamp('o.problem_since'), 'Since when.'),
    listeners: derived('json', ofListener(usesListener), 'Listeners that use it.'),
    pools: derived(
      'json',
      `(SELECT coalesce(json_agg(json_build_object('id', p.id) ORDER BY p.created_at, p.id), '[]'::json) FROM pool p
         WHERE p.load_balancer_id = o.load_balancer_id AND p.change <> 'delete'
           AND (p.tls_container_ref = o.ref OR p.ca_tls_container_ref = o.ref OR p.crl_container_ref = o.ref))`,
      'Pools that use it.',
    ),
    served_since: derived(
      'time',
      timestamp(ofProofs('max(p.served_since)')),
      'Since when handshakes with every listener, name and amphora have shown this certificate; null before the first.',
    ),
    proven_at: derived('time', timestamp(ofProofs('min(p.proven_at)')), 'When the last of them showed it.'),
    mismatch: derived('text', ofProofs('min(p.problem)'), 'What a listener serves in its place; null if all is well.'),
  },
})
