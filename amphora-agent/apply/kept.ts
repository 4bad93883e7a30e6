import { mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { dirname } from 'node:path'
import { type Desired, desiredSchema } from '../protocol/desired.js'
import { KEPT_STATE_FILE } from '../protocol/paths.js'

/** Keeps the state in effect for the time after a reboot. It holds no key: those are read again. */
export function keepState(desired: Desired): void {
  mkdirSync(dirname(KEPT_STATE_FILE), { recursive: true, mode: 0o700 })
  writeFileSync(`${KEPT_STATE_FILE}.new`, JSON.stringify(desired), { mode: 0o600 })
  renameSync(`${KEPT_STATE_FILE}.new`, KEPT_STATE_FILE)
}

/** The state that was in effect before a reboot; null if there is none that this agent understands. */
export function keptState(): Desired | null {
  try {
    return desiredSchema.parse(JSON.parse(readFileSync(KEPT_STATE_FILE, 'utf8')))
  } catch {
    return null
  }
}

/** The amphora serves nothing any more. */
export const forgetState = (): void => rmSync(KEPT_STATE_FILE, { force: true })
