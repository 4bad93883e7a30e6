import { generateKeys, keyFiles } from '../config/keys.js'
import { writeClientFiles } from '../config/openrc.js'
import { serviceUrls } from '../config/service-urls.js'
import { bootstrapIdentity } from '../identity/bootstrap.js'
import { type BuiltInNetworks, bootstrapNetworks } from '../network/bootstrap.js'
import { type Instance, openDatabase } from './instance.js'
import { ensurePasswords } from './passwords.js'
import { Sentence } from './sentence.js'

/**
 * What a first start makes, and a later one finds: keys, the first users and the catalogue, the first networks, and the files for clients.
 * The catalogue follows the configuration at every start.
 */
export async function bootstrap(instance: Instance): Promise<BuiltInNetworks | null> {
  const { directory, config } = instance
  await generateKeys(keyFiles(config, directory))
  const passwords = ensurePasswords(directory)
  const urls = serviceUrls(config)
  const projects = await withDatabase(instance, 'identity', async database => {
    const made = await bootstrapIdentity(database, {
      region: config.region,
      adminPassword: passwords.admin,
      demoPassword: passwords.demo,
      servicePasswords: { octavia: passwords.octavia, barbican: passwords.barbican },
      endpoints: {
        identity: urls.identity,
        network: urls.network,
        'load-balancer': urls.loadBalancer,
        'key-manager': urls.keyManager,
      },
    })
    return made.projects
  })
  writeClientFiles(directory, {
    authUrl: urls.identity,
    region: config.region,
    demo: { username: 'demo', password: passwords.demo, projectName: 'demo' },
    admin: { username: 'admin', password: passwords.admin, projectName: 'admin' },
  })
  const { cidr, driver } = config.network
  if (driver === 'noop') return null
  if (cidr === undefined) throw new Sentence('network.cidr is not set.')
  return withDatabase(instance, 'network', database =>
    bootstrapNetworks(database, {
      cidr,
      serviceProjectId: projects.service,
      ...(projects.demo === null ? {} : { demoProjectId: projects.demo }),
    }),
  )
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
