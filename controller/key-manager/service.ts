import type { Database } from '../database/connection.js'
import type { Keyring } from './crypto/keyring.js'
import type { KeyManagerSettings } from './options.js'

/** What the key manager works with, in the API and in the worker. */
export type Service = {
  database: Database
  keyring: Keyring
  config: KeyManagerSettings
}
