import type { Configuration } from '../../config/schema.js'
import { servesTls } from '../../http/options.js'
import { keystoneUrl } from '../../identity/external/external-identity.js'

/** Public URLs of the services, as in the catalogue. The identity URL ends in /v3; the others have no path. */
export type ServiceUrls = { identity: string; network: string; loadBalancer: string; keyManager: string }

export function serviceUrls(config: Configuration): ServiceUrls {
  const urlOf = (address: Address) => listeningUrl(config, address)
  return {
    identity: config.identity.public_url ?? keystoneUrl(config.identity) ?? `${urlOf(config.identity)}/v3`,
    network: config.network.public_url ?? urlOf(config.network),
    loadBalancer: config.load_balancer.public_url ?? urlOf(config.load_balancer),
    keyManager: config.key_manager.public_url ?? urlOf(config.key_manager),
  }
}

/** The URL of a load balancer. @param base of the load balancing API */
export const loadBalancerUrl = (base: string, id: string): string =>
  `${base.replace(/\/+$/, '')}/v2/lbaas/loadbalancers/${id}`

type Address = { host: string; port: number }

/** The URL of an API of these settings at its listening address, with loopback in place of a wildcard address. */
export function listeningUrl({ api }: Configuration, { host, port }: Address): string {
  const scheme = servesTls(api) ? 'https' : 'http'
  const reachable = host === '0.0.0.0' ? '127.0.0.1' : host === '::' ? '::1' : host
  return `${scheme}://${reachable.includes(':') ? `[${reachable}]` : reachable}:${port}`
}
