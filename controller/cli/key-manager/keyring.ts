import { keyFiles, loadKeyManagerMaster } from '../../config/keys.js'
import type { Database } from '../../database/connection.js'
import { createKeyring, type Keyring } from '../../key-manager/crypto/keyring.js'
import { registerMasterKey, WrongMasterKey } from '../../key-manager/crypto/master-key.js'
import { createSimpleCrypto } from '../../key-manager/crypto/simple.js'
import type { Instance } from '../instance.js'
import { Sentence } from '../sentence.js'

/**
 * The crypto back ends that are configured, ready for use.
 * @param database as the key manager's role
 * @throws Sentence when a master key is missing, or is not the one that the stored secrets are under
 */
export async function openKeyring({ config, directory }: Instance, database: Database): Promise<Keyring> {
  const backend = createSimpleCrypto([loadKeyManagerMaster(keyFiles(config, directory))])
  await registerMasterKey(database, backend).catch(error => {
    throw error instanceof WrongMasterKey ? new Sentence(error.message) : error
  })
  return createKeyring(database, [backend])
}
