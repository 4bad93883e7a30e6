import type { Log } from '../log/log.js'
import { type Repair, repairText } from '../protocol/repairs.js'

/** The latest repairs, for the reports; what happened before this start of the agent has been told. */
export type Repairs = {
  note: (text: string) => void
  /** Connections were closed because a limit was reached. */
  noteClosed: (text: string) => void
  latest: () => Repair[]
}

/** Told again and again, since datagrams may be lost for minutes; after that there are newer ones, or it is in the history. */
const MOST = 16
const TOLD_FOR_MS = 900_000

export function createRepairs(log: Log): Repairs {
  let repairs: Repair[] = []
  const remember = (kind: Repair['kind']) => (text: string) => {
    log.warn(`${kind}: ${text}`)
    const atMs = Math.max(Date.now(), (repairs.at(-1)?.atMs ?? 0) + 1)
    repairs = [...repairs, { kind, atMs, text: repairText(text) }].slice(-MOST)
  }
  return {
    note: remember('repaired'),
    noteClosed: remember('closed'),
    latest: () => repairs.filter(({ atMs }) => Date.now() - atMs < TOLD_FOR_MS),
  }
}
