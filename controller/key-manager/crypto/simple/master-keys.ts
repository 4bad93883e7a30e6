import { join } from 'node:path'
import { ConfigurationError } from '../../../options/configuration-error.js'
import { originOf, readSecret, type SecretSource, sourceOf } from '../../../options/secret-source.js'
import { writePrivateFile } from '../../../process/private-file.js'
import type { SimpleSettings } from './options.js'

const WHAT = 'the key manager’s master key'

const whatOf = ({ kind }: SecretSource): string =>
  kind === 'file' ? `${WHAT}, which the first \`krater up\` or \`krater db migrate\` generates` : WHAT

/** Where the master keys come from; by default a file below the state directory. */
export function masterKeySource(
  { master_key_file, master_key_variable: variable, master_key_command: command }: SimpleSettings,
  stateDirectory: string,
): SecretSource {
  const file = master_key_file ?? join(stateDirectory, 'keys/key-manager-master')
  return sourceOf({ variable, command }) ?? { kind: 'file', path: file }
}

/**
 * At least one master key of 32 bytes, the newest first.
 * @throws ConfigurationError
 */
export async function readMasterKeys(source: SecretSource): Promise<Buffer[]> {
  const words = (await readSecret(source, whatOf(source))).split(/[\s,]+/).filter(word => word !== '')
  if (words.length === 0 || !words.every(word => /^[0-9a-fA-F]{64}$/.test(word))) {
    throw new ConfigurationError(
      `${originOf(source)} (${WHAT}) must hold keys of 64 hexadecimal digits each, the newest first.`,
    )
  }
  return words.map(word => Buffer.from(word, 'hex'))
}

/** Atomically replaces the file. @param keys the newest first */
export function writeMasterKeys(path: string, keys: readonly Buffer[]): void {
  writePrivateFile(path, keys.map(key => `${key.toString('hex')}\n`).join(''))
}
