import { readFileSync } from 'node:fs'
import { createSecureContext } from 'node:tls'
import { ConfigurationError } from './configuration-error.js'

/**
 * Reads a PEM file that a setting names.
 * @param kind whether it must hold certificates or a private key
 * @throws ConfigurationError when it cannot be read or holds something else
 */
export function readPem(path: string, setting: string, kind: 'cert' | 'key' = 'cert'): string {
  let text: string
  try {
    text = readFileSync(path, 'utf8')
  } catch (error) {
    throw new ConfigurationError(`${path} (${setting}) cannot be read (${(error as NodeJS.ErrnoException).code}).`)
  }
  try {
    createSecureContext({ [kind]: text })
    return text
  } catch {
    const content = kind === 'cert' ? 'certificates' : 'a private key'
    throw new ConfigurationError(`${path} (${setting}) must be a PEM file with ${content}.`)
  }
}
