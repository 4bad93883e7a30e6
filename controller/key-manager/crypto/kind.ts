import type { z } from 'zod'
import type { BackendName, CryptoBackend } from './backend.js'

/** The settings that every back end has. */
export type StoreSettings = { store_name: string }

export type CryptoContext = {
  stateDirectory: string
  /** How long an unwrapped key of a project is kept. */
  keepMilliseconds: number
}

/** What there is to know about a crypto back end before one is opened. A new one is a folder with such a value, and its lines in backends.ts. */
export type CryptoBackendKind<Settings extends StoreSettings = StoreSettings> = {
  storedName: BackendName
  /** Its group of settings, below its name in key_manager.crypto. */
  options: z.ZodPrefault<z.ZodType<Settings>>
  /** The setting without which it cannot be used, and what it is; null when all are there. */
  lacks: (settings: Settings) => { setting: string; what: string } | null
  /** Asks nothing of a token or a server yet. @throws ConfigurationError */
  open: (settings: Settings, context: CryptoContext) => Promise<CryptoBackend>
}
