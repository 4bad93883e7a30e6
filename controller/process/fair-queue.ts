import { Lane, type Waiting } from './lane.js'

export type FairQueueOptions = {
  /** Maximum concurrent turns. */
  maxRunning: number
  /** Maximum concurrent turns of one lane, so that other lanes soon get a turn. */
  maxRunningPerLane: number
  /** The same while a request of another lane arrived within the last second; by default `maxRunningPerLane`. */
  maxRunningPerLaneContended?: number
  /**
   * Maximum waiting requests. Beyond it, the longest lane drops its newest, so a lane with few requests always
   * finds room.
   */
  maxWaiting: number
  maxWaitingPerLane: number
  /** Refuses requests that wait longer; by default none. */
  maxWaitMilliseconds?: number
  /**
   * How long a lane with a backlog rests after a turn, in milliseconds; 0 by default.
   * @param turn duration of the turn
   * @param floods whether the lane has had a backlog for a second and another lane's request arrived within the last
   *   second
   */
  restMilliseconds?: (turn: number, floods: boolean) => number
  /** The error for a request that finds no room or waits too long. */
  refusal: (lane: string, reason: 'many wait already' | 'the wait got long') => Error
  /** A monotonic clock in milliseconds. */
  now?: () => number
}

const CONTENTION_MS = 1000
const FLOOD_MS = 1000

/** A request's lane, and its member in that lane. Lanes take turns; within a lane, its members do. */
export type Place = readonly [lane: string, member: string]

export type FairQueue = {
  /** Waits for a turn. @returns a function that ends the turn. @throws the refusal when there is no room to wait */
  enter: (place: Place) => Promise<() => void>
}

/** A queue in which a lane waits for at most one turn of every other lane, however long their backlogs are. */
export function createFairQueue(options: FairQueueOptions): FairQueue {
  const queue = new Queue(options)
  return { enter: place => queue.enter(place) }
}

class Queue {
  readonly #options: FairQueueOptions
  readonly #now: () => number
  readonly #arrivals: Arrivals
  // In the order of their turns.
  readonly #lanes = new Map<string, Lane>()
  #running = 0
  #waiting = 0

  constructor(options: FairQueueOptions) {
    this.#options = options
    this.#now = options.now ?? (() => performance.now())
    this.#arrivals = new Arrivals(this.#now)
  }

  async enter([name, member]: Place): Promise<() => void> {
    this.#arrivals.note(name)
    const lane = this.#lanes.get(name) ?? new Lane()
    if (this.#running < this.#options.maxRunning && lane.size === 0 && this.#mayBegin(name, lane)) {
      this.#begin(name, lane)
      return this.#leave(name, lane)
    }
    if (!this.#makeRoom(name, lane, member)) throw this.#options.refusal(name, 'many wait already')
    this.#lanes.set(name, lane)
    await this.#wait(name, lane, member)
    return this.#leave(name, lane)
  }

  #mayBegin(name: string, lane: Lane): boolean {
    const { maxRunningPerLane, maxRunningPerLaneContended = maxRunningPerLane } = this.#options
    return (
      !lane.isResting &&
      lane.running < (this.#arrivals.isContended(name) ? maxRunningPerLaneContended : maxRunningPerLane)
    )
  }

  /** Begins a turn of a lane and moves the lane behind all others. */
  #begin(name: string, lane: Lane): void {
    this.#lanes.delete(name)
    this.#lanes.set(name, lane)
    this.#running++
    lane.running++
  }

  /** @returns a function that ends the turn that begins now */
  #leave(name: string, lane: Lane): () => void {
    const since = this.#now()
    let hasLeft = false
    return () => {
      if (hasLeft) return
      hasLeft = true
      this.#running--
      lane.running--
      if (lane.size > 0) this.#rest(name, lane, this.#now() - since)
      this.#forgetIfEmpty(name, lane)
      this.#startNext()
    }
  }

  #rest(name: string, lane: Lane, turn: number): void {
    const floods = this.#now() - lane.waitedSince >= FLOOD_MS && this.#arrivals.isContended(name)
    const milliseconds = this.#options.restMilliseconds?.(turn, floods) ?? 0
    if (milliseconds <= 0 || lane.isResting) return
    lane.isResting = true
    setTimeout(() => {
      lane.isResting = false
      this.#forgetIfEmpty(name, lane)
      this.#startNext()
    }, milliseconds)
  }

  #startNext(): void {
    while (this.#running < this.#options.maxRunning) {
      const next = [...this.#lanes].find(([name, lane]) => lane.size > 0 && this.#mayBegin(name, lane))
      if (next === undefined) return
      const [name, lane] = next
      this.#begin(name, lane)
      this.#waiting--
      lane.takeOldest().go()
    }
  }

  #wait(name: string, lane: Lane, member: string): Promise<void> {
    const { maxWaitMilliseconds, refusal } = this.#options
    return new Promise((resolve, reject) => {
      const giveUp = () => {
        lane.remove(member, one)
        this.#waiting--
        this.#forgetIfEmpty(name, lane)
        reject(refusal(name, 'the wait got long'))
      }
      const limit = maxWaitMilliseconds === undefined ? undefined : setTimeout(giveUp, maxWaitMilliseconds)
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
      lane.add(member, one, this.#now())
      this.#waiting++
    })
  }

  /**
   * Makes room for one request, if necessary by refusing another.
   * @returns false when the new request must be refused
   */
  #makeRoom(name: string, lane: Lane, member: string): boolean {
    const { maxWaiting, maxWaitingPerLane } = this.#options
    if (lane.size >= maxWaitingPerLane) return this.#dropNewest(name, lane, member)
    if (this.#waiting < maxWaiting) return true
    const [longestName, longest] = [...this.#lanes].reduce((most, each) => (each[1].size > most[1].size ? each : most))
    return longest === lane || longest.size <= lane.size + 1
      ? lane.size > 0 && this.#dropNewest(name, lane, member)
      : this.#dropNewest(longestName, longest, null)
  }

  #dropNewest(name: string, lane: Lane, wanting: string | null): boolean {
    const newest = lane.takeNewestOfMost(wanting)
    if (newest === null) return false
    this.#waiting--
    this.#forgetIfEmpty(name, lane)
    newest.refuse()
    return true
  }

  #forgetIfEmpty(name: string, lane: Lane): void {
    if (lane.isEmpty) this.#lanes.delete(name)
  }
}

/** Remembers the latest arrivals. A lane is contended if another lane's request arrived within the last second. */
class Arrivals {
  readonly #now: () => number
  #latest = { name: '', at: Number.NEGATIVE_INFINITY }
  /** The latest arrival in a lane other than that of #latest. */
  #previous = this.#latest

  constructor(now: () => number) {
    this.#now = now
  }

  note(name: string): void {
    if (this.#latest.name !== name) this.#previous = this.#latest
    this.#latest = { name, at: this.#now() }
  }

  isContended(name: string): boolean {
    return this.#now() - (this.#latest.name === name ? this.#previous : this.#latest).at < CONTENTION_MS
  }
}
