import { randomBytes } from 'node:crypto'
import { readFileSync, renameSync, writeFileSync } from 'node:fs'
import * as z from 'zod'
import { STATE_DIRECTORY } from '../protocol/paths.js'
import type { CounterState } from './counters.js'

const FILE = `${STATE_DIRECTORY}/counters.json`

const count = z.int().nonnegative()
const counters = z.strictObject({
  bytesIn: count,
  bytesOut: count,
  activeConnections: count,
  totalConnections: count,
  requestErrors: count,
})
const stateSchema = z.strictObject({
  epoch: z.string().regex(/^[0-9a-f]{16}$/),
  ended: z.record(z.string(), counters),
  workers: z.record(z.string(), z.record(z.string(), counters)),
})

/** Loads the counters of the previous agent of this machine, or starts a new epoch. */
export function loadCounters(): CounterState {
  try {
    return stateSchema.parse(JSON.parse(readFileSync(FILE, 'utf8')))
  } catch {
    return { epoch: randomBytes(8).toString('hex'), ended: {}, workers: {} }
  }
}

export function saveCounters(state: CounterState): void {
  writeFileSync(`${FILE}.new`, JSON.stringify(state))
  renameSync(`${FILE}.new`, FILE)
}
