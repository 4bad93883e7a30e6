import { CryptoUnavailable } from '../../../key-manager/crypto/backend.js'
import { createMasterKey, createPkcs11Crypto, masterKeyAttributes } from '../../../key-manager/crypto/pkcs11/backend.js'
import type { TokenClient } from '../../../key-manager/crypto/pkcs11/token-client.js'
import { OperatorError } from '../../operator-error.js'
import { print, table } from '../../terminal.js'
import { openInstance } from '../../wiring/instance.js'
import { openToken } from '../../wiring/key-manager/token.js'

type Token = { client: TokenClient; origin: string; label: string }

/** Makes a master key in the token. */
export async function createMasterKeyInToken(directory: string, label: string | undefined): Promise<void> {
  await withToken(directory, label, async token => {
    if (!(await createMasterKey(token.client, token.label))) {
      throw new OperatorError(`There is a key labelled ${token.label} in ${token.origin} already; it stays as it is.`)
    }
    print(`The master key ${token.label} was made in ${token.origin}; it never leaves it.`)
  })
}

/** Shows a master key's attributes, and that a key can be wrapped with it, unwrapped and used. */
export async function checkToken(directory: string, label: string | undefined): Promise<void> {
  await withToken(directory, label, async ({ client, origin, label: checked }) => {
    const attributes = await masterKeyAttributes(client, checked)
    print(`${origin}, master key ${checked}:`)
    for (const line of table(Object.entries(attributes).map(([name, value]) => [name, value ? 'yes' : 'no'])))
      print(line)
    const backend = createPkcs11Crypto(client, checked, origin)
    const key = { id: 'check', ...(await backend.createProjectKey(checked)) }
    const sealed = await backend.encrypt(key, Buffer.from('check'), 'check')
    backend.forget(key.id)
    const opened = await backend.decrypt(key, sealed, 'check')
    if (opened.toString() !== 'check') throw new OperatorError('What was encrypted comes back as something else.')
    print('A key was made, wrapped, unwrapped and used: all works.')
  })
}

async function withToken(
  directory: string,
  label: string | undefined,
  work: (token: Token) => Promise<void>,
): Promise<void> {
  const { crypto } = openInstance(directory).config.key_manager
  const { client, origin } = await openToken(crypto)
  try {
    await work({ client, origin, label: label ?? crypto.pkcs11.master_key_label })
  } catch (error) {
    throw error instanceof CryptoUnavailable ? new OperatorError(error.reason) : error
  } finally {
    await client.stop()
  }
}
