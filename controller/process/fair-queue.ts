import { Lane, type Waiting } from './lane.js'

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

/** A queue in which nobody waits for more than one turn of each other lane, whatever gathers there. */
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

  async enter([name, who]: Place): Promise<() => void> {
    this.#arrivals.note(name)
    const lane = this.#lanes.get(name) ?? new Lane()
    if (this.#running < this.#options.atOnce && lane.size === 0 && this.#mayBegin(name, lane)) {
      this.#begin(name, lane)
      return this.#leave(name, lane)
    }
    if (!this.#makeRoom(name, lane, who)) throw this.#options.refusal(name, 'many wait already')
    this.#lanes.set(name, lane)
    await this.#wait(name, lane, who)
    return this.#leave(name, lane)
  }

  #mayBegin(name: string, lane: Lane): boolean {
    const { atOncePerLane, atOnceInCompany = atOncePerLane } = this.#options
    return !lane.isResting && lane.running < (this.#arrivals.isInCompany(name) ? atOnceInCompany : atOncePerLane)
  }

  /** A turn of a lane begins: the next ones are those of the others. */
  #begin(name: string, lane: Lane): void {
    this.#lanes.delete(name)
    this.#lanes.set(name, lane)
    this.#running++
    lane.running++
  }

  /** @returns what ends a turn that begins now */
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
      this.#letIn()
    }
  }

  #rest(name: string, lane: Lane, turn: number): void {
    const floods = this.#now() - lane.waitedSince >= FLOOD_MS && this.#arrivals.isInCompany(name)
    const milliseconds = this.#options.restMilliseconds?.(turn, floods) ?? 0
    if (milliseconds <= 0 || lane.isResting) return
    lane.isResting = true
    setTimeout(() => {
      lane.isResting = false
      this.#forgetIfEmpty(name, lane)
      this.#letIn()
    }, milliseconds)
  }

  #letIn(): void {
    while (this.#running < this.#options.atOnce) {
      const next = [...this.#lanes].find(([name, lane]) => lane.size > 0 && this.#mayBegin(name, lane))
      if (next === undefined) return
      const [name, lane] = next
      this.#begin(name, lane)
      this.#waiting--
      lane.takeOldest().go()
    }
  }

  #wait(name: string, lane: Lane, who: string): Promise<void> {
    const { mostWaitMilliseconds, refusal } = this.#options
    return new Promise((resolve, reject) => {
      const giveUp = () => {
        lane.remove(who, one)
        this.#waiting--
        this.#forgetIfEmpty(name, lane)
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
      lane.add(who, one, this.#now())
      this.#waiting++
    })
  }

  /** Makes room for one more, where there is none at the cost of whoever has most. @returns false when there is none for who asks */
  #makeRoom(name: string, lane: Lane, who: string): boolean {
    const { mostWaiting, mostWaitingPerLane } = this.#options
    if (lane.size >= mostWaitingPerLane) return this.#dropNewest(name, lane, who)
    if (this.#waiting < mostWaiting) return true
    const [longestName, longest] = [...this.#lanes].reduce((most, each) => (each[1].size > most[1].size ? each : most))
    return longest === lane || longest.size <= lane.size + 1
      ? lane.size > 0 && this.#dropNewest(name, lane, who)
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

/** Tells whether a lane has company: another came within the last second. */
class Arrivals {
  readonly #now: () => number
  #latest = { name: '', at: Number.NEGATIVE_INFINITY }
  /** The last of another lane than the latest. */
  #previous = this.#latest

  constructor(now: () => number) {
    this.#now = now
  }

  note(name: string): void {
    if (this.#latest.name !== name) this.#previous = this.#latest
    this.#latest = { name, at: this.#now() }
  }

  isInCompany(name: string): boolean {
    return this.#now() - (this.#latest.name === name ? this.#previous : this.#latest).at < COMPANY_MS
  }
}
