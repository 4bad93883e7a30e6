import { readFile } from 'node:fs/promises'

/** The kernel's word for how long something waited for a processor of this host; kernels that keep no such account do not have it. */
const FILE = '/proc/pressure/cpu'
/** Percent of the last ten seconds. */
const MUCH = 40
/** The kernel counts anew every two seconds. */
const FRESH_MS = 1000

let isMuch = false
let lookedAt = Number.NEGATIVE_INFINITY

/** Whether processors are short on this host, by a look of a moment ago. */
export function areProcessorsShort(): boolean {
  const now = performance.now()
  if (now - lookedAt >= FRESH_MS) {
    lookedAt = now
    void look()
  }
  return isMuch
}

async function look(): Promise<void> {
  const account = await readFile(FILE, 'utf8').catch(() => '')
  isMuch = waitedPercent(account) >= MUCH
}

/** Of an account such as `some avg10=7.68 avg60=60.97 ...`; 0 for anything else. Pure. */
export const waitedPercent = (account: string): number => Number(/^some avg10=(\d+\.\d+) /.exec(account)?.[1] ?? 0)
