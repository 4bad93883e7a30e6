import { setTimeout as sleep } from 'node:timers/promises'
import type { Logger } from '../log/log.js'
import { formatOvsdbAddress, type OvsdbAddress } from './address.js'
import type { Row, Rows, Tables } from './columns.js'
import { type ConnectionLimits, type OvsdbConnection, type OvsdbTls, openOvsdbConnection } from './connection.js'
import { DatabaseCopy, type RowChange } from './copy.js'
import { OvsdbProtocolError, OvsdbUnreachable } from './errors.js'
import { type Monitor, startMonitor } from './monitor.js'
import { followServerState, NotServing, type ServerState } from './server-state.js'
import { checkResults, encodeTransaction, type Operation } from './transaction.js'

export type OvsdbClientOptions<T extends Tables> = {
  /** The servers of one database: its only one, or those of its cluster, of which the leader is used. */
  addresses: readonly OvsdbAddress[]
  database: string
  /** What is copied. */
  tables: T
  tls?: OvsdbTls | undefined
  log: Logger
  limits?: Partial<ConnectionLimits>
  /** Of the pauses between attempts, which grow. */
  pauseMs?: { least: number; most: number }
}

export type ClientState = {
  /** Null as long as none serves. */
  address: OvsdbAddress | null
  /** Why none does. */
  problem: string | null
}

/** A client of an OVSDB database: a copy of its rows that follows it, and transactions. */
export class OvsdbClient<T extends Tables> {
  readonly #options: OvsdbClientOptions<T>
  readonly #copy: DatabaseCopy
  readonly #listeners = new Set<(changes: readonly RowChange[]) => void>()
  readonly #stopping = new AbortController()
  readonly #running: Promise<void>
  #serving: { connection: OvsdbConnection; monitor: Monitor } | null = null
  #lastTransaction: string | null = null
  #problem: string | null = 'it was not asked yet'

  /** Connects, and connects again whenever the connection is lost, until `stop`. */
  constructor(options: OvsdbClientOptions<T>) {
    this.#options = options
    this.#copy = new DatabaseCopy(options.tables)
    this.#running = this.#run()
  }

