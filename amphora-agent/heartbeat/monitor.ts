import { existsSync, writeFileSync } from 'node:fs'
import type { Store } from '../apply/store.js'
import type { DatagramBalancer } from '../datagrams/balancer.js'
import type { Haproxy } from '../haproxy/haproxy.js'
import type { KnownDown } from '../haproxy/known-down.js'
import { planRepair } from '../haproxy/plan-repair.js'
import type { HaproxyObservation } from '../haproxy/runtime/client.js'
import type { Log } from '../log/log.js'
import type { Repairs } from '../log/repairs.js'
import { holdsVip } from '../network/observed.js'
import type { Desired } from '../protocol/desired.js'
import { HAPROXY_TRACK_FILE } from '../protocol/paths.js'
import { Liveness } from './liveness.js'
import { BUSY_INTERVAL_MS, Pace } from './pace.js'
import { Readings } from './readings.js'
import { Reporter } from './reporter.js'
import type { AmphoraStatus, Sender } from './sender.js'

export type MonitorOptions = {
  store: Store
  haproxy: Haproxy
  datagrams: DatagramBalancer
  knownDown: KnownDown
  sender: Sender
  repairs: Repairs
  /** Whether the amphora is draining: HAProxy exits with its last connection, and does not answer until then. */
  isDraining: () => boolean
  /** The result of the last comparison with the desired state. */
  getStatus: () => Pick<AmphoraStatus, 'mismatches' | 'needsApply'>
  /** Called when HAProxy's running configuration differs from the desired one. */
  onDrift: () => void
  beatIntervalMs: number
  log: Log
}

/**
 * Watches HAProxy and reports to the health managers: beats at their interval, states when they change, everything
 * every half minute.
 */
export class Monitor {
  readonly #options: MonitorOptions
  readonly #pace = new Pace()
  readonly #liveness: Liveness
  readonly #readings: Readings
  readonly #reporter: Reporter
  /** Whether keepalived's track file declares HAProxy serving; null if unknown. */
  #tracked: boolean | null = null
  #stopped = false
  #timer: NodeJS.Timeout | null = null
  #queue = Promise.resolve()

  constructor(options: MonitorOptions) {
    const { haproxy, datagrams, repairs, sender, beatIntervalMs } = options
    this.#options = options
    this.#liveness = new Liveness(haproxy, repairs)
    this.#readings = new Readings(haproxy, datagrams, this.#liveness, this.#pace)
    this.#reporter = new Reporter({
      readings: this.#readings,
      datagrams,
      pace: this.#pace,
      sender,
      repairs,
      beatIntervalMs,
    })
  }

  start(): void {
    this.#tick()
  }

  /** Observes HAProxy now and reports what changed. */
  observe(): Promise<void> {
    this.#queue = this.#queue
      .then(() => this.#observeOnce())
      .catch(error => this.#options.log.error(`cannot observe HAProxy: ${String(error)}`))
    return this.#queue
  }

  /** Call before the current worker is replaced: reads its counters now, and observes more often for a while. */
  async beforeReload(): Promise<void> {
    await this.observe()
    this.#observeOften()
  }

  /** HAProxy exited: tells keepalived at once. */
  haproxyEnded(): void {
    this.#setServing(false)
    this.#observeOften()
  }

  /** HAProxy started and answers. */
  haproxyReady(): void {
    this.#setServing(true)
  }

  async stop(): Promise<void> {
    this.#stopped = true
    if (this.#timer) clearTimeout(this.#timer)
    await this.#queue
  }

  async #observeOnce(): Promise<void> {
    const { store, haproxy, knownDown, isDraining, onDrift, getStatus } = this.#options
    const desired = store.confirmed()
    const observation = await this.#readings.take()
    const now = performance.now()
    if (observation !== null) knownDown.update(observation.servers)
    const pid = haproxy.pid()
    this.#judge(pid, observation, now)
    this.#track(desired, pid, observation, now)
    if (observation !== null && desired !== null && !isDraining() && this.#differs(desired, observation)) onDrift()

    const present = amphoraStatus(desired, getStatus())
    const isDue = this.#reporter.isDue(now)
    await this.#reporter.beat(present, isDue, pid !== null && this.#liveness.answersAt(now))
    // While a reload leaves HAProxy unanswering, the last report stands.
    if (desired !== null && (observation !== null || haproxy.pid() === null)) {
      await this.#reporter.report(present, desired, observation, isDue, now)
    }
    if (isDue) this.#reporter.beaten(now)
  }

  #judge(pid: number | null, observation: HaproxyObservation | null, now: number): void {
    if (observation !== null || pid === null) this.#liveness.answered()
    else if (this.#options.isDraining()) this.#liveness.excuse()
    else this.#liveness.unanswered(pid, now)
  }

  #track(desired: Desired | null, pid: number | null, observation: HaproxyObservation | null, now: number): void {
    if (!existsSync(HAPROXY_TRACK_FILE)) this.#tracked = null
    if (pid === null) this.#setServing(desired !== null && desired.haproxy === null)
    else if (observation !== null) this.#setServing(true)
    else if (!this.#liveness.answersAt(now)) this.#setServing(false)
  }

  #setServing(serving: boolean): void {
    if (serving === this.#tracked) return
    this.#tracked = serving
    writeFileSync(HAPROXY_TRACK_FILE, serving ? '0\n' : '-254\n')
  }

  #differs(desired: Desired, present: HaproxyObservation): boolean {
    const { haproxy: part } = desired
    if (part === null) return false
    const { haproxy } = this.#options
    return haproxy.isForeign(present.workerPid) || planRepair({ ...desired, haproxy: part }, present).found.length > 0
  }

  #tick(): void {
    const started = performance.now()
    void this.observe().then(() => {
      if (this.#stopped) return
      if (this.#liveness.isSilent) return this.#schedule(BUSY_INTERVAL_MS)
      this.#schedule(this.#pace.pause(performance.now() - started, this.#reporter.untilBeat()))
    })
  }

  #observeOften(): void {
    this.#pace.hurry()
    this.#schedule(BUSY_INTERVAL_MS)
  }

  #schedule(delay: number): void {
    if (this.#timer) clearTimeout(this.#timer)
    this.#timer = setTimeout(() => this.#tick(), delay)
  }
}

function amphoraStatus(
  desired: Desired | null,
  { mismatches, needsApply }: Pick<AmphoraStatus, 'mismatches' | 'needsApply'>,
): AmphoraStatus {
  const isInEffect = desired !== null && !needsApply
  return {
    generation: desired?.generation ?? 0,
    configHash: isInEffect ? desired.sha256.slice(0, 16) : '0'.repeat(16),
    needsApply: !isInEffect,
    vrrpMaster: desired !== null && holdsVip(desired),
    mismatches,
  }
}
