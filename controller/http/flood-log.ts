import type { Logger } from '../log/log.js'

const PERIOD_MILLISECONDS = 60_000

/** Floods that are told apart; what is more goes into one line. */
const MOST_FLOODS = 1000

/**
 * @returns a function to call for each refusal of a flood, by the flood's name: the first is logged at once, those of the following minute as one
 *   line with their number, and so on while it lasts
 */
export function createFloodLog(log: Logger, fields: object): (flood: string, message: string) => void {
  const counts = new Map<string, number>()

  const begin = (flood: string) => {
    counts.set(flood, 0)
    const count = () => {
      const more = counts.get(flood) ?? 0
      counts.delete(flood)
      if (more === 0) return
      log.warn({ ...fields, flood, more }, `${flood}: ${more} more were refused within a minute`)
      begin(flood)
    }
    setTimeout(count, PERIOD_MILLISECONDS).unref()
  }

  return (name, message) => {
    const flood = counts.has(name) || counts.size < MOST_FLOODS ? name : 'others'
    const more = counts.get(flood)
    if (more !== undefined) {
      counts.set(flood, more + 1)
      return
    }
    begin(flood)
    log.warn({ ...fields, flood }, message)
  }
}
