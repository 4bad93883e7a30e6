import { readFileSync, renameSync, writeFileSync } from 'node:fs'
import * as z from 'zod'
import { CHECK_STATUSES } from '../../protocol/checks.js'
import { STATE_DIRECTORY } from '../../protocol/paths.js'

const FILE = `${STATE_DIRECTORY}/member-states.json`

const stateSchema = z.object({
  verdict: z.enum(['up', 'down']),
  /** Why the last probe failed, of a member that is down; null if that is unknown. */
  failed: z.object({ status: z.enum(CHECK_STATUSES), code: z.number(), words: z.string() }).nullable(),
})

export type KeptState = z.output<typeof stateSchema>

/** Writes the states for the next agent, by what is probed. */
export function saveStates(states: ReadonlyMap<string, KeptState>): void {
  writeFileSync(`${FILE}.new`, JSON.stringify([...states]), { mode: 0o600 })
  renameSync(`${FILE}.new`, FILE)
}

/** @returns none if there are no states that this agent understands */
export function loadStates(): ReadonlyMap<string, KeptState> {
  try {
    return new Map(z.array(z.tuple([z.string(), stateSchema])).parse(JSON.parse(readFileSync(FILE, 'utf8'))))
  } catch {
    return new Map()
  }
}
