import { existsSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { ComputeDriver } from '../../compute/driver.js'
import { computeDriver, computeDrivers } from '../../compute/drivers.js'
import type { EnrolledContext } from '../../compute/host-agents.js'
import { imageTags } from '../../compute/images/tags.js'
import type { ComputeContext, ComputeDriverKind } from '../../compute/kind.js'
import { createMachines } from '../../compute/machines.js'
import { type ComputeOffers, computeOffers } from '../../compute/offers.js'
import { placementRules } from '../../compute/placement.js'
import { type Configuration, configurationSchema } from '../../config/schema.js'
import type { Database } from '../../database/connection.js'
import { maybeOne } from '../../database/query.js'
import { sql } from '../../database/sql.js'
import { hostAddresses } from '../../hosts/read-hosts.js'
import type { Logger } from '../../log/log.js'
import type { NetworkDriver } from '../../network/driver.js'
import { networkDriver } from '../../network/drivers.js'
import type { NetworkDriverKind } from '../../network/kind.js'
import { Fabric } from '../../network/local/fabric.js'
import type { Filters } from '../../network/local/security-groups/filters.js'
import { readFiltersOf } from '../../network/local/security-groups/read-filters.js'
import { whoAnswers } from '../../network/local/visits/lookout.js'
import { ovnLayout } from '../../network/ovn/own/layout.js'
import { openVSwitch } from '../../network/ovn/switch/open-vswitch.js'
import { type OvnSettings, ovnOptions } from '../../ovn/options.js'
import { parseOvsdbAddresses } from '../../ovsdb/address.js'
import type { AgentConnections } from '../../provider/amphora/agent/connection.js'
import { hostAgents } from '../../provider/amphora/agent/host-agents.js'
import { OperatorError } from '../operator-error.js'
import { instanceId } from '../state-directory/instance.js'
import type { Instance } from './instance.js'

/** The bundled agent is in the directory of the bundled controller. */
export const agentBundle = join(dirname(fileURLToPath(import.meta.url)), 'agent.js')

const DEFAULT_MTU = 1500

/** Says how an OVN is reached that is not ours: the settings `ovn`, in JSON. */
export const standingOvnFile = (directory: string): string => join(directory, 'standing-ovn.json')

/** How the OVN is reached that has the networks of an installation; null without one that stands. */
export function recordedOvn(directory: string): OvnSettings | null {
  const file = standingOvnFile(directory)
  return existsSync(file) ? ovnOptions.parse(JSON.parse(readFileSync(file, 'utf8'))) : null
}

/** What connects interfaces on this host: OVN, as soon as the state directory says so. Works without settings. */
export function fabricOf(directory: string): Fabric {
  const instance = requireInstanceId(directory)
  const own = ovnLayout(directory).databases.switch
  if (existsSync(own.file)) {
    const address = { kind: 'unix', path: own.socket } as const
    return new Fabric({ instance, switching: openVSwitch({ address, instance, isOnHost: false }) })
  }
  const standing = recordedOvn(directory)
  if (standing === null) return new Fabric({ instance })
  const [address] = parseOvsdbAddresses(standing.switch) ?? []
  if (address === undefined) throw new Error(`${standingOvnFile(directory)} names no switch`)
  return new Fabric({ instance, switching: openVSwitch({ address, instance, isOnHost: true }) })
}

/** @throws OperatorError when the state directory is not set up */
export function requireInstanceId(directory: string): string {
  const id = instanceId(directory)
  if (id !== null) return id
  throw new OperatorError(`${directory} is not set up yet. Run \`krater up\` or \`krater db migrate\` first.`)
}

export const computeDriverOf = ({ config }: Instance): ComputeDriverKind => computeDriver(config.compute.driver)

/** What flavors and availability zones may name on this host. */
export const offersOf = ({ config, directory }: Instance): ComputeOffers =>
  computeOffers(placementRules(config.compute), () => imageTags(directory))

export const networkDriverOf = ({ config }: Instance): NetworkDriverKind => networkDriver(config.network.driver)

/** @param database opened with the network service's role */
export const openNetwork = (instance: Instance, database: Database): Promise<NetworkDriver> =>
  networkDriverOf(instance).open({ database, sharedAddresses: instance.config.network.shared_addresses })

/**
 * What a port may send and receive; null: everything, or the network driver filters nothing.
 * @param database opened with the network service's role
 */
export const portFilters = async (instance: Instance, database: Database, portId: string): Promise<Filters | null> =>
  networkDriverOf(instance).onHost ? readFiltersOf(database, portId) : null

/** The controllers' ports that amphorae on enrolled hosts reach. */
export const forwardedPorts = ({ health_manager, key_manager }: Configuration) => ({
  heartbeats: health_manager.port,
  keyChannel: key_manager.channel.port,
})

/** How enrolled hosts are reached: as amphorae are. */
export const enrolledContext = (
  instance: Instance,
  {
    database,
    network,
    agents,
    masterKey,
    log,
  }: { database: Database; network: NetworkDriver; agents: AgentConnections; masterKey: Buffer; log: Logger },
): EnrolledContext => ({
  agents: hostAgents(agents),
  lookAround: networkDriverOf(instance).onHost
    ? async (subnetId, addresses) => {
        const [subnet] = await network.subnets([subnetId])
        if (subnet === undefined) return null
        return whoAnswers({ fabric: fabricOf(instance.directory), driver: network, log }, subnet, addresses)
      }
    : null,
  forwarding: async () => ({ controllers: await hostAddresses(database), ...forwardedPorts(instance.config) }),
  masterKey,
  heartbeatPort: instance.config.health_manager.port,
  beatIntervalSeconds: instance.config.health_manager.beat_interval,
})

/** Every compute driver that the settings permit, as one, which can create machines. */
export async function openCompute(
  instance: Instance,
  {
    database,
    network,
    networkDatabase,
    enrolled,
    log,
  }: { database: Database; network: NetworkDriver; networkDatabase: Database; enrolled: EnrolledContext; log: Logger },
): Promise<ComputeDriver> {
  const context: ComputeContext = {
    instance: requireInstanceId(instance.directory),
    stateDirectory: instance.directory,
    database,
    network,
    enrolled,
    fabric: fabricOf(instance.directory),
    networkMtu: async id => (await network.network(id))?.mtu ?? DEFAULT_MTU,
    portFilters: id => portFilters(instance, networkDatabase, id),
    agentBundle,
    settings: instance.config.compute,
    log,
  }
  const standard = computeDriverOf(instance)
  if (!standard.runsMachines) return standard.open(context)
  return createMachines({
    kinds: computeDrivers.filter(({ runsMachines }) => runsMachines),
    context,
    driverOf: async amphoraId => {
      const row = await maybeOne(
        database,
        sql<{ driver: string }>`
          SELECT coalesce(compute_driver, ${standard.name}) AS driver FROM amphora WHERE id = ${amphoraId}`,
      )
      return row?.driver ?? null
    },
    log,
  })
}

/**
 * Every driver that may have machines of an instance on this host. Works without settings and without a database, so it
 * cannot create machines.
 */
export const hostMachines = (directory: string, log: Logger): Promise<ComputeDriver[]> =>
  Promise.all(
    computeDrivers
      // An enrolled host is no part of this one.
      .filter(({ runsMachines, ownsManagement }) => runsMachines && !ownsManagement)
      .map(({ open }) =>
        open({
          instance: requireInstanceId(directory),
          stateDirectory: directory,
          database: null,
          network: null,
          enrolled: null,
          fabric: fabricOf(directory),
          networkMtu: async () => DEFAULT_MTU,
          portFilters: async () => null,
          agentBundle,
          settings: configurationSchema.parse({}).compute,
          log,
        }),
      ),
  )
