import type { CryptoBackend } from '../backend.js'
import type { KeyAttributes, TokenCall, TokenResult } from './calls.js'
import type { TokenClient } from './token-client.js'

/**
 * The back end whose keys stay in a PKCS#11 token. A stored value is nonce, ciphertext and tag (AES-256-GCM).
 * The id of a master key is its label.
 * @param origin the token, for messages
 */
export function createPkcs11Crypto(client: TokenClient, masterKeyLabel: string, origin: string): CryptoBackend {
  const askForBytes = async (call: TokenCall): Promise<Buffer> => requireBytes(await client.ask(call))
  const askWhether = async (call: TokenCall): Promise<boolean> => (await client.ask(call)) === true
  return {
    name: 'p11_crypto',
    firstMasterKeyId: masterKeyLabel,
    origin,
    knowsMasterKey: label => askWhether({ call: 'find', label }),
    makeCheckValue: label => askForBytes({ call: 'make check value', label }),
    matchesCheckValue: (label, checkValue) => askWhether({ call: 'match check value', label, checkValue }),
    createProjectKey: async label => ({
      masterKeyId: label,
      wrapped: await askForBytes({ call: 'create project key', label }),
    }),
    rewrapProjectKey: async (key, label) => ({
      masterKeyId: label,
      wrapped: await askForBytes({ call: 'rewrap', key, label }),
    }),
    encrypt: (key, data, context) => askForBytes({ call: 'encrypt', key, data, context }),
    decrypt: (key, data, context) => askForBytes({ call: 'decrypt', key, data, context }),
    forget: keyId => client.tell({ call: 'forget', keyId }),
    stop: client.stop,
  }
}

/**
 * Makes a master key in the token: permanent, sensitive, never extractable, usable only for wrapping.
 * @returns false if a key with that label exists
 */
export async function createMasterKey(client: TokenClient, label: string): Promise<boolean> {
  return (await client.ask({ call: 'create', label })) === true
}

/** @throws CryptoUnavailable if there is no such key */
export async function masterKeyAttributes(client: TokenClient, label: string): Promise<KeyAttributes> {
  const result = await client.ask({ call: 'attributes', label })
  if (typeof result === 'boolean' || Buffer.isBuffer(result))
    throw new Error('The token process returned an unexpected result.')
  return result
}

function requireBytes(result: TokenResult): Buffer {
  if (!Buffer.isBuffer(result)) throw new Error('The token process returned an unexpected result.')
  return result
}
