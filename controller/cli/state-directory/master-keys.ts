import type { Configuration } from '../../config/schema.js'
import { ConfigurationError } from '../../options/configuration-error.js'
import { originOf, readSecret, type SecretSource, sourceOf } from '../../options/secret-source.js'
import { writePrivateFile } from '../../process/private-file.js'
import type { KeyFiles } from './keys.js'

const WHAT = 'the key manager’s master key'

/** Where the master keys of the back end `simple` come from. */
export function masterKeySourceOf({ key_manager: { crypto } }: Configuration, files: KeyFiles): SecretSource {
  if (files.keyManagerMaster !== null) return { kind: 'file', path: files.keyManagerMaster }
  const { master_key_variable: variable, master_key_command: command } = crypto.simple
  const source = sourceOf({ variable, command })
  if (source === null) throw new ConfigurationError('The back end simple is not in use.')
  return source
}

/**
 * The master keys, 32 bytes each, the newest first; at least one.
 * @throws ConfigurationError
 */
export async function readMasterKeys(source: SecretSource): Promise<Buffer[]> {
  const words = (await readSecret(source, WHAT)).split(/[\s,]+/).filter(word => word !== '')
  if (words.length === 0 || !words.every(word => /^[0-9a-fA-F]{64}$/.test(word))) {
    throw new ConfigurationError(
      `${originOf(source)} (${WHAT}) must hold keys of 64 hexadecimal digits each: the newest, then former ones.`,
    )
  }
  return words.map(word => Buffer.from(word, 'hex'))
}

/** Writes all keys anew, the newest first, whole or not at all. */
export function writeMasterKeys(path: string, keys: readonly Buffer[]): void {
  writePrivateFile(path, keys.map(key => `${key.toString('hex')}\n`).join(''))
}
