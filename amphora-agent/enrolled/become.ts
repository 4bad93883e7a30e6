import { closeSync, fsyncSync, openSync, readFileSync, renameSync, writeSync } from 'node:fs'
import { type Boot, bootSchema } from '../protocol/boot.js'
import { type AgentError, AnswerError } from '../protocol/messages.js'
import { NEXT_BOOT_FILE } from '../protocol/paths.js'

/** Enough for the answer to leave before everything here ends. */
const ANSWER_MS = 100

/** Process 1 of the machine; the kernel ends all others with it. */
const INIT = 1

/**
 * Makes this enrolled host another amphora, or none: stores what it is to become and ends the machine. The host then wipes
 * it and starts it anew. After a kill at any instant, the host is what it was or what it is to become.
 * @throws AnswerError `malformed` for a machine that is no enrolled host, or is another one; `stale-fence` for a request
 *   that came too late
 */
export function become(now: Boot, next: Boot): void {
  if (now.host === undefined || now.host.id !== next.host?.id) {
    const message = now.host === undefined ? 'this is no enrolled host' : `this is the enrolled host ${now.host.id}`
    throw refusal('malformed', message)
  }
  const latest = stored() ?? now
  const [before, turn] = [latest.host?.turn ?? 0, next.host.turn]
  if (turn < before) throw refusal('stale-fence', `turn ${turn} is over, ${before} has begun`)
  if (turn === before && latest === now) return
  const file = openSync(`${NEXT_BOOT_FILE}.new`, 'w', 0o600)
  writeSync(file, JSON.stringify(next))
  fsyncSync(file)
  closeSync(file)
  renameSync(`${NEXT_BOOT_FILE}.new`, NEXT_BOOT_FILE)
  setTimeout(() => process.kill(INIT, 'SIGTERM'), ANSWER_MS)
}

/** What an earlier request has stored that is not in effect yet. */
function stored(): Boot | null {
  try {
    return bootSchema.parse(JSON.parse(readFileSync(NEXT_BOOT_FILE, 'utf8')))
  } catch {
    return null
  }
}

const refusal = (code: AgentError['code'], message: string): AnswerError =>
  new AnswerError({ code, message, details: '' })
