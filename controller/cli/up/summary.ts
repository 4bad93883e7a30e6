import { join } from 'node:path'
import { serviceUrls } from '../../config/service-urls.js'
import type { Instance } from '../instance.js'

/** What a user needs to know of a service that runs. */
export function summaryOf({ directory, config }: Instance): string[] {
  const urls = serviceUrls(config)
  return [
    'Krater is up.',
    `  identity       ${urls.identity}`,
    `  load balancer  ${urls.loadBalancer}`,
    `  network        ${urls.network}`,
    `  client files   ${join(directory, 'openrc')} (demo user), ${join(directory, 'admin-openrc')}, ${join(directory, 'clouds.yaml')}`,
    `  logs           ${join(directory, 'log')}`,
  ]
}
