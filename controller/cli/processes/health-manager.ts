import { startHealthManager } from '../../health-manager/health-manager.js'
import { createLog } from '../../log/log.js'
import type { Command } from '../command.js'
import { keyFiles, loadAmphoraMaster } from '../state-directory/keys.js'
import { fabricOf, openNetwork, requireInstanceId } from '../wiring/drivers.js'
import { connectToAmphorae } from '../wiring/host-networks.js'
import { openDatabase, openInstance } from '../wiring/instance.js'
import { runUntilStopped } from './run-until-stopped.js'

export const command: Command = { run: runHealthManager }

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
    const running = await startHealthManager({
      database,
      host: config.health_manager.host ?? address,
      config: config.health_manager,
      masterKey,
      log,
    })
    return async () => {
      await running.stop()
      await database.destroy()
    }
  })
}
