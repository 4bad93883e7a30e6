import { derived, fixedRequired, given, givenRequired, settable } from '../../schema/attributes.js'
import { defineResource } from '../../schema/resource.js'
import { idList, idOf } from '../../schema/select.js'
import { childStatus, timestamp } from '../../schema/status.js'
import { boolean, cidr, integer, listOf, mapOf, oneOf, setOf, tags, text, uuid } from '../../schema/values.js'
import { alpnProtocols, certificateReference, tlsCiphers, tlsVersions } from './tls-options.js'

export const LISTENER_PROTOCOLS = ['HTTP', 'HTTPS', 'TCP', 'TERMINATED_HTTPS', 'UDP', 'SCTP', 'PROMETHEUS'] as const

const milliseconds = integer(0, 2_073_600_000)

export const listener = defineResource({
  label: 'Listener',
  singular: 'listener',
  plural: 'listeners',
  table: 'listener',
  source: 'listener o JOIN load_balancer lb ON lb.id = o.load_balancer_id',
  filters: {
    loadbalancer_id: { kind: 'uuid', sql: 'o.load_balancer_id' },
    load_balancer_id: { kind: 'uuid', sql: 'o.load_balancer_id' },
  },
  attributes: {
    id: derived('uuid', 'o.id'),
    name: settable(text(255), ''),
    description: settable(text(255), ''),
    provisioning_status: derived('text', childStatus('o')),
    operating_status: derived('text', 'o.operating_status'),
    admin_state_up: settable(boolean, true, { null: { value: false } }),
    protocol: fixedRequired(oneOf(LISTENER_PROTOCOLS)),
    protocol_port: fixedRequired(integer(1, 65535)),
    connection_limit: settable(integer(-1), -1),
    default_tls_container_ref: settable(certificateReference, null),
    sni_container_refs: settable(listOf(certificateReference), []),
    project_id: given(text(36), null, { sql: 'o.project_id' }),
    tenant_id: given(text(36), null, { sql: 'o.project_id', filterable: false }),
    loadbalancer_id: givenRequired(uuid),
    default_pool_id: settable(uuid, null),
    l7policies: derived('json', idList('l7_policy', 'p', 'p.listener_id = o.id', `p.position, p.change = 'delete'`)),
    insert_headers: settable(mapOf(text(255)), {}),
    created_at: derived('time', timestamp('o.created_at')),
    updated_at: derived('time', timestamp('o.updated_at')),
    loadbalancers: derived('json', idOf('o.load_balancer_id')),
    timeout_client_data: settable(milliseconds, 50_000),
    timeout_member_connect: settable(milliseconds, 5_000),
    timeout_member_data: settable(milliseconds, 50_000),
    timeout_tcp_inspect: settable(milliseconds, 0),
    tags: settable(tags, [], { null: 'keep' }),
    client_ca_tls_container_ref: settable(certificateReference, null),
    client_authentication: settable(oneOf(['NONE', 'OPTIONAL', 'MANDATORY']), 'NONE'),
    client_crl_container_ref: settable(certificateReference, null),
    allowed_cidrs: settable(setOf(cidr), null),
    tls_ciphers: settable(tlsCiphers, null),
    tls_versions: settable(tlsVersions, null),
    alpn_protocols: settable(alpnProtocols, null),
    hsts_max_age: settable(integer(0), null),
    hsts_include_subdomains: settable(boolean, false),
    hsts_preload: settable(boolean, false),
  },
})
