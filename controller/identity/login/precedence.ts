/** Which logins go before everything else on the processors. A lane is whom a login counts for, as in the queue that it waits in. */
export type Precedence = {
  /** Somebody of a lane has come. @returns what asks whether it goes first, when its turn is there, and what ends that and its stay */
  arrive: (lane: string) => { goesFirst: () => boolean; leave: () => void }
}

/**
 * One of a lane goes first at a time, and while others are there, not two of one lane in a row.
 * @param processors on which logins are computed: half of them are left to everything else, and so is a single one
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
