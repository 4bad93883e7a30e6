import type { Haproxy } from '../haproxy/haproxy.js'
import { monotonicMs } from '../haproxy/leaving.js'
import type { Log } from '../log/log.js'
import type { AmphoraDrain, Handover, TablesTaken } from '../protocol/handover.js'
import { AmphoraDraining } from './amphora-draining.js'
import { HandoverStore } from './handover-store.js'
import type { StickTables } from './stick-tables.js'
import { build, holdsVip, unbuild } from './tunnel.js'

const LOOK_MS = 100

export type HandoversOptions = {
  haproxy: Haproxy
  stickTables: StickTables
  log: Log
}

/** This amphora's part in handing a VIP over, and its draining. Takes up what an earlier agent left. */
export class Handovers {
  readonly #stickTables: StickTables
  readonly #log: Log
  readonly #store = new HandoverStore()
  readonly #draining: AmphoraDraining
  #timer: NodeJS.Timeout | null = null
  #looking: Promise<void> | null = null
  #tables: Promise<TablesTaken> | null = null

  constructor({ haproxy, stickTables, log }: HandoversOptions) {
    this.#stickTables = stickTables
    this.#log = log
    this.#draining = new AmphoraDraining(haproxy, this.#store, log)
  }

  /** Goes on with what an earlier agent began; to be called when its HAProxy is adopted. */
  start(): void {
    if (this.#store.handover !== null || this.#store.drain !== null) this.#lookOften()
    if (this.#draining.isUnderWay) void this.#draining.resume()
    if (this.#store.handover?.role === 'leaving') this.#shareTables(this.#store.handover)
  }

  /**
   * Sets up this amphora's part, unless it is to take over what it has already. One that stands only lives longer: rebuilding would forget which
   * connections are whose.
   * @throws NetworkFailure
   */
  async begin(handover: Handover): Promise<void> {
    this.#tables = null
    const stored = { ...handover, endsAtMs: monotonicMs() + handover.seconds * 1000 }
    const hasVip = handover.role === 'taking-over' && (await holdsVip(handover))
    if (this.#store.handover !== null && isSame(this.#store.handover, handover)) {
      this.#store.keep({ handover: stored })
      if (!hasVip) this.#shareTables(handover)
      return
    }
    if (hasVip) {
      // Its own connections would count as those of the other one.
      this.#log.info('handover: nothing to take over, the VIP is here')
      return
    }
    await this.#end()
    await unbuild(handover, this.#log)
    this.#lookOften()
    this.#store.keep({ handover: stored })
    try {
      await build(handover, this.#log)
    } catch (error) {
      await this.#end()
      throw error
    }
    this.#shareTables(handover)
    this.#log.info(`handover: ${handover.role}, with ${handover.peer}`)
  }

  /**
   * HAProxy accepts nothing any more and ends with its last connection, or at the limit. An amphora that drains never serves again.
   * @param seconds how long connections may last; told twice, the shorter time counts
   */
  async drain(seconds: number): Promise<void> {
    this.#lookOften()
    await this.#draining.begin(seconds)
  }

  /** Waits, for so long as the VIP may wait, until the one that takes over has the stick tables of the other; undefined for one that does not. */
  async tables(): Promise<TablesTaken | undefined> {
    return (await this.#tables) ?? undefined
  }

  /** Null while it is not asked to drain. */
  drained(): AmphoraDrain | null {
    return this.#draining.status()
  }

  /** Stops the timer; what is set up stays for the next agent. */
  close(): void {
    if (this.#timer) clearInterval(this.#timer)
    this.#stickTables.end()
  }

  /** Begins with the first handover or drain; most amphorae never have one. */
  #lookOften(): void {
    this.#timer ??= setInterval(() => {
      if (this.#looking !== null || (this.#store.handover === null && this.#store.drain === null)) return
      this.#looking = this.#look()
        .catch(error => this.#log.error(`handover: ${String(error)}`))
        .finally(() => {
          this.#looking = null
        })
    }, LOOK_MS)
  }

  async #look(): Promise<void> {
    this.#store.restore()
    if (this.#draining.isUnderWay) await this.#draining.look()
    if (this.#store.handover !== null && monotonicMs() > this.#store.handover.endsAtMs) await this.#end()
  }

  async #end(): Promise<void> {
    if (this.#store.handover === null) return
    this.#stickTables.end()
    // Undone before it is forgotten: what is cut off here is tried again.
    await unbuild(this.#store.handover, this.#log)
    this.#store.keep({ handover: null })
    this.#log.info('handover: ended')
  }

  /** Connections do not wait for the tables: without them clients may change their member. */
  #shareTables(handover: Handover): void {
    if (handover.role === 'taking-over') this.#tables = this.#stickTables.take(handover)
    else if (this.#store.drain === null) {
      this.#stickTables.offer(handover).catch(error => this.#log.error(`handover: stick tables: ${String(error)}`))
    }
  }
}

const isSame = (one: Handover, other: Handover) =>
  one.role === other.role &&
  one.own === other.own &&
  one.peer === other.peer &&
  one.interface === other.interface &&
  JSON.stringify(one.vips) === JSON.stringify(other.vips)
