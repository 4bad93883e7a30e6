import { createLog, type Logger } from '../../log/log.js'
import { createAcmeCa } from './acme/acme-ca.js'
import type { AcmeService } from './acme/options.js'
import type { CaBackend } from './ca-backend.js'
import { createInternalCa } from './internal/internal-ca.js'
import type { InternalCaService } from './internal/options.js'

/**
 * The configured CA back ends; without a preference the first one's CAs are used.
 * @param log for what external CAs and hooks report; only the worker asks them
 */
export function createCaBackends(
  service: InternalCaService & AcmeService,
  log: Logger = createLog('key-manager', 'warn'),
): readonly CaBackend[] {
  const acme = createAcmeCa(service, log)
  return [createInternalCa(service), ...(acme === null ? [] : [acme])]
}

/** The back end of a CA. @throws Error if it is no longer configured */
export function findBackend(backends: readonly CaBackend[], pluginName: string): CaBackend {
  const backend = backends.find(({ name }) => name === pluginName)
  if (backend === undefined) throw new Error(`The CA back end ${pluginName} is not configured.`)
  return backend
}
