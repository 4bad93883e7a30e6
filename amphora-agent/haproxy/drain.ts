import type { Log } from '../log/log.js'
import type { OldWorkerLimits } from '../protocol/desired.js'
import { type Closing, ConnectionCloser } from './connection-closer.js'
import type { Haproxy } from './haproxy.js'
import { commandsFor, isExpired, type Leaving, monotonicMs, serverPath, serversStillLeaving } from './leaving.js'
import { LeavingStore } from './leaving-store.js'

/** Delay of the first check after a change; a pool may give its members no time at all. */
const FIRST_CHECK_MS = 50
/** How often to try to delete a server; that succeeds once its last connection, even an idle one, is closed. */
const CHECK_MS = 500
/** How often to check old workers against their limits. */
const OLD_WORKERS_CHECK_MS = 5_000

export type DrainOptions = {
  haproxy: Haproxy
  /** The limits currently desired for old workers. */
  limits: () => OldWorkerLimits | null
  /** Runs work while no other change of the machine is in progress. */
  inTurn: <T>(work: () => Promise<T>) => Promise<T>
  /** Called with a line for the log. */
  onClosed: (text: string) => void
  log: Log
}

/**
 * Drains leaving servers: closes their remaining connections when their time is over, and deletes them from the
 * current worker once they are free. Also keeps old workers within their limits. Its state is in a file, so that
 * the next agent continues.
 */
export class Drain {
  readonly #options: DrainOptions
  readonly #store = new LeavingStore()
  readonly #closer: ConnectionCloser
  /** Whether to stop HAProxy once its old workers have exited. */
  #thenStop = false
  #hasOldWorkers = false
  #isClosed = false
  #isChecking = false
  #timer: NodeJS.Timeout | null = null

  constructor(options: DrainOptions) {
    const { haproxy, onClosed } = options
    this.#options = options
    this.#closer = new ConnectionCloser({ haproxy, onClosed, isAborted: () => this.#isClosed })
  }

  start(): void {
    this.#schedule(FIRST_CHECK_MS)
  }

  leaving(): readonly Leaving[] {
    return this.#store.servers
  }

  /** Stores which servers leave; call it before changing HAProxy. The rest happens in the background. */
  begin(leaving: readonly Leaving[]): void {
    this.#begin(leaving, false)
  }

  /** As `begin`, and stops HAProxy once its old workers have exited. */
  beginToStop(leaving: readonly Leaving[]): void {
    this.#begin(leaving, true)
  }

  /** Call after a reload: there is one more old worker. */
  reloaded(): void {
    this.#schedule(FIRST_CHECK_MS)
  }

  close(): void {
    this.#isClosed = true
    if (this.#timer) clearTimeout(this.#timer)
  }

  #begin(next: readonly Leaving[], thenStop: boolean): void {
    const changes = this.#store.keep(next) || thenStop !== this.#thenStop
    this.#thenStop = thenStop
    if (changes && (next.length > 0 || thenStop)) this.#schedule(FIRST_CHECK_MS)
  }

  #schedule(delay: number): void {
    if (this.#timer) clearTimeout(this.#timer)
    this.#timer = this.#isClosed ? null : setTimeout(() => this.#tick(), delay)
  }

  #tick(): void {
    if (this.#isChecking) {
      this.#schedule(CHECK_MS)
      return
    }
    this.#isChecking = true
    void this.#checkAndClose()
      .catch(error => this.#options.log.error(`cannot drain leaving servers: ${String(error)}`))
      .then(() => {
        this.#isChecking = false
        const pause = this.#pauseUntilNext()
        if (pause !== null) this.#schedule(pause)
      })
  }

  async #checkAndClose(): Promise<void> {
    for (const work of await this.#options.inTurn(() => this.#check())) if (!this.#isClosed) await work()
  }

  /** @returns the remaining work on old workers */
  async #check(): Promise<Closing[]> {
    const { haproxy, limits } = this.#options
    const processes = await haproxy.processes()
    if (this.#isClosed || (processes === null && haproxy.pid() !== null)) return []
    const worker = processes?.workerPid ?? null
    const oldWorkers = processes?.oldWorkerPids ?? []
    this.#hasOldWorkers = oldWorkers.length > 0
    const ending = this.#closer.planSurplus(oldWorkers, limits())
    const over = this.leaving().filter(one => isExpired(one, monotonicMs()))
    const { closed, closing } = await this.#closer.closeConnections(over, worker, oldWorkers)
    const deleted = await this.#deleteFree(worker)
    const { servers } = this.#store
    this.#store.keep(
      serversStillLeaving(servers, monotonicMs(), { deleted, closed, hasOldWorkers: this.#hasOldWorkers }),
    )
    if (this.#thenStop && oldWorkers.length === 0) {
      this.#thenStop = false
      await haproxy.stop()
    }
    return [...closing, ...ending]
  }

  /** Deletes free servers from the current worker. @returns their paths */
  async #deleteFree(worker: number | null): Promise<ReadonlySet<string>> {
    const deleted = new Set<string>()
    if (worker === null) return deleted
    for (const one of this.leaving().filter(({ removed, held }) => removed && held)) {
      if (await this.#isDeleted(worker, one)) deleted.add(serverPath(one))
    }
    return deleted
  }

  /** Also true if the server is already gone, as after HAProxy was restarted. */
  async #isDeleted(worker: number, one: Leaving): Promise<boolean> {
    const answer = await this.#options.haproxy.commandTo(worker, commandsFor(one).remove).catch(() => '')
    return /Server deleted|No such (server|backend)/.test(answer)
  }

  #pauseUntilNext(): number | null {
    const leaving = this.leaving()
    if (this.#thenStop || leaving.some(one => one.removed && one.held)) return CHECK_MS
    if (leaving.length === 0) return this.#hasOldWorkers ? OLD_WORKERS_CHECK_MS : null
    const next = Math.min(...leaving.map(one => one.since + one.delayMs)) - monotonicMs()
    return Math.min(OLD_WORKERS_CHECK_MS, Math.max(FIRST_CHECK_MS, next))
  }
}
