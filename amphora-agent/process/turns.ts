/**
 * Runs pieces of work one at a time, in the order requested. A failure does not stop the work behind it.
 *
 * INVARIANT: work must not request and await another turn during its own: that deadlocks.
 */
export class Turns {
  #last: Promise<unknown> = Promise.resolve()

  /** @returns the result of the work */
  readonly run = <T>(work: () => Promise<T>): Promise<T> => {
    const turn = this.#last.then(work)
    this.#last = turn.catch(() => {})
    return turn
  }

  /** Waits until all work requested so far is done. */
  async idle(): Promise<void> {
    await this.#last
  }
}
