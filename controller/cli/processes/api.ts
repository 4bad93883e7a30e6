import { InvalidArgumentError, Option } from 'commander'
import type Koa from 'koa'
import type { CertificateSource } from '../../certificates/certificate-source.js'
import type { Configuration } from '../../config/schema.js'
import type { Database } from '../../database/connection.js'
import type { ServiceSchema } from '../../database/migrate.js'
import { connectionsWithinFiles } from '../../http/connections.js'
import type { HttpSettings } from '../../http/options.js'
import { type RunningServer, startServer } from '../../http/server.js'
import type { ServerCertificate } from '../../http/tls/server-certificate.js'
import { createIdentityApi } from '../../identity/api.js'
import { createChecks, INSPECTION_MILLISECONDS } from '../../inspection/checks.js'
import { createKeyManagerApi } from '../../key-manager/api.js'
import { createRefusalLog, type RefusalLog } from '../../key-manager/audit/refusals.js'
import { type ChannelServer, startChannelServer } from '../../key-manager/channel/server.js'
import { createLoadBalancerApi } from '../../load-balancer/api.js'
import { createLog, type Logger } from '../../log/log.js'
import { createNetworkApi } from '../../network/api.js'
import { providerCapabilities } from '../../provider/providers.js'
import { keepCertificate } from '../api-tls/keep.js'
import { requireProtectedApis } from '../api-tls/plain-http.js'
import type { Command } from '../command.js'
import { listenersOf } from '../host/checks.js'
import { OperatorError } from '../operator-error.js'
import { readHostRecord } from '../state-directory/host.js'
import {
  keyFiles,
  loadChannelCertificate,
  loadChannelKeys,
  loadIdentityCredentialKey,
} from '../state-directory/keys.js'
import type { ProcessName } from '../state-directory/run-record.js'
import { type ApiCertificate, openApiCertificate } from '../wiring/api-certificate.js'
import { openCertificateSource } from '../wiring/certificate-source.js'
import { requireDefaultProvider } from '../wiring/default-provider.js'
import { computeDriverOf, openNetwork } from '../wiring/drivers.js'
import { type Instance, openDatabase, openInstance } from '../wiring/instance.js'
import { openCaBackends } from '../wiring/key-manager/ca-backends.js'
import { openKeyring } from '../wiring/key-manager/keyring.js'
import { keyChannelHosts, managementAddress } from '../wiring/network/host-networks.js'
import { providerOffers } from '../wiring/network/ovn.js'
import { serviceUrls } from '../wiring/service-urls.js'
import { openTokenValidation, type TokenValidation } from '../wiring/token-validator.js'
import { runUntilStopped } from './run-until-stopped.js'

const API_NAMES = ['identity', 'network', 'load-balancer', 'key-manager'] as const
type ApiName = (typeof API_NAMES)[number]

export const command: Command = {
  options: [
    new Option('--only <names>', `run only these, separated by commas: ${API_NAMES.join(',')}`).argParser(
      parseApiNames,
    ),
  ],
  run: (directory, { only = API_NAMES }: { only?: readonly ApiName[] }) => runApi(directory, only),
}

const isOneOf =
  (names: readonly ApiName[]) =>
  ({ setting }: { setting: string }): boolean =>
    names.some(name => name.replace('-', '_') === setting)

type Api = {
  name: ApiName
  address: { host: string; port: number; trusted_proxies: readonly string[] }
  create: () => Koa | Promise<Koa>
  /** Called after the last request and before the databases close. */
  stop?: () => Promise<void>
}

/** Serves the named APIs until a signal to stop. */
export async function runApi(directory: string, only: readonly ApiName[]): Promise<void> {
  const instance = openInstance(directory)
  requireDefaultProvider(instance.config)
  await requireProtectedApis(instance.config, listenersOf(instance.config, null).filter(isOneOf(only)))
  const [first, ...others] = only
  const name: ProcessName = first !== undefined && others.length === 0 ? `${first}-api` : 'api'
  const log = createLog(name, instance.config.log_level)
  await runUntilStopped({ name, stateDirectory: directory, log }, async () => {
    const databases: Database[] = []
    const open = (schema: ServiceSchema['schema']) => {
      const database = openDatabase(instance, schema, name, log)
      databases.push(database)
      return database
    }
    // Before the clients of the APIs, which read the file of their CA.
    const served = await openApiCertificate(instance, log)
    const tokens = await openTokenValidation(instance, () => open('identity'), log)
    const certificates = openCertificateSource(instance, log)
    const apis = apisOf(instance, open, { tokens, certificates }, log).filter(({ name }) => only.includes(name))
    if (apis.length === 0) {
      throw new OperatorError(
        `There is no identity API to serve: identity.external_url points to ${serviceUrls(instance.config).identity}.`,
      )
    }
    const servers = await startServers(apis, instance.config.api, served, log)
    const present = (certificate: ServerCertificate) => {
      for (const server of servers) server.useCertificate(certificate)
    }
    const stopKeeping = served === null ? null : keepCertificate(served.origin, present, log)
    return async () => {
      await stopKeeping?.()
      served?.close()
      await Promise.all(servers.map(server => server.stop()))
      await Promise.all(apis.flatMap(({ stop }) => (stop === undefined ? [] : [stop()])))
      tokens.close()
      certificates.close()
      await Promise.all(databases.map(database => database.destroy()))
    }
  })
}

