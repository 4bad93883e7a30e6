import type { Database } from '../database/connection.js'
import type { Keyring } from './crypto/keyring.js'
import type { Policy } from './rights.js'

/** The settings for creating secrets, orders and CAs, in the API and in the worker. */
export type ServiceSettings = {
  policy: Policy
  /** Default quota per project for each kind of object; -1 is unlimited. */
  quota: Readonly<Record<'secrets' | 'orders' | 'containers' | 'consumers' | 'cas', number>>
}

/** What the key manager works with, in the API and in the worker. */
export type Service = {
  database: Database
  keyring: Keyring
  config: ServiceSettings
}
