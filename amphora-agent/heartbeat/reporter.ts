import type { DatagramBalancer } from '../datagrams/balancer.js'
import type { HaproxyObservation } from '../haproxy/runtime/client.js'
import type { Repairs } from '../log/repairs.js'
import type { Desired } from '../protocol/desired.js'
import { changedSince, type Snapshot, takeSnapshot } from '../statistics/snapshot.js'
import { untilNextTick } from '../time/ticks.js'
import type { Pace } from './pace.js'
import type { Readings } from './readings.js'
import type { AmphoraStatus, Sender } from './sender.js'

const FULL_REPORT_MS = 30_000

export type ReporterOptions = {
  readings: Readings
  datagrams: Pick<DatagramBalancer, 'states'>
  pace: Pace
  sender: Sender
  repairs: Repairs
  beatIntervalMs: number
}

/** Sends the health managers what changed since the last report: beats at their interval, states when they change. */
export class Reporter {
  readonly #readings: Readings
  readonly #datagrams: Pick<DatagramBalancer, 'states'>
  readonly #pace: Pace
  readonly #sender: Sender
  readonly #repairs: Repairs
  readonly #beatIntervalMs: number
  #sent: Snapshot | null = null
  /** The sha256 of the desired state that `sent` belongs to. */
  #sentFor = ''
  #sentMismatches = ''
  /** The time of the last repair reported. */
  #repairedMs = 0
  #fullAt = Number.NEGATIVE_INFINITY
  #beatAt = Number.NEGATIVE_INFINITY

  constructor({ readings, datagrams, pace, sender, repairs, beatIntervalMs }: ReporterOptions) {
    this.#readings = readings
    this.#datagrams = datagrams
    this.#pace = pace
    this.#sender = sender
    this.#repairs = repairs
    this.#beatIntervalMs = beatIntervalMs
  }

  /** Milliseconds until the next beat is due. */
  untilBeat(): number {
    return this.#beatAt + this.#beatIntervalMs - performance.now()
  }

  /** @param now milliseconds, as `performance.now()` */
  isDue(now: number): boolean {
    // Send early rather than wake up between two ticks.
    return now + (this.#pace.isIdle ? untilNextTick(now) : 0) - this.#beatAt >= this.#beatIntervalMs
  }

  /** Sends a beat if it is due or the mismatches have changed. */
  async beat(status: AmphoraStatus, isDue: boolean, haproxyRunning: boolean): Promise<void> {
    const mismatches = status.mismatches.join()
    if (mismatches === this.#sentMismatches && !isDue) return
    await this.#sender.beat(status, haproxyRunning)
    this.#sentMismatches = mismatches
  }

  /**
   * Sends what has changed, or everything if a full report is due.
   * @param observation null while HAProxy does not run
   * @param isDue whether to send changed counters as well as states
   */
  async report(
    status: AmphoraStatus,
    desired: Desired,
    observation: HaproxyObservation | null,
    isDue: boolean,
    now: number,
  ): Promise<void> {
    const { proxies, servers } = observation ?? { proxies: [], servers: [] }
    const { failedChecks } = this.#readings
    const states = { proxies, servers, failedChecks, datagrams: this.#datagrams.states() }
    const snapshot = takeSnapshot(desired, states, name => this.#readings.totalOf(name))
    if (desired.sha256 !== this.#sentFor) this.#sent = null
    const full = this.#sent === null || now - this.#fullAt >= FULL_REPORT_MS
    const changes = changedSince(full ? null : this.#sent, snapshot, isDue ? 'anything' : 'states')
    const hasChanges = changes.listeners.length + changes.pools.length > 0
    if (hasChanges && !full) this.#pace.changed()
    const latest = this.#repairs.latest()
    const news = latest.filter(({ atMs }) => full || atMs > this.#repairedMs)
    if (!full && !hasChanges && news.length === 0) return
    await this.#sender.report(status, { epoch: this.#readings.epoch, ...changes, repairs: news })
    this.#repairedMs = latest.at(-1)?.atMs ?? this.#repairedMs
    this.#sent = merge(this.#sent, snapshot, changes)
    this.#sentFor = desired.sha256
    if (full) this.#fullAt = now
  }

  /** Records that the due beat, and the report with it, are sent. */
  beaten(now: number): void {
    this.#beatAt = now
  }
}

/** What the health managers know after these changes; the rest of the new snapshot has not been sent. */
function merge(sent: Snapshot | null, now: Snapshot, changes: ReturnType<typeof changedSince>): Snapshot {
  if (sent === null) return now
  const listeners = [...sent.listeners]
  const pools = [...sent.pools]
  for (const { index } of changes.listeners) listeners[index] = now.listeners[index]!
  for (const { index } of changes.pools) pools[index] = now.pools[index]!
  return { listeners, pools }
}
