/** Decides which logins run before everything else on the processors. Lanes are those of the login queue. */
export type Precedence = {
  /** Registers a login. @returns `goesFirst` decides when its turn comes; `leave` ends the turn and the registration */
  arrive: (lane: string) => { goesFirst: () => boolean; leave: () => void }
}

/**
 * One login per lane goes first at a time and, while other lanes are present, not two of one lane in a row.
 * @param processors that compute logins; half of them, or a single one, is left to everything else
 */
export function createPrecedence(processors: number): Precedence {
  const atOnce = Math.floor(processors / 2)
  const present = new Map<string, number>()
  const first = new Set<string>()
  let latest: string | null = null

  const mayGoFirst = (lane: string) =>
    first.size < atOnce && !first.has(lane) && (latest !== lane || present.size === 1)

  return {
    arrive: lane => {
      present.set(lane, (present.get(lane) ?? 0) + 1)
      let isFirst = false
      return {
        goesFirst: () => {
          isFirst = mayGoFirst(lane)
          if (isFirst) {
            first.add(lane)
            latest = lane
          }
          return isFirst
        },
        leave: () => {
          const others = (present.get(lane) ?? 0) - 1
          if (others > 0) present.set(lane, others)
          else present.delete(lane)
          if (isFirst) first.delete(lane)
        },
      }
    },
  }
}
