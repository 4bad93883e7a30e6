const INTERVAL_MS = 30_000

/**
 * Reports the steps of a start: each as it begins, and at intervals that it goes on. A slow start must not look like one
 * that hangs.
 */
export function createSteps(report: (line: string) => void, intervalMs = INTERVAL_MS) {
  let timer: NodeJS.Timeout | undefined
  const end = () => clearInterval(timer)
  const begin = (step: string) => {
    end()
    const begun = performance.now()
    report(step)
    const repeat = () => report(`${step}: ${Math.round((performance.now() - begun) / 1000)} s so far`)
    timer = setInterval(repeat, intervalMs)
  }
  return { begin, end }
}
