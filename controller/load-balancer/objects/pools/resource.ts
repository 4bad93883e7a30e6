import { sql } from '../../../database/sql.js'
import { derived, fixedRequired, given, rendered, settable, settableRequired } from '../../schema/attributes.js'
import { defineResource } from '../../schema/resource.js'
import { idList, idReference } from '../../schema/select.js'
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
  type: described(oneOf(PERSISTENCES), 'How clients are identified.'),
  cookie_name: described(cookieName, 'Name of the cookie.'),
  persistence_timeout: described(
    integer(0),
    'Seconds without packets after which a client may get another member; 360 by default, 0 for no persistence (UDP and SCTP).',
  ),
  persistence_granularity: described(
    netmask,
    'Netmask of clients that share a member; a client of the other IP version has its own (UDP and SCTP).',
  ),
})

/** The rules ensure a type. Early versions stored records without one, which mean no persistence. */
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
    load_balancer_id: { kind: 'uuid', sql: 'o.load_balancer_id', about: 'Alias of loadbalancer_id.' },
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
    operating_reason: shared.operatingReason('pool'),
    admin_state_up: shared.adminStateUp,
    protocol: rendered(fixedRequired(oneOf(POOL_PROTOCOLS), 'Protocol of the pool.')),
    lb_algorithm: rendered(
      settableRequired(
        oneOf(['ROUND_ROBIN', 'LEAST_CONNECTIONS', 'SOURCE_IP', 'SOURCE_IP_PORT']),
        'Load balancing algorithm.',
      ),
    ),
    session_persistence: rendered(
      settable(
        sessionPersistence,
        null,
        'How clients stay with a member; null for no persistence. Cookies need an HTTP or PROXY pool and an HTTP listener.',
      ),
      persistenceInTree,
    ),
    deregistration_delay: rendered(
      settable(
        integer(0, 3600),
        30,
        'Seconds to drain connections of a member that was deleted or disabled, or whose pool no listener uses any more; the rest are then closed. Clients of UDP and SCTP move to another member at once.',
      ),
    ),
    project_id: shared.projectId,
    tenant_id: shared.tenantId,
    loadbalancer_id: given(uuid, null, 'Load balancer of the pool.'),
    listener_id: given(uuid, null, 'Listener that gets the pool as its default pool.'),
    loadbalancers: derived('json', idReference('o.load_balancer_id'), 'Load balancer of the pool, as a list.'),
    listeners: derived(
      'json',
      idList('listener', 'l', `l.id IN (${listenersUsingPool(sql`o.id`).text})`),
      'Listeners that use the pool, as default pool or through an L7 policy.',
    ),
    created_at: shared.createdAt,
    updated_at: shared.updatedAt,
    healthmonitor_id: derived('uuid', monitorId, 'Health monitor of the pool; omitted if there is none.', {
      omittedWhenNull: true,
    }),
    members: derived('json', idList('member', 'm', 'm.pool_id = o.id'), 'Members of the pool.'),
    tags: shared.tags,
    tls_container_ref: rendered(
      settable(certificateReference, null, 'Key manager reference of the client certificate to present to members.'),
    ),
    ca_tls_container_ref: rendered(
      settable(certificateReference, null, 'Key manager reference of the CA certificates for verifying members.'),
    ),
    crl_container_ref: rendered(
      settable(certificateReference, null, 'Key manager reference of the revocation list for member certificates.'),
    ),
    tls_enabled: rendered(settable(boolean, false, 'Whether connections to members use TLS.')),
    tls_ciphers: rendered(settable(tlsCiphers, null, 'OpenSSL cipher string.')),
    tls_versions: rendered(settable(tlsVersions, null, 'Enabled TLS versions.')),
    alpn_protocols: rendered(settable(alpnProtocols, null, 'ALPN protocols to offer in the TLS handshake.')),
  },
})
