import { badRequest } from '../../../http/errors.js'
import type { LoadBalancerSettings } from '../../options.js'
import type { Created, Updated } from '../../schema/attributes.js'
import { disabledOption, invalid } from '../../schema/faults.js'
import { isDatagram } from '../protocols.js'
import { readExchange } from './exchange.js'
import type { healthMonitor } from './resource.js'

type Given = Updated<typeof healthMonitor.attributes>
type MonitorValues = Omit<Created<typeof healthMonitor.attributes>, 'pool_id' | 'project_id' | 'tenant_id'>
/** Stored values that an update is checked against. */
export type StoredMonitor = Pick<
  MonitorValues,
  'type' | 'max_retries' | 'http_version' | 'domain_name' | 'admin_state_up'
>

const HTTP_DEFAULTS = { http_method: 'GET', url_path: '/', expected_codes: '200' } as const
const HTTP_FIELDS = ['http_method', 'url_path', 'expected_codes'] as const

export type MonitorSettings = Pick<LoadBalancerSettings, 'allow_ping_health_monitors' | 'udp_connect_min_delay'>

/** @throws ApiError 400 when pools of this protocol do not support the type */
export function checkMonitorType(type: string, poolProtocol: string): void {
  const allowed = isDatagram(poolProtocol)
    ? ['HTTP', 'PING', 'TCP', 'UDP-CONNECT', 'SCTP']
    : ['HTTP', 'HTTPS', 'PING', 'TCP', 'TLS-HELLO']
  if (!allowed.includes(type)) {
    throw invalid(`The ${type} health monitor type cannot be used with a pool of protocol ${poolProtocol}.`)
  }
}

const isHttp = (type: string) => type === 'HTTP' || type === 'HTTPS'

function checkMonitor({ udp_connect_min_delay: least }: MonitorSettings, type: string, values: Given): void {
  const supported: readonly string[] = isHttp(type) ? HTTP_FIELDS : type === 'UDP-CONNECT' ? ['url_path'] : []
  const misplaced = HTTP_FIELDS.filter(field => typeof values[field] === 'string' && !supported.includes(field))
  if (misplaced.length > 0) {
    throw invalid(
      `A ${type} health monitor does not support ${misplaced.join(', ')}: these are for HTTP and HTTPS only.`,
    )
  }
  if (type === 'UDP-CONNECT' && typeof values.url_path === 'string') {
    const exchange = readExchange(values.url_path)
    if ('problem' in exchange) throw invalid(`The url_path of a UDP-CONNECT health monitor ${exchange.problem}.`)
  }
  if (type === 'UDP-CONNECT' && values.delay !== undefined && values.delay < least) {
    throw badRequest(`The delay of a UDP-CONNECT health monitor must be at least ${least} seconds.`)
  }
}

function checkDomainName(domainName: string | null, httpVersion: number | null): void {
  if (domainName === null) return
  if (httpVersion === null) throw invalid(`'http_version' must be specified when 'domain_name' is provided.`)
  if (httpVersion < 1.1) throw invalid(`'http_version' must be 1.1 or higher when 'domain_name' is provided.`)
}

/**
 * Checks a create body, and fills in defaults that depend on other values.
 * @throws ApiError 400
 */
export function completeMonitor<T extends MonitorValues>(
  settings: MonitorSettings,
  values: T,
): T & { max_retries_down: number } {
  if (values.type === 'PING' && !settings.allow_ping_health_monitors) throw disabledOption('type', values.type)
  checkMonitor(settings, values.type, values)
  checkDomainName(values.domain_name, values.http_version)
  const http = isHttp(values.type)
  return {
    ...values,
    max_retries_down: values.max_retries_down ?? values.max_retries,
    http_method: http ? (values.http_method ?? HTTP_DEFAULTS.http_method) : null,
    url_path: values.url_path ?? (http ? HTTP_DEFAULTS.url_path : null),
    expected_codes: http ? (values.expected_codes ?? HTTP_DEFAULTS.expected_codes) : null,
  }
}

/**
 * Checks an update body against the stored values, and replaces nulls by defaults that depend on other values.
 * @throws ApiError 400
 */
export function completeMonitorUpdate(settings: MonitorSettings, stored: StoredMonitor, values: Given): Given {
  checkMonitor(settings, stored.type, values)
  const pick = <T>(given: T | undefined, otherwise: T): T => (given === undefined ? otherwise : given)
  checkDomainName(pick(values.domain_name, stored.domain_name), pick(values.http_version, stored.http_version))
  const complete = { ...values }
  if (values.max_retries_down === null) complete.max_retries_down = values.max_retries ?? stored.max_retries
  if (isHttp(stored.type)) {
    if (values.http_method === null) complete.http_method = HTTP_DEFAULTS.http_method
    if (values.url_path === null) complete.url_path = HTTP_DEFAULTS.url_path
    if (values.expected_codes === null) complete.expected_codes = HTTP_DEFAULTS.expected_codes
  }
  return complete
}
