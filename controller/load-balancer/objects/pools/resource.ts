import { sql } from '../../../database/sql.js'
import { derived, fixedRequired, given, settable, settableRequired } from '../../schema/attributes.js'
import { defineResource } from '../../schema/resource.js'
import { idList, idOf } from '../../schema/select.js'
import { childStatus, timestamp } from '../../schema/status.js'
import { boolean, integer, netmask, oneOf, record, tags, text, uuid } from '../../schema/values.js'
import { alpnProtocols, certificateReference, tlsCiphers, tlsVersions } from '../listeners/tls-options.js'
import { usersOfPool } from './users.js'

export const POOL_PROTOCOLS = ['HTTP', 'HTTPS', 'PROXY', 'PROXYV2', 'TCP', 'UDP', 'SCTP'] as const

/** A token of RFC 6265. */
const cookieName = text(255, {
  minimum: 1,
  pattern: /^[A-Za-z0-9!#$%&'*+\-.^_`|~]+$/,
  reason: 'Value should be a cookie name',
})

const sessionPersistence = record({
  type: oneOf(['SOURCE_IP', 'HTTP_COOKIE', 'APP_COOKIE']),
  cookie_name: cookieName,
  persistence_timeout: integer(0),
  persistence_granularity: netmask,
})

const monitorId = `(SELECT h.id FROM health_monitor h WHERE h.pool_id = o.id ORDER BY h.change = 'delete', h.created_at DESC LIMIT 1)`

export const pool = defineResource({
  label: 'Pool',
  singular: 'pool',
  plural: 'pools',
  table: 'pool',
  source: 'pool o JOIN load_balancer lb ON lb.id = o.load_balancer_id',
  filters: {
    loadbalancer_id: { kind: 'uuid', sql: 'o.load_balancer_id' },
    load_balancer_id: { kind: 'uuid', sql: 'o.load_balancer_id' },
    healthmonitor_id: {
      kind: 'uuid',
      sql: monitorId,
      narrow: id => sql`o.id = (SELECT h.pool_id FROM health_monitor h WHERE h.id = ${id})`,
    },
  },
  attributes: {
    id: derived('uuid', 'o.id'),
    name: settable(text(255), ''),
    description: settable(text(255), ''),
    provisioning_status: derived('text', childStatus('o')),
    operating_status: derived('text', 'o.operating_status'),
    admin_state_up: settable(boolean, true, { null: { value: false } }),
    protocol: fixedRequired(oneOf(POOL_PROTOCOLS)),
    lb_algorithm: settableRequired(oneOf(['ROUND_ROBIN', 'LEAST_CONNECTIONS', 'SOURCE_IP', 'SOURCE_IP_PORT'])),
    session_persistence: settable(sessionPersistence, null),
    deregistration_delay: settable(integer(0, 3600), 30),
    project_id: given(text(36), null, { sql: 'o.project_id' }),
    tenant_id: given(text(36), null, { sql: 'o.project_id', filterable: false }),
    loadbalancer_id: given(uuid, null),
    listener_id: given(uuid, null),
    loadbalancers: derived('json', idOf('o.load_balancer_id')),
    listeners: derived('json', idList('listener', 'l', `l.id IN (${usersOfPool(sql`o.id`).text})`)),
    created_at: derived('time', timestamp('o.created_at')),
    updated_at: derived('time', timestamp('o.updated_at')),
    healthmonitor_id: derived('uuid', monitorId, { omittedWhenNull: true }),
    members: derived('json', idList('member', 'm', 'm.pool_id = o.id')),
    tags: settable(tags, [], { null: 'keep' }),
    tls_container_ref: settable(certificateReference, null),
    ca_tls_container_ref: settable(certificateReference, null),
    crl_container_ref: settable(certificateReference, null),
    tls_enabled: settable(boolean, false),
    tls_ciphers: settable(tlsCiphers, null),
    tls_versions: settable(tlsVersions, null),
    alpn_protocols: settable(alpnProtocols, null),
  },
})
