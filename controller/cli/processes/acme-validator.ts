import { maybeOne } from '../../database/query.js'
import { sql } from '../../database/sql.js'
import { createResolver } from '../../key-manager/acme-server/validation/resolver.js'
import { startValidator } from '../../key-manager/acme-server/validation/validator.js'
import { createLog } from '../../log/log.js'
import { removeLeftVisitors } from '../../network/local/visits/visitor.js'
import { repeat } from '../../process/repeat.js'
import type { Command } from '../command.js'
import { fabricOf, networkDriverOf, openNetwork } from '../wiring/drivers.js'
import { databaseUrl, openDatabase, openInstance } from '../wiring/instance.js'
import { createReach } from '../wiring/key-manager/acme-reach.js'
import { runUntilStopped } from './run-until-stopped.js'

export const command: Command = { run: runAcmeValidator }

const SWEEP_SECONDS = 300

/** Carries out the challenges of ACME clients until a signal to stop. It has no master key, and so reads no secret. */
export async function runAcmeValidator(directory: string): Promise<void> {
  const instance = openInstance(directory)
  const log = createLog('acme-validator', instance.config.log_level)
  await runUntilStopped({ name: 'acme-validator', stateDirectory: directory, log }, async () => {
    const { resolvers, outside_networks: outsideNetworks } = instance.config.key_manager.acme_server
    const database = openDatabase(instance, 'key_manager', 'acme-validator', log)
    // The parts below outlive the loss of their database, and would only log that it was never there.
    await maybeOne(database, sql`SELECT FROM acme_challenge LIMIT 1`)
    const networkDatabase = openDatabase(instance, 'network', 'acme-validator', log)
    const driver = await openNetwork(instance, networkDatabase)
    const fabric = networkDriverOf(instance).onHost ? fabricOf(directory) : null
    const stopping = new AbortController()
    const sweep = async () => {
      const left = fabric === null ? 0 : await removeLeftVisitors(fabric, driver)
      if (left > 0) log.info({ ports: left }, 'removed what a killed validator left on the networks')
    }
    const sweeps = repeat('the sweep for left ports', SWEEP_SECONDS, stopping.signal, log, sweep)
    const validator = await startValidator({
      database,
      databaseUrl: databaseUrl(instance, 'key_manager'),
      world: { resolver: createResolver(resolvers), reach: createReach({ driver, fabric, outsideNetworks }) },
      log,
    })
    return async () => {
      stopping.abort()
      await validator.stop()
      await sweeps
      await Promise.all([database.destroy(), networkDatabase.destroy()])
    }
  })
}
