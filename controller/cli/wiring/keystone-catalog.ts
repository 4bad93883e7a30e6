import type { Configuration } from '../../config/schema.js'
import type { CatalogEntry } from '../../identity/external/inspect-keystone.js'
import { serviceUrls } from './service-urls.js'

const INTERFACES = ['public', 'internal', 'admin'] as const

/**
 * What an operator must do so that clients find Krater's services in an external Keystone's catalogue, which Krater
 * never changes.
 * @returns `openstack` commands, and hints about endpoints elsewhere; none when the catalogue is complete
 */
export function catalogAdvice(config: Configuration, catalog: readonly CatalogEntry[]): string[] {
  const urls = serviceUrls(config)
  const services = [
    { type: 'load-balancer', name: 'octavia', setting: 'load_balancer', url: urls.loadBalancer },
    { type: 'key-manager', name: 'barbican', setting: 'key_manager', url: urls.keyManager },
    { type: 'network', name: 'neutron', setting: 'network', url: urls.network },
  ]
  return services.flatMap(({ type, name, setting, url }) => {
    const entries = catalog.filter(entry => entry.type === type)
    const present = entries
      .flatMap(({ endpoints }) => endpoints)
      .filter(endpoint => endpoint.interface === 'public' && endpoint.region_id === config.region)
    if (present.some(endpoint => sameUrl(endpoint.url, url))) return []
    const [other] = present
    if (other !== undefined) {
      return [
        `The catalogue points ${type} clients to ${other.url}, but Krater serves it at ${url}. Change the endpoint, or set ${setting}.public_url.`,
      ]
    }
    return [
      ...(entries.length === 0 ? [`openstack service create --name ${name} ${type}`] : []),
      ...INTERFACES.map(name => `openstack endpoint create --region ${config.region} ${type} ${name} ${url}`),
    ]
  })
}

const sameUrl = (one: string, other: string): boolean => one.replace(/\/+$/, '') === other.replace(/\/+$/, '')
