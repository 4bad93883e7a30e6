import type { Database } from '../../database/connection.js'
import { maybeOne } from '../../database/query.js'
import { sql } from '../../database/sql.js'
import { hasSpanningRouters } from '../../hosts/router-host.js'
import { createLog, type Logger } from '../../log/log.js'
import { findBuiltInNetworks } from '../../network/bootstrap.js'
import { namespaceExists } from '../../network/local/namespace.js'
import { startNetworkWorker } from '../../network/local/worker/worker.js'
import type { Command } from '../command.js'
import { requireRoot } from '../host/checks.js'
import { requireFabric } from '../host/require-fabric.js'
import { fabricOf, requireInstanceId } from '../wiring/drivers.js'
import { ensureHostInterfaces, missingOnHost } from '../wiring/host-networks.js'
import { databaseUrl, type Instance, openDatabase, openInstance } from '../wiring/instance.js'
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
    const worker = await startNetworkWorker({
      database,
      databaseUrl: databaseUrl(instance, 'network'),
      fabric: fabricOf(directory),
      physicalNetworks: instance.config.network.physical_networks,
      hasSpanningRouters: () => hasSpanningRouters(hosts, hostId),
      keepHost: createHostKeeper(instance, database, log),
      log,
    })
    return async () => {
      await worker.stop()
      await Promise.all([database.destroy(), hosts.destroy()])
    }
  })
}
