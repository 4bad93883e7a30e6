import type { HealthMonitorNode, LoadBalancerTree } from '../../../../load-balancer/tree/tree.js'
import {
  bracketedAddress,
  type ConfigurationWord,
  headerValue,
  httpMethod,
  keywords,
  requestTarget,
  statusCodes,
} from '../quote.js'

/** The request of an HTTP check, and the status codes that pass. */
export type HttpCheckModel = {
  method: ConfigurationWord
  uri: ConfigurationWord
  version: ConfigurationWord
  host: ConfigurationWord | null
  codes: ConfigurationWord
}

/** @throws ProvisioningFault for a value that cannot be written */
export function httpCheckModel(tree: LoadBalancerTree, monitor: HealthMonitorNode): HttpCheckModel {
  const what = `Health monitor ${monitor.id}`
  return {
    method: httpMethod(monitor.httpMethod ?? 'GET', `${what}, http_method`),
    uri: requestTarget(monitor.urlPath ?? '/', `${what}, url_path`),
    version: keywords(monitor.httpVersion === 1.1 ? 'HTTP/1.1' : 'HTTP/1.0'),
    host: hostHeader(tree, monitor),
    codes: statusCodes(monitor.expectedCodes ?? '200', `${what}, expected_codes`),
  }
}

/** HAProxy adds no Host header to checks, and servers answer HTTP/1.1 without one with 400. The default is the VIP. */
function hostHeader(tree: LoadBalancerTree, monitor: HealthMonitorNode): ConfigurationWord | null {
  if (monitor.domainName !== null) return headerValue(monitor.domainName, `Health monitor ${monitor.id}, domain_name`)
  return monitor.httpVersion === 1.1 ? bracketedAddress(tree.vip.address, 'The VIP address') : null
}
