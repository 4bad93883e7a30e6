import { Option } from 'commander'
import { CryptoUnavailable } from '../../../../key-manager/crypto/backend.js'
import type { TokenClient } from '../../../../key-manager/crypto/pkcs11/token-client.js'
import { OperatorError } from '../../../operator-error.js'
import { openInstance } from '../../../wiring/instance.js'
import { openToken } from '../../../wiring/key-manager/token.js'

export const labelOption = new Option(
  '--label <label>',
  'of the key (default: key_manager.crypto.pkcs11.master_key_label)',
)

type Token = { client: TokenClient; origin: string; label: string }

/** Runs `work` with the configured token and closes it. @param label of the master key; the configured one when undefined */
export async function withToken(
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
