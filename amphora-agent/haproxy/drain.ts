import type { Log } from '../log/log.js'
import type { OldWorkerLimits } from '../protocol/desired.js'
import { type Closing, ConnectionCloser } from './connection-closer.js'
import type { Haproxy } from './haproxy.js'
import { commandsFor, isOver, type Leaving, monotonicMs, pathOf, whoStillLeaves } from './leaving.js'
import { LeavingStore } from './leaving-store.js'

/** The first check after a change; a pool may give its members no time at all. */
const FIRST_LOOK_MS = 50
/** How often to try to delete a server, which succeeds once its last connection, even an idle one, is closed. */
const LOOK_MS = 500
/** How often old workers are checked against their limits. */
const OLD_WORKERS_MS = 5_000

export type DrainOptions = {
  haproxy: Haproxy
  /** The limits desired for old workers now. */
  limits: () => OldWorkerLimits | null
  /** Runs work while no change of the machine is under way. */
  inTurn: <T>(work: () => Promise<T>) => Promise<T>
  /** Called with a line for the log. */
  onClosed: (text: string) => void
  log: Log
}

/**
 * Follows servers that leave: closes their remaining connections when their time is over, and deletes them from the present worker once they
 * are free. Also keeps old workers within their limits. Its state is in a file, so that the next agent goes on.
 */
export class Drain {
  readonly #options: DrainOptions
  readonly #store = new LeavingStore()
  readonly #closer: ConnectionCloser
  /** Whether HAProxy itself ends when its old workers have. */
  #thenStop = false
  #hasOldWorkers = false
  #isClosed = false
  #isLooking = false
  #timer: NodeJS.Timeout | null = null

  constructor(options: DrainOptions) {
    const { haproxy, onClosed } = options
    this.#options = options
    this.#closer = new ConnectionCloser({ haproxy, onClosed, isOver: () => this.#isClosed })
  }

  start(): void {
    this.#schedule(FIRST_LOOK_MS)
  }

  leaving(): readonly Leaving[] {
    return this.#store.servers
  }

  /** Stores which servers leave, before HAProxy is told, and does the rest in the background. */
  begin(leaving: readonly Leaving[]): void {
    this.#begin(leaving, false)
  }

  /** As `begin`; in addition HAProxy ends once its old workers have ended. */
  beginToStop(leaving: readonly Leaving[]): void {
    this.#begin(leaving, true)
  }

  /** HAProxy has reloaded: there is one more old worker. */
  reloaded(): void {
    this.#schedule(FIRST_LOOK_MS)
  }

  close(): void {
    this.#isClosed = true
    if (this.#timer) clearTimeout(this.#timer)
  }

  #begin(next: readonly Leaving[], thenStop: boolean): void {
    const changes = this.#store.keep(next) || thenStop !== this.#thenStop
    this.#thenStop = thenStop
    if (changes && (next.length > 0 || thenStop)) this.#schedule(FIRST_LOOK_MS)
  }

  #schedule(delay: number): void {
    if (this.#timer) clearTimeout(this.#timer)
    this.#timer = this.#isClosed ? null : setTimeout(() => this.#tick(), delay)
  }

  #tick(): void {
    if (this.#isLooking) {
      this.#schedule(LOOK_MS)
      return
    }
    this.#isLooking = true
    void this.#lookAndClose()
      .catch(error => this.#options.log.error(`servers that leave: ${String(error)}`))
      .then(() => {
        this.#isLooking = false
        const pause = this.#pauseUntilNext()
        if (pause !== null) this.#schedule(pause)
      })
  }

  async #lookAndClose(): Promise<void> {
    for (const work of await this.#options.inTurn(() => this.#look())) if (!this.#isClosed) await work()
  }

  /** @returns what is then to be done to old workers */
  async #look(): Promise<Closing[]> {
    const { haproxy, limits } = this.#options
    const processes = await haproxy.processes()
    if (this.#isClosed || (processes === null && haproxy.pid() !== null)) return []
    const worker = processes?.workerPid ?? null
    const oldWorkers = processes?.oldWorkerPids ?? []
    this.#hasOldWorkers = oldWorkers.length > 0
    const ending = this.#closer.planSurplus(oldWorkers, limits())
    const over = this.leaving().filter(one => isOver(one, monotonicMs()))
    const { closed, closing } = await this.#closer.closeConnections(over, worker, oldWorkers)
    const deleted = await this.#deleteFree(worker)
    const { servers } = this.#store
    this.#store.keep(whoStillLeaves(servers, monotonicMs(), { deleted, closed, hasOldWorkers: this.#hasOldWorkers }))
    if (this.#thenStop && oldWorkers.length === 0) {
      this.#thenStop = false
      await haproxy.stop()
    }
    return [...closing, ...ending]
  }

  /** Deletes the servers that are free from the present worker. @returns their paths */
  async #deleteFree(worker: number | null): Promise<ReadonlySet<string>> {
    const deleted = new Set<string>()
    if (worker === null) return deleted
    for (const one of this.leaving().filter(({ removed, held }) => removed && held)) {
      if (await this.#isDeleted(worker, one)) deleted.add(pathOf(one))
    }
    return deleted
  }

  /** Also when it is gone already, as from a HAProxy that was started anew. */
  async #isDeleted(worker: number, one: Leaving): Promise<boolean> {
    const answer = await this.#options.haproxy.commandTo(worker, commandsFor(one).remove).catch(() => '')
    return /Server deleted|No such (server|backend)/.test(answer)
  }

  #pauseUntilNext(): number | null {
    const leaving = this.leaving()
    if (this.#thenStop || leaving.some(one => one.removed && one.held)) return LOOK_MS
    if (leaving.length === 0) return this.#hasOldWorkers ? OLD_WORKERS_MS : null
    const next = Math.min(...leaving.map(one => one.since + one.delayMs)) - monotonicMs()
    return Math.min(OLD_WORKERS_MS, Math.max(FIRST_LOOK_MS, next))
  }
}
