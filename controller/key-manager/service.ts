import type { Database } from '../database/connection.js'
import type { Keyring } from './crypto/keyring.js'
import type { Policy } from './rights.js'

/** The settings that go with secrets, orders and authorities wherever these are made, in the API and in the worker. */
export type ServiceSettings = {
  policy: Policy
  /** Most objects of each kind in a project for which no other limit was set; -1 is unlimited. */
  quota: Readonly<Record<'secrets' | 'orders' | 'containers' | 'consumers' | 'cas', number>>
}

/** What the key manager works with, in the API and in the worker. */
export type Service = {
  database: Database
  keyring: Keyring
  config: ServiceSettings
}
