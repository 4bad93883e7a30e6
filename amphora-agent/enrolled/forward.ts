import { closeSync, fsyncSync, openSync, renameSync, writeSync } from 'node:fs'
import type { Boot } from '../protocol/boot.js'
import { type Forwarding, forwarderLines } from '../protocol/forwarding.js'
import { AnswerError } from '../protocol/messages.js'
import { FORWARDING_FILE } from '../protocol/paths.js'

/**
 * Stores where the forwarder of this enrolled host leads. It reads the file again by itself.
 * @throws AnswerError `malformed` for a machine that is no enrolled host
 */
export function forward({ host }: Boot, forwarding: Forwarding): void {
  if (host === undefined) {
    throw new AnswerError({ code: 'malformed', message: 'this is no enrolled host', details: '' })
  }
  const file = openSync(`${FORWARDING_FILE}.new`, 'w', 0o644)
  writeSync(file, forwarderLines(forwarding))
  fsyncSync(file)
  closeSync(file)
  renameSync(`${FORWARDING_FILE}.new`, FORWARDING_FILE)
}
