import type * as z from 'zod'
import type { BackendName, CryptoBackend } from './backend.js'

/** Settings common to all back ends. */
export type StoreSettings = { store_name: string }

export type CryptoContext = {
  stateDirectory: string
  /** How long unwrapped project keys stay cached. */
  keyCacheMilliseconds: number
}

/**
 * Describes a crypto back end before it is opened. To add one, write a folder that exports such a value, and
 * list it in backends.ts.
 */
export type CryptoBackendKind<Settings extends StoreSettings = StoreSettings> = {
  storedName: BackendName
  /** Its settings, below its name in key_manager.crypto. */
  options: z.ZodPrefault<z.ZodType<Settings>>
  /** The first required setting that is not set, with a description of it; null when the settings are complete. */
  missingSetting: (settings: Settings) => { setting: string; what: string } | null
  /** Does not contact the token or server yet. @throws ConfigurationError */
  open: (settings: Settings, context: CryptoContext) => Promise<CryptoBackend>
}
