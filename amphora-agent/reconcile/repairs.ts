import type { Log } from '../log/log.js'
import { type Repair, repairText } from '../protocol/repairs.js'

/** The latest repairs, for the reports; what happened before this start of the agent has been told. */
export type Repairs = {
  note: (text: string) => void
  latest: () => Repair[]
}

/** Told again and again, since datagrams may be lost for minutes; after that there are newer ones, or it is in the history. */
const MOST = 16
const TOLD_FOR_MS = 900_000

export function createRepairs(log: Log): Repairs {
  let repairs: Repair[] = []
  return {
    note: text => {
      log.warn(`repaired: ${text}`)
      const atMs = Math.max(Date.now(), (repairs.at(-1)?.atMs ?? 0) + 1)
      repairs = [...repairs, { atMs, text: repairText(text) }].slice(-MOST)
    },
    latest: () => repairs.filter(({ atMs }) => Date.now() - atMs < TOLD_FOR_MS),
  }
}