  get state(): ClientState {
    return { address: this.#serving?.connection.address ?? null, problem: this.#problem }
  }

  /** The rows of a table, as of the last update. They stay what they were while no server serves. */
  rows<N extends keyof T & string>(table: N): Rows<T[N]> {
    return this.#copy.rows(table) as Rows<T[N]>
  }

  row<N extends keyof T & string>(table: N, uuid: string): Row<T[N]> | null {
    return this.rows(table).get(uuid) ?? null
  }

  /**
   * Calls a listener after each update, and with no changes when a server begins or ceases to serve.
   * @returns what ends it
   */
  onChange(listener: (changes: readonly RowChange[]) => void): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  /**
   * Waits until something is so: looks now, and after each update.
   * @param isSo looks at the client's rows and state
   * @returns false if it is not so within `limitMs`
   * @throws the signal's reason
   */
  async until(isSo: () => boolean, limitMs: number, signal?: AbortSignal): Promise<boolean> {
    signal?.throwIfAborted()
    if (isSo()) return true
    return new Promise((resolve, reject) => {
      const finish = (settle: () => void) => {
        clearTimeout(limit)
        end()
        signal?.removeEventListener('abort', abort)
        settle()
      }
      const abort = () => finish(() => reject(signal?.reason))
      const limit = setTimeout(() => finish(() => resolve(false)), limitMs)
      const end = this.onChange(() => {
        if (isSo()) finish(() => resolve(true))
      })
      signal?.addEventListener('abort', abort, { once: true })
    })
  }

  /**
   * Waits until a server serves and the copy equals its database.
   * @throws OvsdbUnreachable that says why not, after `limitMs`
   */
  async ready(limitMs: number, signal?: AbortSignal): Promise<void> {
    if (await this.until(() => this.#serving !== null, limitMs, signal)) return
    throw new OvsdbUnreachable(`The ${this.#options.database} database cannot be used: ${this.#problem}.`)
  }

  /**
   * Makes one transaction. When it returns, the copy has what it changed.
   * @param comment for the server's log
   * @throws TransactionRefused if nothing of it happened, RowsGone if rows were missing; OvsdbUnreachable, after which
   *   it may have happened or not
   */
  async transact(
    operations: readonly Operation<T>[],
    { comment = '', readyMs = 5_000, signal }: { comment?: string; readyMs?: number; signal?: AbortSignal } = {},
  ): Promise<void> {
    if (operations.length === 0) return
    await this.ready(readyMs, signal)
    const { database, tables } = this.#options
    const words = encodeTransaction(tables, operations, comment)
    if (this.#serving === null) throw new OvsdbUnreachable(`The connection to ${database} is lost.`)
    checkResults(operations, await this.#serving.connection.request('transact', [database, ...words]))
  }

  async stop(): Promise<void> {
    this.#stopping.abort()
    this.#serving?.connection.close()
    await this.#running
    this.#listeners.clear()
  }

  async #run(): Promise<void> {
    const { addresses, database, log, pauseMs: { least, most } = { least: 50, most: 5_000 } } = this.#options
    const { signal } = this.#stopping
    let pause = least
    for (let turn = 0; !signal.aborted; turn++) {
      const address = addresses[turn % addresses.length]
      if (address === undefined) return
      const servedMs = await this.#session(address).catch((error: unknown) => {
        const why = error instanceof Error ? error.message : String(error)
        if (this.#problem !== why && !signal.aborted) {
          const level = error instanceof NotServing ? 'debug' : 'warn'
          log[level]({ database, server: formatOvsdbAddress(address), why }, 'an OVSDB server does not serve')
        }
        this.#problem = why
        this.#distrustAfter(error)
        return 0
      })
      // A server that lasts gets its first pauses again. One round through a cluster is one attempt.
      if (servedMs > most) pause = least
      const isRoundOver = (turn + 1) % addresses.length === 0
      await sleep(isRoundOver ? pause * (0.5 + Math.random() / 2) : 0, undefined, { signal }).catch(() => undefined)
      if (isRoundOver) pause = Math.min(pause * 2, most)
    }
  }

  /** Follows one server. @returns milliseconds that it served, once it does no more */
  async #session(address: OvsdbAddress): Promise<number> {
    const { database, tables, tls, limits, log } = this.#options
    let state: ServerState | null = null
    let monitor: Monitor | null = null
    // What comes with the answer that grants a monitor, before that is known.
    let early: [string, readonly unknown[]][] = []
    const take = (method: string, params: readonly unknown[]): void => {
      if (state?.take(method, params)) {
        requireServing()
        return
      }
      if (monitor === null) {
        early.push([method, params])
        return
      }
      const changes = monitor.take(method, params)
      this.#lastTransaction = monitor.lastTransaction()
      if (changes !== null && changes.length > 0) this.#tell(changes)
    }
    const requireServing = (): void => {
      const refusal = state?.refusal(database) ?? null
      if (refusal !== null) throw new NotServing(`${formatOvsdbAddress(address)} does not serve: ${refusal}.`)
    }
    const connection = await openOvsdbConnection(address, {
      ...{ tls, onNotification: take },
      ...(limits === undefined ? {} : { limits }),
    })
    try {
      state = await followServerState(connection)
      requireServing()
      const granted = await startMonitor(connection, database, {
        tables,
        copy: this.#copy,
        since: this.#lastTransaction,
      })
      monitor = granted
      this.#lastTransaction = granted.lastTransaction()
      for (const [method, params] of early) take(method, params)
      early = []
      if (this.#stopping.signal.aborted) return 0
      const started = performance.now()
      this.#serving = { connection, monitor }
      this.#problem = null
      log.info({ database, server: formatOvsdbAddress(address) }, 'an OVSDB server serves')
      this.#tell(granted.changes)
      const reason = await connection.ended
      this.#problem = reason.message
      this.#distrustAfter(reason)
      if (!this.#stopping.signal.aborted)
        log.warn({ database, server: formatOvsdbAddress(address), why: reason.message }, 'lost an OVSDB server')
      return performance.now() - started
    } finally {
      connection.close()
      if (this.#serving?.connection === connection) {
        this.#serving = null
        this.#tell([])
      }
    }
  }

  /** An update that does not fit may have changed the copy by half: it is fetched anew. */
  #distrustAfter(error: unknown): void {
    if (error instanceof OvsdbProtocolError) this.#lastTransaction = null
  }

  #tell(changes: readonly RowChange[]): void {
    for (const listener of [...this.#listeners]) listener(changes)
  }
}
