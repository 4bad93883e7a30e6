import { sql } from '../../../database/sql.js'
import { derived, fixedRequired, given, rendered, settable, settableRequired } from '../../schema/attributes.js'
import { defineResource } from '../../schema/resource.js'
import { idList, idOf } from '../../schema/select.js'
import { boolean, described, integer, netmask, oneOf, record, text, uuid } from '../../schema/values.js'
import { alpnProtocols, certificateReference, tlsCiphers, tlsVersions } from '../listeners/tls-options.js'
import { shared } from '../shared-attributes.js'
import { listenersUsingPool } from './users.js'

export const POOL_PROTOCOLS = ['HTTP', 'HTTPS', 'PROXY', 'PROXYV2', 'TCP', 'UDP', 'SCTP'] as const

/** A token of RFC 6265. */
const cookieName = text(255, {
  minimum: 1,
  pattern: /^[A-Za-z0-9!#$%&'*+\-.^_`|~]+$/,
  reason: 'Value should be a cookie name',
})

const PERSISTENCES = ['SOURCE_IP', 'HTTP_COOKIE', 'APP_COOKIE'] as const

const sessionPersistence = record({
  type: described(oneOf(PERSISTENCES), 'What tells clients apart.'),
  cookie_name: described(cookieName, 'Name of the cookie.'),
  persistence_timeout: described(integer(0), 'Seconds for which a client is remembered (UDP and SCTP).'),
  persistence_granularity: described(netmask, 'Netmask that makes clients of one network one (UDP and SCTP).'),
})

/** The rules see to it that what is stored has a type. The first versions stored a record without one; it means none. */
const persistenceInTree = sessionPersistence.form.nullable().transform(stored =>
  stored === null || stored.type === null
    ? null
    : {
        type: stored.type,
        cookieName: stored.cookie_name,
        persistenceTimeout: stored.persistence_timeout,
        /** A netmask. */
        persistenceGranularity: stored.persistence_granularity,
      },
)

const monitorId = `(SELECT h.id FROM health_monitor h WHERE h.pool_id = o.id ORDER BY h.change = 'delete', h.created_at DESC LIMIT 1)`

export const pool = defineResource({
  label: 'Pool',
  singular: 'pool',
  plural: 'pools',
  table: 'pool',
  source: 'pool o JOIN load_balancer lb ON lb.id = o.load_balancer_id',
  filters: {
    loadbalancer_id: { kind: 'uuid', sql: 'o.load_balancer_id' },
    load_balancer_id: { kind: 'uuid', sql: 'o.load_balancer_id', about: 'The same as loadbalancer_id.' },
    healthmonitor_id: {
      kind: 'uuid',
      sql: monitorId,
      narrow: id => sql`o.id = (SELECT h.pool_id FROM health_monitor h WHERE h.id = ${id})`,
    },
  },
  attributes: {
    id: shared.id,
    name: shared.name,
    description: shared.description,
    provisioning_status: shared.provisioningStatus,
    operating_status: shared.operatingStatus,
    admin_state_up: shared.adminStateUp,
    protocol: rendered(fixedRequired(oneOf(POOL_PROTOCOLS), 'Protocol of the traffic.')),
    lb_algorithm: rendered(
      settableRequired(
        oneOf(['ROUND_ROBIN', 'LEAST_CONNECTIONS', 'SOURCE_IP', 'SOURCE_IP_PORT']),
        'How a member is chosen.',
      ),
    ),
    session_persistence: rendered(
      settable(sessionPersistence, null, 'How clients stay with a member; null: they do not.'),
      persistenceInTree,
    ),
    deregistration_delay: rendered(
      settable(
        integer(0, 3600),
        30,
        'Seconds in which a member that was removed or disabled, or whose pool serves a listener no longer, may finish what is under way; what is left then is closed.',
      ),
    ),
    project_id: shared.projectId,
    tenant_id: shared.tenantId,
    loadbalancer_id: given(uuid, null, 'Load balancer that it belongs to.'),
    listener_id: given(uuid, null, 'Listener whose default pool it becomes.'),
    loadbalancers: derived('json', idOf('o.load_balancer_id'), 'The load balancer that it belongs to.'),
    listeners: derived(
      'json',
      idList('listener', 'l', `l.id IN (${listenersUsingPool(sql`o.id`).text})`),
      'Listeners that use it, as their default pool or by an L7 policy.',
    ),
    created_at: shared.createdAt,
    updated_at: shared.updatedAt,
    healthmonitor_id: derived('uuid', monitorId, 'Health monitor of the pool; left out when there is none.', {
      omittedWhenNull: true,
    }),
    members: derived('json', idList('member', 'm', 'm.pool_id = o.id'), 'Members of the pool.'),
    tags: shared.tags,
    tls_container_ref: settable(
      certificateReference,
      null,
      'Key manager reference of the certificate that is shown to members.',
    ),
    ca_tls_container_ref: settable(
      certificateReference,
      null,
      'Key manager reference of the authorities that sign members’ certificates.',
    ),
    crl_container_ref: settable(
      certificateReference,
      null,
      'Key manager reference of the list of revoked members’ certificates.',
    ),
    tls_enabled: settable(boolean, false, 'Whether members are spoken to over TLS.'),
    tls_ciphers: settable(tlsCiphers, null, 'OpenSSL cipher string.'),
    tls_versions: settable(tlsVersions, null, 'TLS versions that are spoken.'),
    alpn_protocols: settable(alpnProtocols, null, 'Application protocols that are offered in the TLS handshake.'),
  },
})
