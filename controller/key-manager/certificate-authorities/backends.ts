import type { CaBackend } from './ca-backend.js'
import { createInternalCa } from './internal/internal-ca.js'
import type { InternalCaService } from './internal/options.js'

/** The configured CA back ends; without a preference the first one's CAs are used. */
export const createCaBackends = (service: InternalCaService): readonly CaBackend[] => [createInternalCa(service)]

/** The back end of a CA. @throws Error if it is no longer configured */
export function findBackend(backends: readonly CaBackend[], pluginName: string): CaBackend {
  const backend = backends.find(({ name }) => name === pluginName)
  if (backend === undefined) throw new Error(`The CA back end ${pluginName} is not configured.`)
  return backend
}
