import { Option } from 'commander'
import { CryptoUnavailable } from '../../../../key-manager/crypto/backend.js'
import { openToken } from '../../../../key-manager/crypto/pkcs11/open-token.js'
import type { TokenClient } from '../../../../key-manager/crypto/pkcs11/token-client.js'
import { OperatorError } from '../../../operator-error.js'
import { openInstance } from '../../../wiring/instance.js'
import { cryptoContext } from '../../../wiring/key-manager/keyring.js'

export const labelOption = new Option(
  '--label <label>',
  'label of the key (default: key_manager.crypto.pkcs11.master_key_label)',
)

type Token = { client: TokenClient; origin: string; label: string }

/**
 * Runs `work` with the configured token, then closes it.
 * @param label of the master key; by default the configured one
 */
export async function withToken(
  directory: string,
  label: string | undefined,
  work: (token: Token) => Promise<void>,
): Promise<void> {
  const instance = openInstance(directory)
  const { pkcs11 } = instance.config.key_manager.crypto
  const { client, origin } = await openToken(pkcs11, cryptoContext(instance))
  try {
    await work({ client, origin, label: label ?? pkcs11.master_key_label })
  } catch (error) {
    throw error instanceof CryptoUnavailable ? new OperatorError(error.reason) : error
  } finally {
    await client.stop()
  }
}
