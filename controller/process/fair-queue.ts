export type FairQueueOptions = {
  /** Most that are in at a time. */
  atOnce: number
  /** Most of these from one lane, so that a turn of another is never far away. */
  atOncePerLane: number
  /** The same while another lane has been there within the last second; as many as ever when absent. */
  atOnceInCompany?: number
  /** Most that wait. Beyond, the longest lane loses its newest: who comes with little always finds room. */
  mostWaiting: number
  mostWaitingPerLane: number
  /** Who has waited so long is refused; without it nobody is. */
  mostWaitMilliseconds?: number
  /**
   * How long a lane in which others wait rests after a turn that took so long, in milliseconds; not at all when absent.
   * @param floods whether somebody has waited in it for a second without a break, and another lane has been there within the last second
   */
  restMilliseconds?: (turn: number, floods: boolean) => number
  /** The error for who finds no room in its lane, or waits too long. */
  refusal: (lane: string, reason: 'many wait already' | 'the wait got long') => Error
  /** Milliseconds of a clock that never goes back. */
  now?: () => number
}

const COMPANY_MS = 1000
const FLOOD_MS = 1000

/** Whom something counts for: the lane, and within it who. Lanes take turns, and within a lane those in it. */
export type Place = readonly [lane: string, who: string]

export type FairQueue = {
  /** Waits for a turn. @returns what ends it; @throws the refusal when there is no room to wait */
  enter: (place: Place) => Promise<() => void>
}

type Waiting = { go: () => void; refuse: () => void }

type Lane = {
  running: number
  size: number
  /** Since when somebody always waits in it, while somebody does. */
  waitedSince: number
  isResting: boolean
  waiting: Map<string, Waiting[]>
}

/** A queue in which nobody waits for more than one turn of each other lane, whatever gathers there. */
export function createFairQueue(options: FairQueueOptions): FairQueue {
  const { atOnce, atOncePerLane, atOnceInCompany = atOncePerLane, mostWaiting, mostWaitingPerLane, refusal } = options
  const { mostWaitMilliseconds, restMilliseconds = () => 0, now = () => performance.now() } = options
  // In the order of their turns.
  const lanes = new Map<string, Lane>()
  let running = 0
  let size = 0
  // The lane that came last, and the one before it.
  let latest = { name: '', at: Number.NEGATIVE_INFINITY }
  let previous = latest

  const noteArrival = (name: string) => {
    if (latest.name !== name) previous = latest
    latest = { name, at: now() }
  }

  const isInCompany = (name: string): boolean => now() - (latest.name === name ? previous : latest).at < COMPANY_MS

  const floods = (name: string, lane: Lane): boolean => now() - lane.waitedSince >= FLOOD_MS && isInCompany(name)

  const hasRoom = (name: string, lane: Lane): boolean =>
    !lane.isResting && lane.running < (isInCompany(name) ? atOnceInCompany : atOncePerLane)

  const leave = (name: string, lane: Lane): (() => void) => {
    let hasLeft = false
    const since = now()
    return () => {
      if (hasLeft) return
      hasLeft = true
      running--
      lane.running--
      if (lane.size > 0) rest(name, lane, restMilliseconds(now() - since, floods(name, lane)))
      forgetIfEmpty(name, lane)
      letIn()
    }
  }

  const rest = (name: string, lane: Lane, milliseconds: number) => {
    if (milliseconds <= 0 || lane.isResting) return
    lane.isResting = true
    setTimeout(() => {
      lane.isResting = false
      forgetIfEmpty(name, lane)
      letIn()
    }, milliseconds)
  }

  const forgetIfEmpty = (name: string, lane: Lane) => {
    if (lane.running === 0 && lane.size === 0 && !lane.isResting) lanes.delete(name)
  }

  const letIn = () => {
    while (running < atOnce) {
      const next = [...lanes].find(([name, lane]) => lane.size > 0 && hasRoom(name, lane))
      if (next === undefined) return
      const [name, lane] = next
      lanes.delete(name)
      lanes.set(name, lane)
      running++
      lane.running++
      takeOldest(lane).go()
    }
  }

  const takeOldest = (lane: Lane): Waiting => {
    const [[who, waiting] = ['', []]] = lane.waiting
    const oldest = waiting.shift()
    if (oldest === undefined) throw new Error('A lane has nobody where it said that somebody waits.')
    lane.waiting.delete(who)
    if (waiting.length > 0) lane.waiting.set(who, waiting)
    lane.size--
    size--
    return oldest
  }

  /** Makes room in a lane at the cost of whoever has most in it. @returns false when who wants it would then have as much */
  const dropNewest = (name: string, lane: Lane, wanting: string | null): boolean => {
    const [who, waiting] = [...lane.waiting].reduce((most, each) => (each[1].length > most[1].length ? each : most))
    if (wanting !== null && (lane.waiting.get(wanting)?.length ?? 0) + 1 >= waiting.length) return false
    const newest = waiting.at(-1)
    if (newest === undefined) return false
    remove(name, lane, who, newest)
    newest.refuse()
    return true
  }

  const remove = (name: string, lane: Lane, who: string, one: Waiting) => {
    const others = (lane.waiting.get(who) ?? []).filter(other => other !== one)
    if (others.length === 0) lane.waiting.delete(who)
    else lane.waiting.set(who, others)
    lane.size--
    size--
    forgetIfEmpty(name, lane)
  }

  const wait = (name: string, lane: Lane, who: string): Promise<void> =>
    new Promise((resolve, reject) => {
      const giveUp = () => {
        remove(name, lane, who, one)
        reject(refusal(name, 'the wait got long'))
      }
      const limit = mostWaitMilliseconds === undefined ? undefined : setTimeout(giveUp, mostWaitMilliseconds)
      const one: Waiting = {
        go: () => {
          clearTimeout(limit)
          resolve()
        },
        refuse: () => {
          clearTimeout(limit)
          reject(refusal(name, 'many wait already'))
        },
      }
      lane.waiting.set(who, [...(lane.waiting.get(who) ?? []), one])
    })

  const makeRoom = (name: string, lane: Lane, who: string): boolean => {
    if (lane.size >= mostWaitingPerLane) return dropNewest(name, lane, who)
    if (size < mostWaiting) return true
    const [longestName, longest] = [...lanes].reduce((most, each) => (each[1].size > most[1].size ? each : most))
    return longest === lane || longest.size <= lane.size + 1
      ? lane.size > 0 && dropNewest(name, lane, who)
      : dropNewest(longestName, longest, null)
  }

  return {
    enter: async ([name, who]) => {
      noteArrival(name)
      const lane = lanes.get(name) ?? { running: 0, size: 0, waitedSince: 0, isResting: false, waiting: new Map() }
      if (running < atOnce && lane.size === 0 && hasRoom(name, lane)) {
        lanes.delete(name)
        lanes.set(name, lane)
        running++
        lane.running++
        return leave(name, lane)
      }
      if (!makeRoom(name, lane, who)) throw refusal(name, 'many wait already')
      lanes.set(name, lane)
      if (lane.size === 0) lane.waitedSince = now()
      size++
      lane.size++
      await wait(name, lane, who)
      return leave(name, lane)
    },
  }
}
