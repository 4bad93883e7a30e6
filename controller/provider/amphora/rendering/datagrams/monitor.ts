import type { DatagramMonitor } from '../../../../../amphora-agent/protocol/datagrams.js'
import { readExchange } from '../../../../load-balancer/objects/health-monitors/exchange.js'
import type { HealthMonitorNode, LoadBalancerTree } from '../../../../load-balancer/tree/tree.js'
import { ProvisioningFault } from '../../../provider.js'
import { bracketedAddress, httpMethod, requestTarget, statusCodes, textOf } from '../quote.js'

/**
 * How the agent probes the members of a UDP or SCTP pool.
 * @throws ProvisioningFault for a type that such pools do not have, or a value that no probe can send
 */
export function renderMonitor(tree: LoadBalancerTree, monitor: HealthMonitorNode): DatagramMonitor {
  return {
    type: typeOf(monitor),
    delay: Math.max(1, monitor.delay),
    timeout: Math.max(1, monitor.timeout),
    rise: monitor.maxRetries,
    fall: monitor.maxRetriesDown,
    http: monitor.type === 'HTTP' ? httpProbe(tree, monitor) : null,
    exchange: monitor.type === 'UDP-CONNECT' ? exchangeOf(monitor) : null,
  }
}

function typeOf({ id, type }: HealthMonitorNode): DatagramMonitor['type'] {
  if (type !== 'HTTPS' && type !== 'TLS-HELLO') return type
  throw new ProvisioningFault('configuration-refused', `Health monitor ${id}, type cannot be ${type} for UDP or SCTP.`)
}

function httpProbe(tree: LoadBalancerTree, monitor: HealthMonitorNode): DatagramMonitor['http'] {
  const what = `Health monitor ${monitor.id}`
  const path = monitor.urlPath ?? '/'
  requestTarget(path, `${what}, url_path`)
  const isVersion11 = monitor.httpVersion === 1.1
  const vip = isVersion11 ? textOf(bracketedAddress(tree.vip.address, 'The VIP address')) : null
  return {
    method: textOf(httpMethod(monitor.httpMethod ?? 'GET', `${what}, http_method`)),
    path,
    version: isVersion11 ? '1.1' : '1.0',
    host: monitor.domainName ?? vip,
    codes: textOf(statusCodes(monitor.expectedCodes ?? '200', `${what}, expected_codes`)),
  }
}

function exchangeOf({ id, urlPath }: HealthMonitorNode): DatagramMonitor['exchange'] {
  if (urlPath === null) return null
  const exchange = readExchange(urlPath)
  if ('problem' in exchange) {
    throw new ProvisioningFault('configuration-refused', `Health monitor ${id}, url_path ${exchange.problem}.`)
  }
  return { payload: exchange.payload.toString('hex'), answer: exchange.answer.toString('hex') }
}
