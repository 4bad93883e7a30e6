import type { DatagramBalancer } from '../datagrams/balancer.js'
import type { Haproxy } from '../haproxy/haproxy.js'
import { monotonicMs } from '../haproxy/leaving.js'
import type { WorkerLoad } from '../haproxy/runtime/client.js'
import type { Log } from '../log/log.js'
import type { AmphoraDrain } from '../protocol/handover.js'
import type { HandoverStore, StoredDrain } from './handover-store.js'
import { planHandover } from './plan-handover.js'
import { loadRules } from './tunnel.js'

/** How often to count the open connections of a draining amphora. */
const COUNT_MS = 1_000
/** A flow without a packet for so long after the drain began has ended: UDP has no other end. */
const QUIET_SECONDS = 10
/** Where a process would be counted, stands for the kernel, which forwards UDP and SCTP. */
const KERNEL = 0

/**
 * Drains this amphora until its last connection ends, or until a time limit. A draining amphora never serves again.
 */
export class AmphoraDraining {
  readonly #haproxy: Haproxy
  readonly #balancer: DatagramBalancer
  readonly #store: HandoverStore
  readonly #log: Log
  #countedAt = Number.NEGATIVE_INFINITY
  #endedAtMs = Number.NEGATIVE_INFINITY

  constructor(haproxy: Haproxy, balancer: DatagramBalancer, store: HandoverStore, log: Log) {
    this.#haproxy = haproxy
    this.#balancer = balancer
    this.#store = store
    this.#log = log
  }

  /** Null unless it was asked to drain. */
  status(): AmphoraDrain | null {
    const { drain } = this.#store
    return drain && { ended: drain.ended, cut: drain.cut }
  }

  /** On the monotonic clock; long ago if an earlier agent ended it. */
  get endedAtMs(): number {
    return this.#endedAtMs
  }

  get isActive(): boolean {
    return this.#store.drain !== null && !this.#store.drain.ended
  }

  /** @param seconds how long connections may last; if called again, the earlier end counts */
  async begin(seconds: number): Promise<void> {
    const endsAtMs = monotonicMs() + seconds * 1000
    const { drain } = this.#store
    if (drain !== null) {
      this.#store.keep({ drain: { ...drain, endsAtMs: Math.min(endsAtMs, drain.endsAtMs) } })
      if (!drain.ended) await this.resume()
      return
    }
    this.#store.keep({ drain: { beganAtMs: monotonicMs(), endsAtMs, ended: false, cut: 0, underWay: [] } })
    await this.resume()
    this.#log.info(`draining for at most ${seconds} s`)
  }

  /** May be repeated. If the rules cannot be loaded, HAProxy drains nevertheless, and refuses new connections. */
  async resume(): Promise<void> {
    const { handover } = this.#store
    if (handover !== null) {
      const { rules } = planHandover(handover, { isDraining: true, hasFlows: this.#balancer.isBalancing })
      await loadRules(rules).catch(error => this.#log.error(`handover: ${String(error)}`))
    }
    this.#haproxy.drain()
  }

  /** Counts open connections, and stops HAProxy when the time is over. */
  async check(): Promise<void> {
    const haproxy = this.#haproxy
    const isOver = monotonicMs() > (this.#store.drain?.endsAtMs ?? 0)
    const hasExited = haproxy.pid() === null
    const isBalancing = this.#balancer.isBalancing
    if ((isBalancing || !hasExited) && !isOver && performance.now() - this.#countedAt < COUNT_MS) return
    this.#countedAt = performance.now()
    const flows = isBalancing ? await this.#activeFlows() : 0
    const quietAtMs = (this.#store.drain?.beganAtMs ?? 0) + QUIET_SECONDS * 1000
    const ended = hasExited && flows === 0 && (!isBalancing || monotonicMs() > quietAtMs)
    const loads = hasExited ? [] : await haproxy.workerLoads()
    const workers = loads && [...loads, ...(isBalancing ? [{ pid: KERNEL, openSessions: flows }] : [])]
    if (isOver && !hasExited) await haproxy.stop()
    // Read the state again: a call in between may have shortened the time.
    const { drain: before } = this.#store
    if (before === null) return
    const drain = workers === null ? before : recount(before, workers, pid => haproxy.hasFinished(pid))
    if (ended || isOver) this.#finish(drain)
    else if (JSON.stringify(drain) !== JSON.stringify(before)) this.#store.keep({ drain })
  }

  /** If they cannot be counted, the time limit ends the drain. */
  #activeFlows(): Promise<number | null> {
    return this.#balancer.activeFlows(QUIET_SECONDS).catch(error => {
      this.#log.error(`handover: ${String(error)}`)
      return null
    })
  }

  #finish(drain: StoredDrain): void {
    const cut = drain.cut + sum(drain.underWay)
    this.#endedAtMs = monotonicMs()
    this.#store.keep({ drain: { ...drain, ended: true, cut, underWay: [] } })
    this.#log.info(`drained; ${cut} requests or connections were closed early`)
  }
}

const sum = (workers: StoredDrain['underWay']): number => workers.reduce((total, { count }) => total + count, 0)

/**
 * The connections of a worker that is gone are lost, unless it finished them. A worker that does not answer keeps
 * its last count.
 */
function recount(
  drain: StoredDrain,
  workers: readonly WorkerLoad[],
  hasFinished: (pid: number) => boolean,
): StoredDrain {
  const before = new Map(drain.underWay.map(({ pid, count }) => [pid, count]))
  const present = new Set(workers.map(({ pid }) => pid))
  const lost = drain.underWay.filter(({ pid }) => !present.has(pid) && !hasFinished(pid))
  const underWay = workers.map(({ pid, openSessions }) => ({ pid, count: openSessions ?? before.get(pid) ?? 0 }))
  return { ...drain, cut: drain.cut + sum(lost), underWay }
}
