import { ConfigurationError } from '../../../options/configuration-error.js'
import { readSecret, sourceOf } from '../../../options/secret-source.js'
import type { CryptoContext } from '../kind.js'
import type { Pkcs11Settings } from './options.js'
import { createTokenClient, type TokenClient } from './token-client.js'

/**
 * A client of the configured PKCS#11 token; does not contact the token yet.
 * @throws ConfigurationError if a setting or the PIN is missing
 */
export async function openToken(
  pkcs11: Pkcs11Settings,
  { keyCacheMilliseconds }: Pick<CryptoContext, 'keyCacheMilliseconds'>,
): Promise<{
  client: TokenClient
  /** For messages. */
  origin: string
}> {
  const { library_path: libraryPath, pin_file: file, pin_variable: variable, pin_command: command } = pkcs11
  if (libraryPath === undefined) {
    throw new ConfigurationError(
      'key_manager.crypto.pkcs11.library_path is not set. Set it to the PKCS#11 library of the token, such as /usr/lib/softhsm/libsofthsm2.so.',
    )
  }
  const source = sourceOf({ file, variable, command })
  if (source === null) {
    throw new ConfigurationError(
      'The PIN of the token is not set: set pin_file, pin_variable or pin_command in key_manager.crypto.pkcs11.',
    )
  }
  const pin = (await readSecret(source, 'the PIN of the token')).trim()
  const client = createTokenClient({
    settings: {
      libraryPath,
      serialNumber: pkcs11.token_serial_number ?? null,
      labels: pkcs11.token_labels,
      slotId: pkcs11.slot_id ?? null,
      pin,
      wrapMechanism: pkcs11.key_wrap_mechanism,
      keyCacheLimit: pkcs11.key_cache_limit,
      keyCacheMilliseconds,
    },
    callMilliseconds: pkcs11.call_timeout * 1000,
    queueLimit: pkcs11.queue_limit,
  })
  const token = pkcs11.token_serial_number ?? (pkcs11.token_labels.join(', ') || (pkcs11.slot_id ?? 'the only one'))
  return { client, origin: `the PKCS#11 token (${token}) of ${libraryPath}` }
}
