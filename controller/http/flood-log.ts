import type { Logger } from '../log/log.js'

const PERIOD_MILLISECONDS = 60_000

/** Floods that are logged separately; further ones share a line. */
const MAX_FLOODS = 1000

/**
 * @returns a function to call for each refusal with the name of its flood. Logs the first refusal at once and then, as
 *   long as the flood lasts, one line per minute with the number of refusals
 */
export function createFloodLog(log: Logger, fields: object): (flood: string, message: string) => void {
  const counts = new Map<string, number>()

  const begin = (flood: string) => {
    counts.set(flood, 0)
    const count = () => {
      const more = counts.get(flood) ?? 0
      counts.delete(flood)
      if (more === 0) return
      log.warn({ ...fields, flood, more }, `${flood}: refused ${more} more within a minute`)
      begin(flood)
    }
    setTimeout(count, PERIOD_MILLISECONDS).unref()
  }

  return (name, message) => {
    const flood = counts.has(name) || counts.size < MAX_FLOODS ? name : 'others'
    const more = counts.get(flood)
    if (more !== undefined) {
      counts.set(flood, more + 1)
      return
    }
    begin(flood)
    log.warn({ ...fields, flood }, message)
  }
}
