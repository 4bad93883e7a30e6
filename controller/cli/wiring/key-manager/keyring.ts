import type { Database } from '../../../database/connection.js'
import { type CryptoBackend, CryptoMisconfigured, CryptoUnavailable } from '../../../key-manager/crypto/backend.js'
import { createKeyring, type Keyring } from '../../../key-manager/crypto/keyring.js'
import {
  activeMasterKey,
  requireBackends,
  requireMasterKeys,
  WrongMasterKey,
} from '../../../key-manager/crypto/master-key.js'
import type { KeyManagerCrypto } from '../../../key-manager/crypto/options.js'
import { createPkcs11Crypto } from '../../../key-manager/crypto/pkcs11/backend.js'
import { createSimpleCrypto } from '../../../key-manager/crypto/simple.js'
import {
  type ConfiguredStore,
  preferredBackend,
  StoreStillPreferred,
  syncSecretStores,
} from '../../../key-manager/secret-stores/sync.js'
import type { Logger } from '../../../log/log.js'
import { originOf, type SecretSource } from '../../../options/secret-source.js'
import { OperatorError } from '../../operator-error.js'
import { keyFiles } from '../../state-directory/keys.js'
import { masterKeySourceOf, readMasterKeys } from '../../state-directory/master-keys.js'
import type { Instance } from '../instance.js'
import { openToken } from './token.js'

/**
 * The crypto back ends that are configured, ready for use. One that cannot be reached at the moment does not keep the others from serving.
 * @param database as the key manager's role
 * @throws OperatorError when a master key is missing, or is not the one that the stored secrets are under
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

function storesOf({ backends, simple, pkcs11 }: KeyManagerCrypto): ConfiguredStore[] {
  return backends.map((name, at) => ({
    name: { simple, pkcs11 }[name].store_name,
    backend: BACKEND_NAMES[name],
    globalDefault: at === 0,
  }))
}

const BACKEND_NAMES = { simple: 'simple_crypto', pkcs11: 'p11_crypto' } as const

async function requireUsable(database: Database, backend: CryptoBackend, log?: Logger): Promise<void> {
  try {
    await requireMasterKeys(database, backend)
  } catch (error) {
    if (!(error instanceof CryptoUnavailable)) throw error
    const isFirstStart = (await activeMasterKey(database, backend.name)) === null
    if (isFirstStart || error instanceof CryptoMisconfigured) throw new OperatorError(error.reason)
    log?.error({ backend: backend.name, reason: error.reason }, 'a crypto back end cannot be used at the moment')
  }
}

/** @throws ConfigurationError, OperatorError */
async function openBackends(instance: Instance): Promise<CryptoBackend[]> {
  return Promise.all(
    instance.config.key_manager.crypto.backends.map(name =>
      name === 'simple' ? openSimple(instance) : openPkcs11(instance),
    ),
  )
}

async function openPkcs11({ config: { key_manager } }: Instance): Promise<CryptoBackend> {
  const { client, origin } = await openToken(key_manager.crypto)
  return createPkcs11Crypto(client, key_manager.crypto.pkcs11.master_key_label, origin)
}

/** The back end `simple` with the keys that its source has now. @throws ConfigurationError */
export async function openSimple({ config, directory }: Instance): Promise<CryptoBackend> {
  const source = masterKeySourceOf(config, keyFiles(config, directory))
  return createSimpleCrypto(
    {
      origin: originOf(source),
      remedy: REMEDIES[source.kind],
      keys: await readMasterKeys(source),
      reread: source.kind === 'variable' ? null : () => readMasterKeys(source),
    },
    { keepMilliseconds: config.key_manager.crypto.key_cache_ttl * 1000 },
  )
}

/** What makes a running process learn of a new master key. */
const REMEDIES: Readonly<Record<SecretSource['kind'], string>> = {
  file: 'Copy the file from the machine where the master key was rotated; running processes read it again.',
  command: 'Make the command print that key as well; running processes ask it again.',
  variable: 'Add that key to the variable and start this process again.',
}
