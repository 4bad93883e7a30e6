import { maybeOne } from '../../database/query.js'
import { sql } from '../../database/sql.js'
import { createLog } from '../../log/log.js'
import { startNetworkWorker } from '../../network/local/worker/worker.js'
import type { Command } from '../command.js'
import { requireRoot } from '../host/checks.js'
import { requireFabric } from '../host/require-fabric.js'
import { fabricOf } from '../wiring/drivers.js'
import { databaseUrl, openDatabase, openInstance } from '../wiring/instance.js'
import { runUntilStopped } from './run-until-stopped.js'

export const command: Command = { run: runNetworkWorker }

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
    const worker = await startNetworkWorker({
      database,
      databaseUrl: databaseUrl(instance, 'network'),
      fabric: fabricOf(directory),
      physicalNetworks: instance.config.network.physical_networks,
      log,
    })
    return async () => {
      await worker.stop()
      await database.destroy()
    }
  })
}
