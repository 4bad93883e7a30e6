/** Somebody who waits for a turn: one of the two is called, once. */
export type Waiting = { go: () => void; refuse: () => void }

/** Those who have a turn and those who wait for one in a lane of a fair queue. Who waits takes turns with others of the lane. */
export class Lane {
  /** Turns under way. */
  running = 0
  /** No turn begins while it rests. */
  isResting = false
  /** Since when somebody has waited without a break, while somebody waits. */
  waitedSince = 0
  #size = 0
  // In the order of their turns.
  readonly #waiting = new Map<string, Waiting[]>()

  /** How many wait. */
  get size(): number {
    return this.#size
  }

  get isEmpty(): boolean {
    return this.running === 0 && this.#size === 0 && !this.isResting
  }

  add(who: string, one: Waiting, now: number): void {
    if (this.#size === 0) this.waitedSince = now
    this.#size++
    this.#waiting.set(who, [...(this.#waiting.get(who) ?? []), one])
  }

  remove(who: string, one: Waiting): void {
    const others = (this.#waiting.get(who) ?? []).filter(other => other !== one)
    if (others.length === 0) this.#waiting.delete(who)
    else this.#waiting.set(who, others)
    this.#size--
  }

  /** @throws Error when nobody waits */
  takeOldest(): Waiting {
    const [[who, waiting] = ['', []]] = this.#waiting
    const oldest = waiting.shift()
    if (oldest === undefined) throw new Error('A lane has nobody where it said that somebody waits.')
    this.#waiting.delete(who)
    if (waiting.length > 0) this.#waiting.set(who, waiting)
    this.#size--
    return oldest
  }

  /**
   * Removes the newest of whoever has most waiting.
   * @param wanting who wants the room; null when it is somebody of another lane
   * @returns null when who wants it would then have as much
   */
  takeNewestOfMost(wanting: string | null): Waiting | null {
    const [who, waiting] = [...this.#waiting].reduce((most, each) => (each[1].length > most[1].length ? each : most))
    if (wanting !== null && (this.#waiting.get(wanting)?.length ?? 0) + 1 >= waiting.length) return null
    const newest = waiting.at(-1)
    if (newest === undefined) return null
    this.remove(who, newest)
    return newest
  }
}
