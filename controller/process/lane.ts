/** A request that waits for a turn. One of the two functions is called, once. */
export type Waiting = { go: () => void; refuse: () => void }

/** A lane of a fair queue: its running turns and its backlog, in which its members take turns. */
export class Lane {
  /** Number of running turns. */
  running = 0
  /** While true, no turn begins. */
  isResting = false
  /** When the present backlog began; meaningless without a backlog. */
  waitedSince = 0
  #size = 0
  // The members in the order of their turns.
  readonly #waiting = new Map<string, Waiting[]>()

  /** Length of the backlog. */
  get size(): number {
    return this.#size
  }

  get isEmpty(): boolean {
    return this.running === 0 && this.#size === 0 && !this.isResting
  }

  add(member: string, one: Waiting, now: number): void {
    if (this.#size === 0) this.waitedSince = now
    this.#size++
    this.#waiting.set(member, [...(this.#waiting.get(member) ?? []), one])
  }

  remove(member: string, one: Waiting): void {
    const others = (this.#waiting.get(member) ?? []).filter(other => other !== one)
    if (others.length === 0) this.#waiting.delete(member)
    else this.#waiting.set(member, others)
    this.#size--
  }

  /** @throws Error when the backlog is empty */
  takeOldest(): Waiting {
    const [[member, waiting] = ['', []]] = this.#waiting
    const oldest = waiting.shift()
    if (oldest === undefined) throw new Error('The backlog of a lane is empty although its size is not.')
    this.#waiting.delete(member)
    if (waiting.length > 0) this.#waiting.set(member, waiting)
    this.#size--
    return oldest
  }

  /**
   * Removes the newest request of the member with the longest backlog.
   * @param wanting the member that needs room; null when it is in another lane
   * @returns null when that member's backlog would then be as long
   */
  takeNewestOfMost(wanting: string | null): Waiting | null {
    const [member, waiting] = [...this.#waiting].reduce((most, each) => (each[1].length > most[1].length ? each : most))
    if (wanting !== null && (this.#waiting.get(wanting)?.length ?? 0) + 1 >= waiting.length) return null
    const newest = waiting.at(-1)
    if (newest === undefined) return null
    this.remove(member, newest)
    return newest
  }
}
