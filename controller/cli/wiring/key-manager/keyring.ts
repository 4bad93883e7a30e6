import type { Database } from '../../../database/connection.js'
import { type CryptoBackend, CryptoMisconfigured, CryptoUnavailable } from '../../../key-manager/crypto/backend.js'
import { openCryptoBackend, storedNameOf } from '../../../key-manager/crypto/backends.js'
import { createKeyring, type Keyring } from '../../../key-manager/crypto/keyring.js'
import type { CryptoContext } from '../../../key-manager/crypto/kind.js'
import {
  activeMasterKey,
  requireBackends,
  requireMasterKeys,
  WrongMasterKey,
} from '../../../key-manager/crypto/master-key.js'
import type { KeyManagerCrypto } from '../../../key-manager/crypto/options.js'
import {
  type ConfiguredStore,
  preferredBackend,
  StoreStillPreferred,
  syncSecretStores,
} from '../../../key-manager/secret-stores/sync.js'
import type { Logger } from '../../../log/log.js'
import { OperatorError } from '../../operator-error.js'
import type { Instance } from '../instance.js'

/**
 * Opens the configured crypto back ends. One that is unavailable does not stop the others from serving.
 * @param database opened with the key manager's role
 * @throws OperatorError when a master key is missing, or is not the one that protects the stored secrets
 */
export async function openKeyring(instance: Instance, database: Database, log?: Logger): Promise<Keyring> {
  const { crypto } = instance.config.key_manager
  const backends = await openBackends(instance)
  try {
    for (const backend of backends) await requireUsable(database, backend, log)
    await requireBackends(
      database,
      backends.map(({ name }) => name),
    )
    if (crypto.enable_multiple_secret_stores) await syncSecretStores(database, storesOf(crypto))
  } catch (error) {
    await Promise.all(backends.map(backend => backend.stop()))
    throw error instanceof WrongMasterKey || error instanceof StoreStillPreferred
      ? new OperatorError(error.message)
      : error
  }
  return crypto.enable_multiple_secret_stores
    ? createKeyring(database, backends, projectId => preferredBackend(database, projectId))
    : createKeyring(database, backends)
}

/**
 * Checks the master keys of the configured back ends as openKeyring does, without storing anything.
 * @throws OperatorError when one is missing, wrong or unavailable
 */
export async function checkMasterKeys(instance: Instance, database: Database): Promise<void> {
  const backends = await openBackends(instance)
  try {
    for (const backend of backends) {
      if ((await activeMasterKey(database, backend.name)) !== null) await requireMasterKeys(database, backend)
    }
  } catch (error) {
    if (error instanceof CryptoUnavailable) throw new OperatorError(error.reason)
    throw error instanceof WrongMasterKey ? new OperatorError(error.message) : error
  } finally {
    await Promise.all(backends.map(backend => backend.stop()))
  }
}

const storesOf = (crypto: KeyManagerCrypto): ConfiguredStore[] =>
  crypto.backends.map((name, at) => ({
    name: crypto[name].store_name,
    backend: storedNameOf(name),
    globalDefault: at === 0,
  }))

async function requireUsable(database: Database, backend: CryptoBackend, log?: Logger): Promise<void> {
  try {
    await requireMasterKeys(database, backend)
  } catch (error) {
    if (!(error instanceof CryptoUnavailable)) throw error
    const isFirstStart = (await activeMasterKey(database, backend.name)) === null
    if (isFirstStart || error instanceof CryptoMisconfigured) throw new OperatorError(error.reason)
    log?.error({ backend: backend.name, reason: error.reason }, 'a crypto back end is unavailable')
  }
}

/** @throws ConfigurationError */
function openBackends(instance: Instance): Promise<CryptoBackend[]> {
  const { crypto } = instance.config.key_manager
  return Promise.all(crypto.backends.map(name => openCryptoBackend(name, crypto, cryptoContext(instance))))
}

export const cryptoContext = ({ config, directory }: Instance): CryptoContext => ({
  stateDirectory: directory,
  keyCacheMilliseconds: config.key_manager.crypto.key_cache_ttl * 1000,
})
