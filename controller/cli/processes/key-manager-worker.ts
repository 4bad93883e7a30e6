import { startAuditLinker } from '../../key-manager/audit/linker.js'
import { certificateOrderExecutor } from '../../key-manager/certificate-authorities/certificate-order.js'
import { startKeyManagerHousekeeping } from '../../key-manager/housekeeping/housekeeping.js'
import { executeKeyOrder } from '../../key-manager/orders/worker/key.js'
import { executePairOrder } from '../../key-manager/orders/worker/pair.js'
import { startOrderWorker } from '../../key-manager/orders/worker/worker.js'
import { startRenewalWorker } from '../../key-manager/renewals/worker/worker.js'
import { createLog } from '../../log/log.js'
import type { Command } from '../command.js'
import { auditHeadFile, keyFiles, loadKeyManagerAuditKey } from '../state-directory/keys.js'
import { databaseUrl, openDatabase, openInstance } from '../wiring/instance.js'
import { openCaBackends } from '../wiring/key-manager/ca-backends.js'
import { followProjects } from '../wiring/key-manager/follow-projects.js'
import { openKeyring } from '../wiring/key-manager/keyring.js'
import { runUntilStopped } from './run-until-stopped.js'

export const command: Command = { run: runKeyManagerWorker }

/** Background work that runs until `stop`. */
type Part = { stop: () => Promise<void> }

/** Runs the key manager's background work until a signal to stop. */
export async function runKeyManagerWorker(directory: string): Promise<void> {
  const instance = openInstance(directory)
  const log = createLog('key-manager-worker', instance.config.log_level)
  await runUntilStopped({ name: 'key-manager-worker', stateDirectory: directory, log }, async () => {
    const database = openDatabase(instance, 'key_manager', 'key-manager worker', log)
    const keyring = await openKeyring(instance, database, log)
    const service = { database, keyring, config: instance.config.key_manager }
    const auditKey = loadKeyManagerAuditKey(keyFiles(instance.config, directory))
    const backends = await openCaBackends(service, log)
    const days = instance.config.key_manager.audit_retention_days
    const parts: Part[] = [
      await followProjects(instance, database, log),
      await startAuditLinker({ database, key: auditKey, headFile: auditHeadFile(instance.config, directory), log }),
      await startOrderWorker({
        database,
        databaseUrl: databaseUrl(instance, 'key_manager'),
        keyring,
        executors: {
          key: executeKeyOrder,
          asymmetric: executePairOrder,
          certificate: certificateOrderExecutor(service, backends),
        },
        config: instance.config.key_manager.worker,
        log,
      }),
      await startRenewalWorker({
        ...{ database, keyring, service, backends, log },
        databaseUrl: databaseUrl(instance, 'key_manager'),
        config: instance.config.key_manager.renewals,
      }),
      startKeyManagerHousekeeping({
        database,
        config: instance.config.key_manager.housekeeping,
        caBackends: backends,
        audit: days === null ? null : { days, key: auditKey },
        log,
      }),
    ]
    return async () => {
      await Promise.all(parts.map(part => part.stop()))
      await Promise.all([...keyring.backends.values()].map(backend => backend.stop()))
      await database.destroy()
    }
  })
}
