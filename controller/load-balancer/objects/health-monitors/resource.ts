import { derived, fixedRequired, given, givenRequired, settable, settableRequired } from '../../schema/attributes.js'
import { defineResource } from '../../schema/resource.js'
import { idOf } from '../../schema/select.js'
import { childStatus, switchOperatingStatus, timestamp } from '../../schema/status.js'
import { boolean, integer, oneNumberOf, oneOf, tags, text, uuid } from '../../schema/values.js'

export const MONITOR_TYPES = ['HTTP', 'HTTPS', 'PING', 'TCP', 'TLS-HELLO', 'UDP-CONNECT', 'SCTP'] as const

/** Found nowhere, so that `"pool_id": null` is a pool that does not exist rather than a malformed body. */
const NO_POOL = '00000000-0000-0000-0000-000000000000'

/** What RFC 3986 allows in a path and query, and nothing that a configuration could take for something else. */
const urlPath = text(2048, {
  pattern: /^\/[A-Za-z0-9\-._~:/?#[\]@!$&'()*+,;=%]*$/,
  reason: 'Value must be a valid URL Path string',
})

const STATUS_CODES = /^[1-5]\d\d([ \t]*,[ \t]*[1-5]\d\d)*$/
const STATUS_RANGE = /^([1-5]\d\d)-([1-5]\d\d)$/

function areStatusCodes(codes: string): boolean {
  const [, first, last] = STATUS_RANGE.exec(codes) ?? []
  return STATUS_CODES.test(codes) || (first !== undefined && last !== undefined && first <= last)
}

const expectedCodes = text(64, {
  pattern: { test: areStatusCodes },
  reason: 'Value should be a status code from 100 to 599, a list of them, or a range',
})

const domainName = text(255, {
  minimum: 1,
  pattern:
    /^(?=.{1,255}$)[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?)*\.?$/,
  reason: 'Value should be a domain name',
})

export const healthMonitor = defineResource({
  label: 'Health Monitor',
  singular: 'healthmonitor',
  plural: 'healthmonitors',
  table: 'health_monitor',
  parent: 'pool_id',
  source: 'health_monitor o JOIN load_balancer lb ON lb.id = o.load_balancer_id',
  filters: { pool_id: { kind: 'uuid', sql: 'o.pool_id' } },
  attributes: {
    id: derived('uuid', 'o.id'),
    name: settable(text(255), ''),
    type: fixedRequired(oneOf(MONITOR_TYPES)),
    delay: settableRequired(integer(0)),
    timeout: settableRequired(integer(0)),
    max_retries: settableRequired(integer(1, 10)),
    // Unset, it follows max_retries.
    max_retries_down: settable(integer(1, 10), null),
    http_method: settable(
      oneOf(['GET', 'HEAD', 'POST', 'PUT', 'DELETE', 'TRACE', 'OPTIONS', 'CONNECT', 'PATCH']),
      null,
    ),
    url_path: settable(urlPath, null),
    expected_codes: settable(expectedCodes, null),
    admin_state_up: settable(boolean, true, { null: { value: false } }),
    project_id: given(text(36), null, { sql: 'o.project_id' }),
    tenant_id: given(text(36), null, { sql: 'o.project_id', filterable: false }),
    pool_id: givenRequired(uuid, { null: { value: NO_POOL } }),
    pools: derived('json', idOf('o.pool_id')),
    provisioning_status: derived('text', childStatus('o')),
    operating_status: derived('text', switchOperatingStatus('o')),
    created_at: derived('time', timestamp('o.created_at')),
    updated_at: derived('time', timestamp('o.updated_at')),
    tags: settable(tags, [], { null: 'keep' }),
    http_version: settable(oneNumberOf([1.0, 1.1]), null),
    domain_name: settable(domainName, null),
  },
})
