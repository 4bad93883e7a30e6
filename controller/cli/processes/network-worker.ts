import type { Database } from '../../database/connection.js'
import { maybeOne } from '../../database/query.js'
import { sql } from '../../database/sql.js'
import { hasSpanningRouters } from '../../hosts/router-host.js'
import { createLog, type Logger } from '../../log/log.js'
import { findBuiltInNetworks } from '../../network/bootstrap.js'
import { namespaceExists } from '../../network/local/namespace.js'
import { startNetworkWorker } from '../../network/local/worker/worker.js'
import type { OwnOvn } from '../../network/ovn/own/daemons.js'
import { physicalMapper } from '../../network/ovn/switch/map-physical.js'
import { type OvnNetworkWorkerOptions, startOvnNetworkWorker } from '../../network/ovn/worker.js'
import { repeat } from '../../process/repeat.js'
import type { Command } from '../command.js'
import { requireRoot } from '../host/checks.js'
import { requireFabric } from '../host/require-fabric.js'
import { fabricOf, networkDriverOf, requireInstanceId } from '../wiring/drivers.js'
import { databaseUrl, type Instance, openDatabase, openInstance } from '../wiring/instance.js'
import { ensureHostInterfaces, missingOnHost } from '../wiring/network/host-networks.js'
import { hasOwnOvn, openNorthbound, openSouthbound, ovnPlaceOf, ownOvnOf } from '../wiring/network/ovn.js'
import { requireHostId } from '../wiring/this-host.js'
import { runUntilStopped } from './run-until-stopped.js'

export const command: Command = { run: runNetworkWorker }

/** Shortest pause between two looks at the host's interfaces. */
const HOST_LOOK_MS = 5_000

/** A keeper of what `krater up` gave to this host: once that was there, it puts back what is taken away. */
function createHostKeeper({ directory, config }: Instance, database: Database, log: Logger): () => Promise<void> {
  const instanceId = requireInstanceId(directory)
  let lookedAt = Number.NEGATIVE_INFINITY
  return async () => {
    if (performance.now() - lookedAt < HOST_LOOK_MS) return
    lookedAt = performance.now()
    const fabric = fabricOf(directory)
    if (!namespaceExists(fabric.namespace)) return
    const missing = await missingOnHost(instanceId, config)
    if (missing === null) return
    const networks = await findBuiltInNetworks(database)
    if (networks === null) return
    await ensureHostInterfaces(fabric, instanceId, networks, config)
    log.warn({ missing }, 'something of the host was taken away; put it back')
  }
}

/** How soon a daemon of OVN that has ended is started again. */
const DAEMONS_LOOK_SECONDS = 1

/** Carries out networks in OVN. */
async function startInOvn(
  instance: Instance,
  options: Pick<OvnNetworkWorkerOptions, 'database' | 'databaseUrl' | 'keepHost' | 'log'>,
): Promise<{ stop: () => Promise<void> }> {
  const { log } = options
  const { directory, config } = instance
  const [northbound, southbound] = [openNorthbound(instance, log), openSouthbound(instance, log)]
  const own = hasOwnOvn(instance) ? ownOvnOf(directory) : null
  const fabric = fabricOf(directory)
  const { physical_networks: physicalNetworks } = config.network
  const worker = await startOvnNetworkWorker({
    ...{ ...options, northbound, southbound, fabric, place: ovnPlaceOf(instance, { northbound, southbound }) },
    physical:
      own === null ? null : { physicalNetworks, map: physicalMapper(own.layout.databases.switch.socket, own.datapath) },
  })
  const keeper = own === null ? null : keepDaemons(own, log)
  return {
    stop: async () => {
      await Promise.all([keeper?.stop(), worker.stop()])
      await Promise.all([northbound.stop(), southbound.stop()])
    },
  }
}

/** Starts daemons of OVN again that have ended. */
function keepDaemons(ovn: OwnOvn, log: Logger): { stop: () => Promise<void> } {
  const stopping = new AbortController()
  const done = repeat('starting daemons of OVN', DAEMONS_LOOK_SECONDS, stopping.signal, log, async () => {
    if (ovn.isComplete()) return
    const started = await ovn.ensure()
    log.warn({ started }, 'started daemons of OVN that had ended')
  })
  return {
    stop: async () => {
      stopping.abort()
      await done
    },
  }
}

/** Carries out physical networks, routers, floating IPs and security groups on this host until a signal to stop. */
async function runNetworkWorker(directory: string): Promise<void> {
  requireRoot()
  const instance = openInstance(directory)
  const log = createLog('network-worker', instance.config.log_level)
  await runUntilStopped({ name: 'network-worker', stateDirectory: directory, log }, async () => {
    requireFabric(directory)
    const database = openDatabase(instance, 'network', 'network worker', log)
    // The worker outlives the loss of its database, and would only log that it was never there.
    await maybeOne(database, sql`SELECT FROM router LIMIT 1`)
    const hosts = openDatabase(instance, 'load_balancer', 'network worker', log)
    const hostId = requireHostId(directory)
    const common = {
      ...{ database, databaseUrl: databaseUrl(instance, 'network') },
      ...{ keepHost: createHostKeeper(instance, database, log), log },
    }
    const worker =
      networkDriverOf(instance).switching === 'ovn'
        ? await startInOvn(instance, common)
        : await startNetworkWorker({
            ...common,
            fabric: fabricOf(directory),
            physicalNetworks: instance.config.network.physical_networks,
            hasSpanningRouters: () => hasSpanningRouters(hosts, hostId),
          })
    return async () => {
      await worker.stop()
      await Promise.all([database.destroy(), hosts.destroy()])
    }
  })
}
