import type { Report } from '../../../key-manager/rotation/progress.js'
import { print } from '../../terminal.js'

const LINE_INTERVAL_MS = 1000

/** Prints progress at most once per second. @param what plural noun for the counted items */
export function progressLines(what: string): { report: Report; seconds: () => number } {
  const started = performance.now()
  let printed = started
  const seconds = () => (performance.now() - started) / 1000
  return {
    seconds,
    report: ({ done, total }) => {
      if (performance.now() - printed < LINE_INTERVAL_MS) return
      printed = performance.now()
      print(`${done} of ${Math.max(done, total)} ${what}, ${Math.round(done / seconds())} per second`)
    },
  }
}
