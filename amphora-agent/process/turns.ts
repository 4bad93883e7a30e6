/**
 * Lets one piece of work run at a time, in the order of asking. One that fails does not stop those behind it.
 * INVARIANT: work that runs in a turn must not wait for another turn, or both wait for ever.
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
