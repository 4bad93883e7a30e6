import { readFile } from 'node:fs/promises'

/** The kernel's pressure stall information for processors; missing where the kernel is built without it. */
const FILE = '/proc/pressure/cpu'
/** Percent of the last ten seconds in which something waited. */
const MUCH = 40
/** The kernel updates its averages every two seconds. */
const FRESH_MS = 1000

let isMuch = false
let readAt = Number.NEGATIVE_INFINITY

/** Whether processors are short on this host, from a recent reading. */
export function areProcessorsShort(): boolean {
  const now = performance.now()
  if (now - readAt >= FRESH_MS) {
    readAt = now
    void readPressure()
  }
  return isMuch
}

async function readPressure(): Promise<void> {
  const account = await readFile(FILE, 'utf8').catch(() => '')
  isMuch = waitedPercent(account) >= MUCH
}

/** The first average of `some avg10=7.68 avg60=60.97 ...`; 0 for anything else. Pure. */
export const waitedPercent = (account: string): number => Number(/^some avg10=(\d+\.\d+) /.exec(account)?.[1] ?? 0)
