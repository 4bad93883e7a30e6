import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { z } from 'zod'
import { handoverSchema } from '../protocol/handover.js'
import { STATE_DIRECTORY } from '../protocol/paths.js'

const FILE = `${STATE_DIRECTORY}/handover.json`

/** Times are milliseconds of the machine's monotonic clock, which goes on when the agent starts anew. */
const stateSchema = z.strictObject({
  handover: z.strictObject({ ...handoverSchema.shape, endsAtMs: z.number() }).nullable(),
  drain: z
    .strictObject({
      endsAtMs: z.number(),
      ended: z.boolean(),
      /** What was closed or lost so far. */
      cut: z.int(),
      /** What each worker was last known to have under way; an older agent has stored none. */
      underWay: z.array(z.strictObject({ pid: z.int(), count: z.int() })).default([]),
    })
    .nullable(),
})

type State = z.output<typeof stateSchema>
export type StoredHandover = NonNullable<State['handover']>
export type StoredDrain = NonNullable<State['drain']>

/** What this amphora hands over and whether it drains, in a file, so that a kill at any instant costs no connection. */
export class HandoverStore {
  #state = readState()

  get handover(): StoredHandover | null {
    return this.#state.handover
  }

  get drain(): StoredDrain | null {
    return this.#state.drain
  }

  keep(changes: Partial<State>): void {
    this.#state = { ...this.#state, ...changes }
    mkdirSync(STATE_DIRECTORY, { recursive: true })
    writeFileSync(`${FILE}.new`, JSON.stringify(this.#state), { mode: 0o600 })
    renameSync(`${FILE}.new`, FILE)
  }

  /** An agent that finds no file would serve again, and never end what is set up. */
  restore(): void {
    if (!existsSync(FILE)) this.keep({})
  }
}

function readState(): State {
  try {
    return stateSchema.parse(JSON.parse(readFileSync(FILE, 'utf8')))
  } catch {
    // None yet; or of another version, which knew another way to hand over.
    rmSync(FILE, { force: true })
    return { handover: null, drain: null }
  }
}
