import type { OldWorkerLimits } from '../protocol/desired.js'
import type { Haproxy } from './haproxy.js'
import { commandsFor, type Leaving, serverPath } from './leaving.js'
import { createOldWorkerTerminator, findSurplus, observeOldWorkers } from './old-workers.js'
import { closeSessions, closeUnchanged, parseSessions, type Session } from './runtime/sessions.js'

export type ConnectionCloserOptions = {
  haproxy: Haproxy
  /** Whether to abort work in progress. */
  isAborted: () => boolean
  /** Called with a line for the log. */
  onClosed: (text: string) => void
}

/** Work that may take a while and runs outside a turn. */
export type Closing = () => Promise<void>

/** Closes connections whose time is over, and ends surplus old workers. */
export class ConnectionCloser {
  readonly #haproxy: Haproxy
  readonly #isAborted: () => boolean
  readonly #onClosed: (text: string) => void
  readonly #terminations = createOldWorkerTerminator()

  constructor({ haproxy, isAborted, onClosed }: ConnectionCloserOptions) {
    this.#haproxy = haproxy
    this.#isAborted = isAborted
    this.#onClosed = onClosed
  }

  /**
   * Closes the remaining connections of servers whose time to leave is over.
   * @param worker the current worker's pid, or null
   * @returns the paths of servers that still had connections, and the work that closes those of old workers
   */
  async closeConnections(
    over: readonly Leaving[],
    worker: number | null,
    oldWorkers: readonly number[],
  ): Promise<{ closed: ReadonlySet<string>; closing: Closing[] }> {
    const closed = new Map<string, number>()
    const closing: Closing[] = []
    if (over.length === 0) return { closed: new Set(), closing }
    for (const pid of worker === null ? oldWorkers : [worker, ...oldWorkers]) {
      const sessions = await this.#sessionsOf(pid)
      for (const one of over.filter(({ held }) => held || pid !== worker)) {
        const ours = sessions.filter(({ backend, server }) => backend === one.backend && server === one.server.name)
        if (ours.length === 0) continue
        // An old worker has stopped its proxies: it refuses commands for servers, and accepts those for single
        // sessions.
        if (pid !== worker) closing.push(() => closeUnchanged(this.#commandsTo(pid), ours))
        else await this.#haproxy.commandTo(pid, commandsFor(one).closeSessions).catch(() => '')
        closed.set(serverPath(one), (closed.get(serverPath(one)) ?? 0) + ours.length)
      }
    }
    this.#report(over, closed)
    return { closed: new Set(closed.keys()), closing }
  }

  /** Returns the work that ends the oldest surplus workers and closes their remaining connections. */
  planSurplus(pids: readonly number[], allowed: OldWorkerLimits | null): Closing[] {
    if (allowed === null || pids.length === 0) return []
    const workers = observeOldWorkers(pids)
    const limit = workers.length > allowed.most ? `${allowed.most} old workers` : `${allowed.memoryMib} MiB`
    const surplus = findSurplus(workers, allowed).filter(worker => !this.#terminations.isTerminating(worker))
    return surplus.map(worker => async () => {
      const open = (await this.#sessionsOf(worker.pid)).filter(({ server }) => server !== '<none>')
      await closeSessions(this.#commandsTo(worker.pid), open)
      this.#terminations.terminate(worker)
      this.#onClosed(`${open.length} connections of an old HAProxy worker: more than ${limit}`)
    })
  }

  #report(over: readonly Leaving[], closed: ReadonlyMap<string, number>): void {
    for (const one of over) {
      const count = closed.get(serverPath(one)) ?? 0
      if (count === 0) continue
      this.#onClosed(`${count} connections of member ${one.server.name}, ${one.delayMs / 1000} s after it left`)
    }
  }

  async #sessionsOf(pid: number): Promise<Session[]> {
    return parseSessions(await this.#haproxy.commandTo(pid, 'show sess').catch(() => ''))
  }

  #commandsTo(pid: number) {
    return {
      command: (...commands: string[]) => this.#haproxy.commandTo(pid, ...commands).catch(() => ''),
      isAborted: this.#isAborted,
    }
  }
}
