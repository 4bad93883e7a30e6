import { startHealthManager } from '../../health-manager/health-manager.js'
import { createLog } from '../../log/log.js'
import { repeat } from '../../process/repeat.js'
import type { Command } from '../command.js'
import { keyFiles, loadAmphoraMaster } from '../state-directory/keys.js'
import { fabricOf, networkDriverOf, openNetwork, requireInstanceId } from '../wiring/drivers.js'
import { createCopyKeeper } from '../wiring/heartbeat-copies.js'
import { openDatabase, openInstance } from '../wiring/instance.js'
import { connectToAmphorae, healthManagerHosts, hostLegName } from '../wiring/network/host-networks.js'
import { requireHostId } from '../wiring/this-host.js'
import { runUntilStopped } from './run-until-stopped.js'

export const command: Command = { run: runHealthManager }

const COPY_SECONDS = 5

/** Receives heartbeats until a signal to stop. */
export async function runHealthManager(directory: string): Promise<void> {
  const instance = openInstance(directory)
  const { config } = instance
  const log = createLog('health-manager', config.log_level)
  await runUntilStopped({ name: 'health-manager', stateDirectory: directory, log }, async () => {
    const instanceId = requireInstanceId(directory)
    const masterKey = loadAmphoraMaster(keyFiles(config, directory))
    const networkDatabase = openDatabase(instance, 'network', 'health-manager', log)
    const address = await connectToAmphorae(instance, await openNetwork(instance, networkDatabase), {
      fabric: fabricOf(directory),
      instanceId,
    })
    await networkDatabase.destroy()
    const database = openDatabase(instance, 'load_balancer', 'health-manager', log)
    const hostId = requireHostId(directory)
    const running = await startHealthManager({
      database,
      hosts: healthManagerHosts(config, address),
      hostId,
      config: config.health_manager,
      masterKey,
      log,
    })
    const stopping = new AbortController()
    const { address: from } = config.host
    const keepCopies = createCopyKeeper(database, hostId, {
      ...{
        interfaceName: hostLegName(instanceId, 'mgmt'),
        address,
        port: config.health_manager.port,
        from: from ?? '',
      },
    })
    const copying =
      from === undefined || !networkDriverOf(instance).onHost
        ? null
        : repeat('copying heartbeats to other hosts', COPY_SECONDS, stopping.signal, log, keepCopies)
    return async () => {
      stopping.abort()
      await copying
      await running.stop()
      await database.destroy()
    }
  })
}
