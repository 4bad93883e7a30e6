import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { ComputeDriver } from '../../compute/driver.js'
import type { Limits } from '../../compute/namespace/cgroup.js'
import { createNamespaceDriver } from '../../compute/namespace/driver.js'
import { createNoopComputeDriver } from '../../compute/noop/driver.js'
import { type Configuration, configurationSchema } from '../../config/schema.js'
import type { Database } from '../../database/connection.js'
import type { Logger } from '../../log/log.js'
import type { NetworkDriver } from '../../network/driver.js'
import { createLocalDriver } from '../../network/local/driver.js'
import { createFabric, type Fabric } from '../../network/local/fabric.js'
import { createNoopNetworkDriver } from '../../network/noop/driver.js'
import { OperatorError } from '../operator-error.js'
import { instanceId } from '../state-directory/instance.js'
import type { Instance } from './instance.js'

/** The bundled agent stands beside the bundled controller. */
export const agentBundle = join(dirname(fileURLToPath(import.meta.url)), 'agent.js')

export const amphoraeDirectory = (directory: string): string => join(directory, 'amphorae')

export function fabricOf(directory: string): Fabric {
  return createFabric({ instance: requireInstanceId(directory) })
}

/** @throws OperatorError when nothing was ever started on this state directory */
export function requireInstanceId(directory: string): string {
  const id = instanceId(directory)
  if (id !== null) return id
  throw new OperatorError(
    `Nothing has been set up in ${directory} yet: \`krater up\` or \`krater db migrate\` does that.`,
  )
}

/** @param database as the network service's role */
export function createNetwork({ config }: Instance, database: Database): NetworkDriver {
  return config.network.driver === 'noop'
    ? createNoopNetworkDriver()
    : createLocalDriver(database, config.network.shared_addresses)
}

export function createCompute({ config, directory }: Instance, network: NetworkDriver, log: Logger): ComputeDriver {
  if (config.compute.driver === 'noop') return createNoopComputeDriver()
  return namespaceMachines(directory, async id => (await network.network(id))?.mtu ?? 1500, log, config.compute)
}

type ComputeSettings = Configuration['compute']

/** The machines of an instance; works without a database. The settings apply to new machines only. */
export function namespaceMachines(
  directory: string,
  networkMtu: (networkId: string) => Promise<number>,
  log: Logger,
  settings: ComputeSettings = configurationSchema.parse({}).compute,
): ComputeDriver {
  return createNamespaceDriver({
    instance: requireInstanceId(directory),
    directory: amphoraeDirectory(directory),
    fabric: fabricOf(directory),
    networkMtu,
    agentBundle,
    limits: machineLimits(settings),
    accounts: { first: settings.first_account, count: settings.accounts },
    log,
  })
}

export function machineLimits(settings: ComputeSettings): Limits {
  return {
    memoryBytes: settings.amphora_memory * 1024 * 1024,
    processors: settings.amphora_processors,
    processes: settings.amphora_processes,
  }
}
