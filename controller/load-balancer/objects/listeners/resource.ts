import { derived, fixedRequired, givenRequired, rendered, settable } from '../../schema/attributes.js'
import { defineResource } from '../../schema/resource.js'
import { idList, idReference } from '../../schema/select.js'
import { boolean, cidr, integer, listOf, mapOf, oneOf, setOf, text, uuid } from '../../schema/values.js'
import { shared } from '../shared-attributes.js'
import { alpnProtocols, certificateReference, tlsCiphers, tlsVersions } from './tls-options.js'

export const LISTENER_PROTOCOLS = ['HTTP', 'HTTPS', 'TCP', 'TERMINATED_HTTPS', 'UDP', 'SCTP', 'PROMETHEUS'] as const

const NO_HEADERS: Readonly<Record<string, string>> = {}

/** An update of the list fits into an ordinary body too. */
const MAX_CIDRS = 4000

const milliseconds = integer(0, 2_073_600_000)

export const listener = defineResource({
  label: 'Listener',
  singular: 'listener',
  plural: 'listeners',
  table: 'listener',
  source: 'listener o JOIN load_balancer lb ON lb.id = o.load_balancer_id',
  filters: {
    loadbalancer_id: { kind: 'uuid', sql: 'o.load_balancer_id' },
    load_balancer_id: { kind: 'uuid', sql: 'o.load_balancer_id', about: 'Alias of loadbalancer_id.' },
  },
  attributes: {
    id: shared.id,
    name: shared.name,
    description: shared.description,
    provisioning_status: shared.provisioningStatus,
    operating_status: shared.operatingStatus,
    operating_reason: shared.operatingReason('listener'),
    admin_state_up: shared.adminStateUp,
    protocol: rendered(fixedRequired(oneOf(LISTENER_PROTOCOLS), 'Protocol of the listener.')),
    protocol_port: rendered(fixedRequired(integer(1, 65535), 'Port that the listener listens on.')),
    connection_limit: rendered(
      settable(
        integer(-1),
        -1,
        'Maximum concurrent connections, or flows for UDP and SCTP; 0 admits none, -1 takes an equal share of what other limits leave.',
      ),
    ),
    default_tls_container_ref: rendered(
      settable(
        certificateReference,
        null,
        'Key manager reference of certificate and key: a certificate container, or a secret that holds a PKCS#12 bundle without passphrase.',
      ),
    ),
    sni_container_refs: rendered(
      settable(listOf(certificateReference), [], 'Key manager references of certificates to select by SNI.'),
    ),
    project_id: shared.projectId,
    tenant_id: shared.tenantId,
    loadbalancer_id: givenRequired(uuid, 'Load balancer of the listener.'),
    default_pool_id: rendered(settable(uuid, null, 'Pool for requests that no L7 policy handles.')),
    l7policies: derived(
      'json',
      idList('l7_policy', 'p', 'p.listener_id = o.id', `p.position, p.change = 'delete'`),
      'L7 policies of the listener, by position.',
    ),
    insert_headers: rendered(
      settable(
        mapOf(text(255)),
        NO_HEADERS,
        'Headers to insert into requests to members: header name and "true" or "false".',
      ),
    ),
    created_at: shared.createdAt,
    updated_at: shared.updatedAt,
    loadbalancers: derived('json', idReference('o.load_balancer_id'), 'Load balancer of the listener, as a list.'),
    timeout_client_data: rendered(
      settable(
        milliseconds,
        50_000,
        'Client inactivity timeout in milliseconds. For UDP and SCTP, how long a flow without packets keeps its member.',
      ),
    ),
    timeout_member_connect: rendered(
      settable(milliseconds, 5_000, 'Timeout for connecting to a member, in milliseconds. UDP and SCTP ignore it.'),
    ),
    timeout_member_data: rendered(
      settable(milliseconds, 50_000, 'Member inactivity timeout in milliseconds. UDP and SCTP ignore it.'),
    ),
    timeout_tcp_inspect: rendered(
      settable(
        milliseconds,
        0,
        'Milliseconds to wait for content to inspect on a TCP or HTTPS listener. HTTP listeners ignore it: they wait for a whole request, up to 10 s.',
      ),
    ),
    tags: shared.tags,
    client_ca_tls_container_ref: rendered(
      settable(certificateReference, null, 'Key manager reference of the CA certificates for client authentication.'),
    ),
    client_authentication: rendered(
      settable(oneOf(['NONE', 'OPTIONAL', 'MANDATORY']), 'NONE', 'Whether clients must present a certificate.'),
    ),
    client_crl_container_ref: rendered(
      settable(certificateReference, null, 'Key manager reference of the revocation list for client certificates.'),
    ),
    allowed_cidrs: rendered(
      settable(setOf(cidr, MAX_CIDRS), null, 'Networks that clients may connect from; all if empty.'),
    ),
    tls_ciphers: rendered(settable(tlsCiphers, null, 'OpenSSL cipher string.')),
    tls_versions: rendered(settable(tlsVersions, null, 'Enabled TLS versions.')),
    alpn_protocols: rendered(settable(alpnProtocols, null, 'ALPN protocols to offer in the TLS handshake.')),
    hsts_max_age: rendered(
      settable(integer(0), null, 'max-age of the Strict-Transport-Security header, in seconds; null sends no header.'),
    ),
    hsts_include_subdomains: rendered(settable(boolean, false, 'Whether the header contains includeSubDomains.')),
    hsts_preload: rendered(settable(boolean, false, 'Whether the header contains preload.')),
  },
})
