import { readFileSync, renameSync, rmSync } from 'node:fs'
import { INIT_REPAIRS_FILE } from '../protocol/paths.js'
import { type Repair, repairText } from '../protocol/repairs.js'
import type { Log } from './log.js'

/** The latest repairs, for the reports. Those before this start of the agent have been reported. */
export type Repairs = {
  note: (text: string) => void
  /** Connections were closed because a limit was reached. */
  noteClosed: (text: string) => void
  /** HAProxy had, or would have read, other certificates than it should. */
  noteCertificate: (text: string) => void
  latest: () => Repair[]
}

/** Repairs to keep reporting. */
const MAX_REPAIRS = 16
/** Repairs by init to pass on at a time. */
const MAX_INIT_REPAIRS = 8
/** Each repair is reported repeatedly for this long, since datagrams may be lost for minutes. */
const REPORT_FOR_MS = 900_000

/** @param alarms counts the certificates that were taken back */
export function createRepairs(log: Log, alarms: { takenBack: number }): Repairs {
  let repairs: Repair[] = []
  const remember = (kind: Repair['kind']) => (text: string) => {
    log.warn(`${kind}: ${text}`)
    const atMs = Math.max(Date.now(), (repairs.at(-1)?.atMs ?? 0) + 1)
    repairs = [...repairs, { kind, atMs, text: repairText(text) }].slice(-MAX_REPAIRS)
  }
  return {
    note: remember('repaired'),
    noteClosed: remember('closed'),
    noteCertificate: text => {
      alarms.takenBack += 1
      remember('certificate')(text)
    },
    latest: () => repairs.filter(({ atMs }) => Date.now() - atMs < REPORT_FOR_MS),
  }
}

/** Notes what the machine's init has repaired since the last call. */
export function noteInitRepairs(repairs: Repairs): void {
  const taken = `${INIT_REPAIRS_FILE}.told`
  try {
    renameSync(INIT_REPAIRS_FILE, taken)
  } catch {
    // Init has repaired nothing.
    return
  }
  const lines = readFileSync(taken, 'utf8').split('\n').filter(Boolean)
  rmSync(taken)
  for (const line of lines.slice(-MAX_INIT_REPAIRS)) repairs.note(line)
}
