import { join } from 'node:path'
import type { ExternalIdentity } from '../../../identity/external/external-identity.js'
import { externalIdentity } from '../../../identity/external/external-identity.js'
import { inspectKeystone } from '../../../identity/external/inspect-keystone.js'
import { clientAuthorityFile } from '../../api-tls/trust.js'
import type { Instance } from '../../wiring/instance.js'
import { catalogAdvice } from '../../wiring/keystone-catalog.js'
import { serviceUrls } from '../../wiring/service-urls.js'

/** Lines that tell the user where the running service and its files are. */
export async function summaryOf(instance: Instance): Promise<string[]> {
  const { directory, config } = instance
  const urls = serviceUrls(config)
  const external = externalIdentity(config)
  const caFile = clientAuthorityFile(instance)
  return [
    'Krater is up.',
    `  identity       ${urls.identity}${external === null ? '' : ' (identity.external_url, which holds the users and projects)'}`,
    `  load balancer  ${urls.loadBalancer}`,
    `  key manager    ${urls.keyManager}`,
    `  network        ${urls.network}`,
    ...(external === null
      ? [
          `  client files   ${join(directory, 'openrc')} (demo user), ${join(directory, 'admin-openrc')}, ${join(directory, 'clouds.yaml')}`,
        ]
      : []),
    ...(caFile === null ? [] : [`  CA file        ${caFile} (curl --cacert; openrc and clouds.yaml name it)`]),
    `  logs           ${join(directory, 'log')}`,
    ...(external === null ? [] : await adviceFor(instance, external)),
  ]
}

async function adviceFor({ config }: Instance, external: ExternalIdentity): Promise<string[]> {
  const look = await inspectKeystone(external).catch((error: Error) => error)
  if (look instanceof Error) return [`The APIs answer 503 until Keystone is available: ${look.message}.`]
  const advice = catalogAdvice(config, look.catalog)
  if (advice.length === 0) return []
  return [
    'Clients look up services in the catalogue of that Keystone, which needs these changes by its administrator:',
    ...advice.map(line => `  ${line}`),
  ]
}