async function startServers(
  apis: readonly Api[],
  { max_connections, max_connections_per_source, tls }: HttpSettings,
  served: ApiCertificate | null,
  log: Logger,
): Promise<RunningServer[]> {
  return Promise.all(
    apis.map(async ({ name, address, create }) => {
      const app = await create()
      const limits = {
        max: Math.min(max_connections, connectionsWithinFiles(apis.length)),
        maxPerSource: max_connections_per_source,
        trustedProxies: address.trusted_proxies,
      }
      const server = await startServer(app, address, {
        ...{ limits, log },
        ...(served !== null && { tls: { certificate: served.origin.first, minimumVersion: tls.minimum_version } }),
      })
      log.info({ api: name, url: server.url }, 'listening')
      return server
    }),
  )
}

function apisOf(
  instance: Instance,
  open: (schema: ServiceSchema['schema']) => Database,
  { tokens, certificates }: { tokens: TokenValidation; certificates: CertificateSource },
  log: Logger,
): Api[] {
  const { config, directory }: { config: Configuration; directory: string } = instance
  const identity: Api = {
    name: 'identity',
    address: config.identity,
    create: () =>
      createIdentityApi({
        database: open('identity'),
        config,
        log,
        credentialKey: loadIdentityCredentialKey(keyFiles(config, directory)),
      }),
  }
  return [
    ...(config.identity.external_url === undefined ? [identity] : []),
    {
      name: 'network',
      address: config.network,
      create: () =>
        createNetworkApi({
          database: open('network'),
          config: config.network,
          publicUrl: config.network.public_url,
          trustedProxies: config.network.trusted_proxies,
          validate: tokens.validator(),
          identityUrl: serviceUrls(config).identity,
          log,
        }),
    },
    {
      name: 'load-balancer',
      address: config.load_balancer,
      create: async () =>
        createLoadBalancerApi({
          database: open('load_balancer'),
          network: await openNetwork(instance, open('network')),
          certificates,
          validate: tokens.validator(),
          hostId: computeDriverOf(instance).runsMachines ? (readHostRecord(directory)?.id ?? null) : null,
          providers: providerCapabilities(providerOffers(instance)),
          config: config.load_balancer,
          identityUrl: serviceUrls(config).identity,
          log,
        }),
    },
    keyManagerOf(instance, open, tokens, log),
  ]
}

function keyManagerOf(
  instance: Instance,
  open: (schema: ServiceSchema['schema']) => Database,
  tokens: TokenValidation,
  log: Logger,
): Api {
  const { config, directory } = instance
  let refusals: RefusalLog | undefined
  let channels: ChannelServer[] = []
  return {
    name: 'key-manager',
    address: config.key_manager,
    create: async () => {
      const database = open('key_manager')
      const service = {
        database,
        keyring: await openKeyring(instance, database, log),
        config: config.key_manager,
      }
      await openCaBackends(service)
      refusals = createRefusalLog(database, log)
      const checks = createChecks({ inspectionMilliseconds: INSPECTION_MILLISECONDS })
      const { host, port } = config.key_manager.channel
      const address = host ?? (await managementAddress(instance, await openNetwork(instance, open('network'))))
      const files = keyFiles(config, directory)
      const channel = {
        service: { ...service, checks, recordRefusal: refusals.record },
        certificate: loadChannelCertificate(files),
        secret: loadChannelKeys(files).secret,
        log,
      }
      channels = keyChannelHosts(config, address).map(place =>
        startChannelServer({ ...channel, address: { host: place, port } }),
      )
      return createKeyManagerApi({
        ...service,
        refusals,
        checks,
        validate: tokens.validator(),
        identityUrl: serviceUrls(config).identity,
        log,
      })
    },
    stop: async () => {
      await Promise.all(channels.map(channel => channel.stop()))
      await refusals?.flush()
    },
  }
}

function parseApiNames(text: string): ApiName[] {
  const names = text.split(',').map(name => name.trim())
  const unknown = names.filter(name => !API_NAMES.some(known => known === name))
  if (unknown.length > 0) throw new InvalidArgumentError(`There is no API "${unknown.join(', ')}".`)
  return API_NAMES.filter(name => names.includes(name))
}
