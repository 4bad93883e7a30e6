import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import * as z from 'zod'
import { handoverSchema } from '../protocol/handover.js'
import { STATE_DIRECTORY } from '../protocol/paths.js'

const FILE = `${STATE_DIRECTORY}/handover.json`

/** Times are milliseconds of the machine's monotonic clock, which continues when the agent restarts. */
const stateSchema = z.strictObject({
  handover: z.strictObject({ ...handoverSchema.shape, endsAtMs: z.number() }).nullable(),
  drain: z
    .strictObject({
      /** States stored by an older agent lack it. */
      beganAtMs: z.number().default(0),
      endsAtMs: z.number(),
      ended: z.boolean(),
      /** Requests and connections closed or lost so far. */
      cut: z.int(),
      /** The last count of open requests and connections of each worker. States stored by an older agent lack it. */
      underWay: z.array(z.strictObject({ pid: z.int(), count: z.int() })).default([]),
    })
    .nullable(),
})

type State = z.output<typeof stateSchema>
export type StoredHandover = NonNullable<State['handover']>
export type StoredDrain = NonNullable<State['drain']>

/** This amphora's handover and drain, in a file, so that a kill at any instant costs no connection. */
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

  /** Rewrites a missing file: without it, the next agent would serve again, and never remove the handover. */
  restore(): void {
    if (!existsSync(FILE)) this.keep({})
  }
}

function readState(): State {
  try {
    return stateSchema.parse(JSON.parse(readFileSync(FILE, 'utf8')))
  } catch {
    // There is no file yet, or it is from an agent version with another kind of handover.
    rmSync(FILE, { force: true })
    return { handover: null, drain: null }
  }
}
