import { bootstrapIdentity } from '../../identity/bootstrap.js'
import type { ExternalIdentity } from '../../identity/external/external-identity.js'
import { externalIdentity } from '../../identity/external/external-identity.js'
import { IdentityUnavailable, ServiceUserRefused } from '../../identity/external/identity-unavailable.js'
import { inspectKeystone } from '../../identity/external/inspect-keystone.js'
import { type BuiltInNetworks, bootstrapNetworks, findBuiltInNetworks } from '../../network/bootstrap.js'
import { networkDriver } from '../../network/drivers.js'
import { ensureApiAuthority } from '../api-tls/authority.js'
import { clientAuthorityFile, writeClientAuthorities } from '../api-tls/trust.js'
import { OperatorError } from '../operator-error.js'
import { generateKeys, keyFiles } from '../state-directory/keys.js'
import { ensurePasswords } from '../state-directory/passwords.js'
import { authorityFiles } from '../wiring/api-certificate.js'
import { type Instance, openDatabase } from '../wiring/instance.js'
import { serviceUrls } from '../wiring/service-urls.js'
import { refusalError } from '../wiring/token-validator.js'
import { writeClientFiles } from './client-files.js'
import { requireKeptKeys } from './kept-keys.js'

/**
 * Creates what the first start needs, and keeps what exists: keys, first users, catalogue, first networks and client
 * files. Every start updates the catalogue from the configuration. Creates nothing in an external Keystone.
 */
export async function bootstrap(instance: Instance): Promise<BuiltInNetworks | null> {
  const { directory, config } = instance
  await requireKeptKeys(instance)
  await generateKeys(keyFiles(config, directory))
  const authority = authorityFiles(instance)
  if (authority !== null) ensureApiAuthority(authority)
  writeClientAuthorities(instance)
  const external = externalIdentity(config)
  const owners = external === null ? await bootstrapOwnIdentity(instance) : await ownersAtKeystone(external)
  const { cidr, driver } = config.network
  if (!networkDriver(driver).onHost) return null
  if (cidr === undefined) throw new OperatorError('network.cidr is not set.')
  return withDatabase(instance, 'network', async database => {
    if (!('away' in owners)) return bootstrapNetworks(database, { cidr, ...owners })
    const present = await findBuiltInNetworks(database)
    if (present !== null) return present
    throw new OperatorError(
      `${owners.away}. The first start needs the project of Krater's user there, which will own the first networks.`,
    )
  })
}

/** The projects that own the first networks. */
type Owners = { serviceProjectId: string; demoProjectId?: string }

async function bootstrapOwnIdentity(instance: Instance): Promise<Owners> {
  const { directory, config } = instance
  const passwords = ensurePasswords(directory)
  const urls = serviceUrls(config)
  const { projects } = await withDatabase(instance, 'identity', database =>
    bootstrapIdentity(database, {
      region: config.region,
      adminPassword: passwords.admin,
      passwordHashRounds: config.identity.password_hash_rounds,
      demoPassword: passwords.demo,
      servicePasswords: { octavia: passwords.octavia, barbican: passwords.barbican },
      endpoints: {
        identity: urls.identity,
        network: urls.network,
        'load-balancer': urls.loadBalancer,
        'key-manager': urls.keyManager,
      },
    }),
  )
  writeClientFiles(directory, {
    authUrl: urls.identity,
    caFile: clientAuthorityFile(instance),
    region: config.region,
    demo: { username: 'demo', password: passwords.demo, projectName: 'demo' },
    admin: { username: 'admin', password: passwords.admin, projectName: 'admin' },
  })
  return { serviceProjectId: projects.service, ...(projects.demo !== null && { demoProjectId: projects.demo }) }
}

/** @throws OperatorError when Keystone refuses Krater's user */
async function ownersAtKeystone(external: ExternalIdentity): Promise<Owners | { away: string }> {
  try {
    const { projectId } = await inspectKeystone(external)
    return projectId === null ? { away: 'Krater’s user has no project in Keystone' } : { serviceProjectId: projectId }
  } catch (error) {
    if (error instanceof ServiceUserRefused) throw refusalError(external.url, error)
    if (error instanceof IdentityUnavailable) return { away: error.message }
    throw error
  }
}

async function withDatabase<T>(
  instance: Instance,
  schema: 'identity' | 'network',
  work: (database: ReturnType<typeof openDatabase>) => Promise<T>,
): Promise<T> {
  const database = openDatabase(instance, schema, 'first start')
  try {
    return await work(database)
  } finally {
    await database.destroy()
  }
}
