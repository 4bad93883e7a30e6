import { z } from 'zod'
import {
  completed,
  derived,
  fixedRequired,
  givenRequired,
  rendered,
  settable,
  settableRequired,
} from '../../schema/attributes.js'
import { defineResource } from '../../schema/resource.js'
import { idOf } from '../../schema/select.js'
import { integer, oneNumberOf, oneOf, text, uuid } from '../../schema/values.js'
import { shared } from '../shared-attributes.js'

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
  filters: { pool_id: { kind: 'uuid', sql: 'o.pool_id', about: 'Pool that it belongs to.' } },
  attributes: {
    id: shared.id,
    name: shared.name,
    type: rendered(fixedRequired(oneOf(MONITOR_TYPES), 'How members are probed.')),
    delay: rendered(settableRequired(integer(0), 'Seconds between two probes of a member.')),
    timeout: rendered(settableRequired(integer(0), 'Seconds that a probe may take.')),
    max_retries: rendered(settableRequired(integer(1, 10), 'Successes in a row until a member is up.')),
    // Unset, it follows max_retries.
    max_retries_down: rendered(
      completed(
        settable(integer(1, 10), null, 'Failures in a row until a member is down; as max_retries when not given.'),
      ),
    ),
    http_method: rendered(
      settable(
        oneOf(['GET', 'HEAD', 'POST', 'PUT', 'DELETE', 'TRACE', 'OPTIONS', 'CONNECT', 'PATCH']),
        null,
        'HTTP method of the probe.',
      ),
      z.string().nullable(),
    ),
    url_path: rendered(settable(urlPath, null, 'Path and query of the probe.')),
    expected_codes: rendered(
      settable(expectedCodes, null, 'HTTP status codes of a good answer: one, a list or a range.'),
    ),
    admin_state_up: shared.adminStateUp,
    project_id: shared.projectId,
    tenant_id: shared.tenantId,
    pool_id: givenRequired(uuid, 'Pool that it belongs to.', { null: { value: NO_POOL } }),
    pools: derived('json', idOf('o.pool_id'), 'Pools.'),
    provisioning_status: shared.provisioningStatus,
    operating_status: shared.switchStatus,
    created_at: shared.createdAt,
    updated_at: shared.updatedAt,
    tags: shared.tags,
    http_version: rendered(settable(oneNumberOf([1.0, 1.1]), null, 'HTTP version of the probe.')),
    domain_name: rendered(settable(domainName, null, 'Host that the probe asks for.')),
  },
})
