import * as z from 'zod'
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
import { idReference } from '../../schema/select.js'
import { integer, oneNumberOf, oneOf, text, uuid } from '../../schema/values.js'
import { shared } from '../shared-attributes.js'

export const MONITOR_TYPES = ['HTTP', 'HTTPS', 'PING', 'TCP', 'TLS-HELLO', 'UDP-CONNECT', 'SCTP'] as const

/** No pool has this id, so that `"pool_id": null` gives 404 for the pool rather than 400 for the body. */
const NO_POOL = '00000000-0000-0000-0000-000000000000'

/**
 * Characters that RFC 3986 allows in path and query, so that no space or control character reaches a
 * configuration.
 */
const urlPath = text(2048, {
  pattern: /^\/[A-Za-z0-9\-._~:/?#[\]@!$&'()*+,;=%]*$/,
  reason: 'Value must be a valid URL Path string, such as /health',
})

const STATUS_CODES = /^[1-5]\d\d([ \t]*,[ \t]*[1-5]\d\d)*$/
const STATUS_RANGE = /^([1-5]\d\d)-([1-5]\d\d)$/

function areStatusCodes(codes: string): boolean {
  const [, first, last] = STATUS_RANGE.exec(codes) ?? []
  return STATUS_CODES.test(codes) || (first !== undefined && last !== undefined && first <= last)
}

const expectedCodes = text(64, {
  pattern: { test: areStatusCodes },
  reason: 'Value should be a status code from 100 to 599, a list, or a range',
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
  filters: { pool_id: { kind: 'uuid', sql: 'o.pool_id', about: 'Pool of the health monitor.' } },
  attributes: {
    id: shared.id,
    name: shared.name,
    type: rendered(fixedRequired(oneOf(MONITOR_TYPES), 'Type of the probe.')),
    delay: rendered(settableRequired(integer(0), 'Seconds between probes of a member.')),
    timeout: rendered(settableRequired(integer(0), 'Timeout of a probe in seconds.')),
    max_retries: rendered(settableRequired(integer(1, 10), 'Consecutive successes until a member is up.')),
    max_retries_down: rendered(
      completed(
        settable(integer(1, 10), null, 'Consecutive failures until a member is down; defaults to max_retries.'),
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
    url_path: rendered(
      settable(
        urlPath,
        null,
        'Path and query of an HTTP or HTTPS probe. For UDP-CONNECT, /PAYLOAD?ANSWER: the bytes to send and those that the answer must begin with, percent-encoded; without ?ANSWER, any answer counts, and without url_path, none is needed.',
      ),
    ),
    expected_codes: rendered(
      settable(expectedCodes, null, 'HTTP status codes of a successful probe: one, a list or a range.'),
    ),
    admin_state_up: shared.adminStateUp,
    project_id: shared.projectId,
    tenant_id: shared.tenantId,
    pool_id: givenRequired(uuid, 'Pool of the health monitor.', { null: { value: NO_POOL } }),
    pools: derived('json', idReference('o.pool_id'), 'Pool of the health monitor, as a list.'),
    provisioning_status: shared.provisioningStatus,
    operating_status: shared.switchStatus,
    created_at: shared.createdAt,
    updated_at: shared.updatedAt,
    tags: shared.tags,
    http_version: rendered(settable(oneNumberOf([1.0, 1.1]), null, 'HTTP version of the probe.')),
    domain_name: rendered(settable(domainName, null, 'Host name in the Host header of the probe.')),
  },
})
