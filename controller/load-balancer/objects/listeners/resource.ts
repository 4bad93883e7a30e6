import { derived, fixedRequired, givenRequired, rendered, settable } from '../../schema/attributes.js'
import { defineResource } from '../../schema/resource.js'
import { idList, idOf } from '../../schema/select.js'
import { boolean, cidr, integer, listOf, mapOf, oneOf, setOf, text, uuid } from '../../schema/values.js'
import { shared } from '../shared-attributes.js'
import { alpnProtocols, certificateReference, tlsCiphers, tlsVersions } from './tls-options.js'

export const LISTENER_PROTOCOLS = ['HTTP', 'HTTPS', 'TCP', 'TERMINATED_HTTPS', 'UDP', 'SCTP', 'PROMETHEUS'] as const

const NO_HEADERS: Readonly<Record<string, string>> = {}

const milliseconds = integer(0, 2_073_600_000)

export const listener = defineResource({
  label: 'Listener',
  singular: 'listener',
  plural: 'listeners',
  table: 'listener',
  source: 'listener o JOIN load_balancer lb ON lb.id = o.load_balancer_id',
  filters: {
    loadbalancer_id: { kind: 'uuid', sql: 'o.load_balancer_id' },
    load_balancer_id: { kind: 'uuid', sql: 'o.load_balancer_id', about: 'The same as loadbalancer_id.' },
  },
  attributes: {
    id: shared.id,
    name: shared.name,
    description: shared.description,
    provisioning_status: shared.provisioningStatus,
    operating_status: shared.operatingStatus,
    admin_state_up: shared.adminStateUp,
    protocol: rendered(fixedRequired(oneOf(LISTENER_PROTOCOLS), 'Protocol of the traffic.')),
    protocol_port: rendered(fixedRequired(integer(1, 65535), 'Port on which the listener answers.')),
    connection_limit: rendered(
      settable(
        integer(-1),
        -1,
        'Most connections at once; 0 admits nobody, -1 takes an equal part of what the machine gives beside the other listeners.',
      ),
    ),
    default_tls_container_ref: settable(
      certificateReference,
      null,
      'Key manager reference of certificate and key: a certificate container, or a secret with a PKCS#12 bundle without passphrase.',
    ),
    sni_container_refs: settable(
      listOf(certificateReference),
      [],
      'Key manager references of certificates that are chosen by the name that the client asks for.',
    ),
    project_id: shared.projectId,
    tenant_id: shared.tenantId,
    loadbalancer_id: givenRequired(uuid, 'Load balancer that it belongs to.'),
    default_pool_id: rendered(settable(uuid, null, 'Pool that gets what no L7 policy sends elsewhere.')),
    l7policies: derived(
      'json',
      idList('l7_policy', 'p', 'p.listener_id = o.id', `p.position, p.change = 'delete'`),
      'L7 policies of the listener, in order of position.',
    ),
    insert_headers: rendered(
      settable(mapOf(text(255)), NO_HEADERS, 'Headers that are set on requests to members: name and whether.'),
    ),
    created_at: shared.createdAt,
    updated_at: shared.updatedAt,
    loadbalancers: derived('json', idOf('o.load_balancer_id'), 'The load balancer that it belongs to.'),
    timeout_client_data: rendered(
      settable(milliseconds, 50_000, 'Milliseconds without data after which a client is hung up on.'),
    ),
    timeout_member_connect: rendered(settable(milliseconds, 5_000, 'Milliseconds to reach a member.')),
    timeout_member_data: rendered(
      settable(milliseconds, 50_000, 'Milliseconds without data after which a member is hung up on.'),
    ),
    timeout_tcp_inspect: rendered(settable(milliseconds, 0, 'Milliseconds to wait for content that a decision needs.')),
    tags: shared.tags,
    client_ca_tls_container_ref: settable(
      certificateReference,
      null,
      'Key manager reference of the authorities that sign clients’ certificates.',
    ),
    client_authentication: settable(
      oneOf(['NONE', 'OPTIONAL', 'MANDATORY']),
      'NONE',
      'Whether clients must show a certificate.',
    ),
    client_crl_container_ref: settable(
      certificateReference,
      null,
      'Key manager reference of the list of revoked clients’ certificates.',
    ),
    allowed_cidrs: rendered(settable(setOf(cidr), null, 'Networks that clients may come from; all when empty.')),
    tls_ciphers: settable(tlsCiphers, null, 'OpenSSL cipher string.'),
    tls_versions: settable(tlsVersions, null, 'TLS versions that are spoken.'),
    alpn_protocols: settable(alpnProtocols, null, 'Application protocols that are offered in the TLS handshake.'),
    hsts_max_age: settable(integer(0), null, 'Seconds for which browsers use only HTTPS; none sends no such header.'),
    hsts_include_subdomains: settable(boolean, false, 'Whether that holds for the domains below as well.'),
    hsts_preload: settable(boolean, false, 'Whether browsers may have it built in.'),
  },
})
