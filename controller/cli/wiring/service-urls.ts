import type { Configuration } from '../../config/schema.js'
import { keystoneUrl } from '../../identity/external/external-identity.js'

/** Public URLs of the services, as in the catalogue. The identity URL ends in /v3; the others have no path. */
export type ServiceUrls = { identity: string; network: string; loadBalancer: string; keyManager: string }

export function serviceUrls(config: Configuration): ServiceUrls {
  return {
    identity: config.identity.public_url ?? keystoneUrl(config.identity) ?? `${urlOf(config.identity)}/v3`,
    network: config.network.public_url ?? urlOf(config.network),
    loadBalancer: config.load_balancer.public_url ?? urlOf(config.load_balancer),
    keyManager: config.key_manager.public_url ?? urlOf(config.key_manager),
  }
}

/** `http://host:port` of a listening address, with loopback in place of a wildcard address. */
export function urlOf({ host, port }: { host: string; port: number }): string {
  const reachable = host === '0.0.0.0' ? '127.0.0.1' : host === '::' ? '::1' : host
  return `http://${reachable.includes(':') ? `[${reachable}]` : reachable}:${port}`
}
