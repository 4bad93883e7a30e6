import { readFile } from 'node:fs/promises'

/** The kernel's pressure stall information for processors; missing in a kernel built without it. */
const FILE = '/proc/pressure/cpu'
/** Percent of the last ten seconds in which a task waited for a processor. */
const SHORT_PERCENT = 40
/** The kernel updates its averages every two seconds. */
const FRESH_MS = 1000

let isShort = false
let readAt = Number.NEGATIVE_INFINITY

/** Whether processors are short on this host, from a recent reading. */
export function areProcessorsShort(): boolean {
  const now = performance.now()
  if (now - readAt >= FRESH_MS) {
    readAt = now
    void readPressure()
  }
  return isShort
}

async function readPressure(): Promise<void> {
  const text = await readFile(FILE, 'utf8').catch(() => '')
  isShort = waitedPercent(text) >= SHORT_PERCENT
}

/** The first average of `some avg10=7.68 avg60=60.97 ...`; 0 for anything else. Pure. */
export const waitedPercent = (text: string): number => Number(/^some avg10=(\d+\.\d+) /.exec(text)?.[1] ?? 0)
