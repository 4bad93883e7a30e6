/**
 * Runs one piece of work at a time, in the order in which they were asked for. A failure does not stop the work behind it.
 *
 * INVARIANT: work that has its turn must not wait for another turn; both would wait for ever.
 */
export class Turns {
  #last: Promise<unknown> = Promise.resolve()

  /** @returns what the work returns, once its turn is over */
  readonly run = <T>(work: () => Promise<T>): Promise<T> => {
    const turn = this.#last.then(work)
    this.#last = turn.catch(() => {})
    return turn
  }

  /** Waits until all work that was asked for so far is done. */
  async idle(): Promise<void> {
    await this.#last
  }
}
