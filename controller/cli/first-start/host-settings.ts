import { parseDocument } from 'yaml'
import { parseConfiguration } from '../../config/load.js'
import type { Configuration } from '../../config/schema.js'
import { withFiles } from '../state-directory/database-urls.js'
import { serviceUrls } from '../wiring/service-urls.js'

const SCHEMAS = ['identity', 'network', 'load_balancer', 'key_manager'] as const

/** The group of each service's settings, and its URL in the catalogue. */
const CATALOGUE = [
  ['identity', 'identity'],
  ['network', 'network'],
  ['load_balancer', 'loadBalancer'],
  ['key_manager', 'keyManager'],
] as const

/** Settings that may name an address of this host. */
const LISTENING = [
  ...SCHEMAS.map(group => [group, 'host']),
  ['health_manager', 'host'],
  ['key_manager', 'channel', 'host'],
]

const isLoopback = (url: string): boolean => /^\w+:\/\/(127\.|localhost|\[::1\])/.test(url)

/**
 * krater.yaml of another controller host: what it has in common with this one, with its own name and address. It gets no
 * administrator's URL of the database, since a service's role suffices. Pure.
 * @param text krater.yaml of this host; comments stay
 * @param config the settings in effect here
 */
export function settingsForHost(
  text: string,
  config: Configuration,
  { name, address }: { name: string; address: string },
): string {
  const document = parseDocument(text)
  document.deleteIn(['database', 'url'])
  for (const schema of SCHEMAS) {
    const url = config.database[schema]
    if (url !== undefined) document.setIn(['database', schema], url)
  }
  document.setIn(['host', 'name'], name)
  document.setIn(['host', 'address'], address)
  for (const path of LISTENING) {
    if (config.host.address !== undefined && document.getIn(path) === config.host.address) document.setIn(path, address)
  }
  // All hosts name the same endpoints, whatever addresses they listen on.
  const urls = serviceUrls(config)
  for (const [group, service] of CATALOGUE) {
    const isKnown = group === 'identity' && config.identity.external_url !== undefined
    if (isLoopback(urls[service]) || isKnown) continue
    document.setIn([group, 'public_url'], urls[service])
  }
  return document.toString({ lineWidth: 0 })
}

/** The settings with other paths for the files that the database's URLs name. Pure. */
export function withDatabaseFiles(text: string, paths: ReadonlyMap<string, string>): string {
  const document = parseDocument(text)
  const { database } = parseConfiguration(text, {})
  for (const schema of SCHEMAS) {
    const url = database[schema]
    if (url !== undefined) document.setIn(['database', schema], withFiles(url, paths))
  }
  return document.toString({ lineWidth: 0 })
}
