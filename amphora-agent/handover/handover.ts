import { forgetState } from '../apply/kept.js'
import type { DatagramBalancer } from '../datagrams/balancer.js'
import type { Haproxy } from '../haproxy/haproxy.js'
import { monotonicMs } from '../haproxy/leaving.js'
import type { Log } from '../log/log.js'
import type { AmphoraDrain, Handover, TablesTaken } from '../protocol/handover.js'
import { AmphoraDraining } from './amphora-draining.js'
import type { FlowServer } from './flow-exchange.js'
import { FlowSuccession } from './flow-succession.js'
import { HandoverStore } from './handover-store.js'
import type { StickTables } from './stick-tables.js'
import { build, holdsVip, unbuild } from './tunnel.js'

const CHECK_MS = 100
/** The other amphora asks once a second, if it still does. */
const TELLING_MS = 3_000

export type HandoversOptions = {
  haproxy: Haproxy
  datagrams: DatagramBalancer
  flowServer: FlowServer
  stickTables: StickTables
  log: Log
}

/** This amphora's part in handing over VIPs, and its draining. Continues those of an earlier agent. */
export class Handovers {
  readonly #datagrams: DatagramBalancer
  readonly #stickTables: StickTables
  readonly #flows: FlowSuccession
  readonly #log: Log
  readonly #store = new HandoverStore()
  readonly #draining: AmphoraDraining
  #timer: NodeJS.Timeout | null = null
  #checking: Promise<void> | null = null
  #tables: Promise<TablesTaken> | null = null
  /** The first copy of the other amphora's flows. */
  #copied: Promise<void> | null = null

  constructor({ haproxy, datagrams, flowServer, stickTables, log }: HandoversOptions) {
    this.#datagrams = datagrams
    this.#stickTables = stickTables
    this.#flows = new FlowSuccession(datagrams, flowServer, log)
    this.#log = log
    this.#draining = new AmphoraDraining(haproxy, datagrams, this.#store, log)
  }

  /** Continues what an earlier agent began; call it after adopting that agent's HAProxy. */
  start(): void {
    if (this.#store.handover !== null || this.#store.drain !== null) this.#startChecks()
    if (this.#draining.isActive) void this.#draining.resume()
    const { handover } = this.#store
    if (handover === null) return
    if (handover.role === 'leaving') this.#shareTables(handover)
    if (handover.role === 'taking-over') this.#flows.resume(handover)
    else this.#shareFlows(handover)
  }

  /**
   * Sets up this amphora's part, unless it is to take over a VIP that it already holds. An existing handover is only
   * prolonged: a rebuild would forget which connections belong to which amphora.
   * @throws NetworkFailure
   */
  async begin(handover: Handover): Promise<void> {
    this.#tables = null
    const stored = { ...handover, endsAtMs: monotonicMs() + handover.seconds * 1000 }
    const hasVip = handover.role === 'taking-over' && (await holdsVip(handover))
    if (this.#store.handover !== null && isSame(this.#store.handover, handover)) {
      this.#store.keep({ handover: stored })
      if (!hasVip) this.#share(handover)
      return
    }
    if (hasVip) {
      // This amphora's own connections would count as the other one's.
      this.#log.info('handover: this amphora already holds the VIP')
      return
    }
    await this.#end()
    await unbuild(handover, this.#datagrams.isBalancing, this.#log)
    this.#startChecks()
    this.#store.keep({ handover: stored })
    try {
      await build(handover, this.#datagrams.isBalancing, this.#log)
    } catch (error) {
      await this.#end()
      throw error
    }
    this.#share(handover)
    this.#log.info(`handover: ${handover.role}, with ${handover.peer}`)
  }

  /**
   * HAProxy stops accepting connections, and exits with its last one or at the time limit. A draining amphora never
   * serves again.
   * @param seconds how long connections may last; if called again, the earlier end counts
   */
  async drain(seconds: number): Promise<void> {
    this.#startChecks()
    forgetState()
    await this.#draining.begin(seconds)
  }

  /**
   * Waits until an amphora that takes over has the other one's stick tables, at most as long as the VIP may wait.
   * Undefined for an amphora that does not take over.
   */
  async tables(): Promise<TablesTaken | undefined> {
    await this.#copied
    return (await this.#tables) ?? undefined
  }

  /** Null unless it was asked to drain. */
  drained(): AmphoraDrain | null {
    const status = this.#draining.status()
    if (status === null || !status.ended || this.#store.handover === null) return status
    // Packets that the other amphora sends here would be lost with this one.
    return { ...status, ended: !this.#flows.isEndUnknown || monotonicMs() > this.#draining.endedAtMs + TELLING_MS }
  }

  /** Stops the timer; the handover remains set up for the next agent. */
  close(): void {
    if (this.#timer) clearInterval(this.#timer)
    this.#stickTables.end()
    this.#flows.end()
  }

  /** Starts the timer at the first handover or drain; most amphorae never have one. */
  #startChecks(): void {
    this.#timer ??= setInterval(() => {
      if (this.#checking !== null || (this.#store.handover === null && this.#store.drain === null)) return
      this.#checking = this.#check()
        .catch(error => this.#log.error(`handover: ${String(error)}`))
        .finally(() => {
          this.#checking = null
        })
    }, CHECK_MS)
  }

  async #check(): Promise<void> {
    this.#store.restore()
    if (this.#draining.isActive) {
      await this.#draining.check()
      if (!this.#draining.isActive) this.#flows.finish()
    }
    if (this.#store.handover !== null && monotonicMs() > this.#store.handover.endsAtMs) await this.#end()
  }

  async #end(): Promise<void> {
    if (this.#store.handover === null) return
    this.#stickTables.end()
    this.#flows.end()
    // Undo the handover before deleting its record, so that an interruption here is retried.
    await unbuild(this.#store.handover, this.#datagrams.isBalancing, this.#log)
    this.#store.keep({ handover: null })
    this.#log.info('handover: ended')
  }

  #share(handover: Handover): void {
    this.#shareTables(handover)
    this.#shareFlows(handover)
  }

  #shareFlows(handover: Handover): void {
    if (handover.role === 'taking-over') this.#copied = this.#flows.take(handover)
    else {
      const isOver = this.#store.drain?.ended === true
      this.#flows.offer(handover, isOver).catch(error => this.#log.error(`handover: flows: ${String(error)}`))
    }
  }

  /** Does not delay connections: without the tables, clients may be sent to another member. */
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
