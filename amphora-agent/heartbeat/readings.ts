import type { DatagramBalancer } from '../datagrams/balancer.js'
import { SERVICE_PREFIX } from '../datagrams/flow-meter.js'
import type { Haproxy } from '../haproxy/haproxy.js'
import type { HaproxyObservation } from '../haproxy/runtime/client.js'
import { inMaintenance, type ServerState } from '../haproxy/runtime/servers-state.js'
import { completeChecks, type ProxyRow, parseStat, type ReadCheck, SHOW_PROXIES } from '../haproxy/runtime/stat.js'
import { identityOf } from '../process/process-table.js'
import type { FailedCheck } from '../protocol/checks.js'
import type { Counters } from '../protocol/heartbeat.js'
import { loadCounters, saveCounters } from '../statistics/counter-file.js'
import { type CountedRow, observe, totalOf } from '../statistics/counters.js'
import type { Liveness } from './liveness.js'
import type { Pace } from './pace.js'

/** Query the master for its workers at least this often: old workers exit, and others may reload HAProxy. */
const WORKERS_MS = 30_000
/** How often to query HAProxy for the limits and failed checks of its servers, which cost one row each. */
const SERVER_ROWS_MS = 8_000
/**
 * How long to wait, per server, before they are queried again because servers went down or fail for another reason: a row
 * costs some microseconds, and a report without the cause of a failure is worth less.
 */
const CHANGED_ROWS_MS_PER_SERVER = 1

/** Observes HAProxy, and keeps the counters of all its workers, and of the kernel's flows, which never decrease. */
export class Readings {
  readonly #haproxy: Haproxy
  readonly #datagrams: DatagramBalancer
  readonly #liveness: Liveness
  readonly #pace: Pace
  #counters = loadCounters()
  #serverRowsAt = Number.NEGATIVE_INFINITY
  /** When they were read because servers had changed. */
  #changedRowsAt = Number.NEGATIVE_INFINITY
  /** The servers that were down, and how their checks failed, when the rows were read. */
  #failures = ''
  #checks: ReadonlyMap<string, ReadCheck> = new Map()
  #workersAt = Number.NEGATIVE_INFINITY
  #oldWorkers: readonly number[] = []

  constructor(haproxy: Haproxy, datagrams: DatagramBalancer, liveness: Liveness, pace: Pace) {
    this.#haproxy = haproxy
    this.#datagrams = datagrams
    this.#liveness = liveness
    this.#pace = pace
    saveCounters(this.#counters)
  }

  /** Changes when the counters restart at zero. */
  get epoch(): string {
    return this.#counters.epoch
  }

  /** @param name of a frontend or backend */
  totalOf(name: string): Counters {
    return totalOf(this.#counters, name)
  }

  /** Why servers are down, by path. */
  get failedChecks(): ReadonlyMap<string, FailedCheck> {
    return new Map([...this.#checks].map(([path, { check }]) => [path, check]))
  }

  /** @returns null if HAProxy does not answer, as happens briefly during a reload */
  async take(): Promise<HaproxyObservation | null> {
    if (this.#haproxy.pid() === null) {
      this.#absorb(await this.#readFlows(), new Set())
      return null
    }
    const present = await this.#observe()
    if (present === null) return null
    // The worker serves, even if the master is busy with a reload and does not answer the query below.
    this.#liveness.answered()
    if (!(await this.#findOldWorkers())) return null
    await this.#readCounters(present)
    return present
  }

  async #observe(): Promise<HaproxyObservation | null> {
    const withServerRows = performance.now() - this.#serverRowsAt >= SERVER_ROWS_MS
    // Set it even if no answer comes: the next query is then a cheap one, and its answer shows that HAProxy is alive.
    if (withServerRows) this.#serverRowsAt = performance.now()
    let present = await this.#haproxy.observe(withServerRows)
    if (present?.failedChecks === null && this.#areRowsStale(present.servers)) {
      this.#changedRowsAt = performance.now()
      this.#serverRowsAt = this.#changedRowsAt
      present = (await this.#haproxy.observe(true)) ?? present
    }
    if (present !== null && present.failedChecks !== null) {
      this.#checks = completeChecks(this.#checks, present.failedChecks)
      // What is still hidden is worth another reading soon.
      const isComplete = [...this.#checks.values()].every(({ isPartial }) => !isPartial)
      this.#failures = isComplete ? failuresOf(present.servers) : ''
    }
    return present
  }

  /** Whether other servers are down than when the rows were read, or for other reasons, and reading them again is cheap. */
  #areRowsStale(servers: readonly ServerState[]): boolean {
    const rest = servers.length * CHANGED_ROWS_MS_PER_SERVER
    return performance.now() - this.#changedRowsAt >= rest && failuresOf(servers) !== this.#failures
  }

  /** Queries the master for its old workers if they may have changed. @returns false if it does not answer */
  async #findOldWorkers(): Promise<boolean> {
    const now = performance.now()
    if (!this.#pace.isBusy && this.#oldWorkers.length === 0 && now - this.#workersAt <= WORKERS_MS) return true
    const processes = await this.#haproxy.processes()
    if (processes === null) return false
    this.#oldWorkers = processes.oldWorkerPids
    this.#workersAt = now
    return true
  }

  async #readCounters(present: HaproxyObservation): Promise<void> {
    const readings: Map<string, CountedRow[]> = await this.#readFlows()
    const living = new Set<string>()
    for (const pid of [present.workerPid, ...this.#oldWorkers]) {
      const identity = identityOf(pid)
      if (identity === null) continue
      const key = `${pid}-${identity.startTime}`
      living.add(key)
      const rows = pid === present.workerPid ? present.proxies : await this.#rowsOf(pid)
      if (rows !== null && rows.length > 0) readings.set(key, rows)
    }
    this.#absorb(readings, living)
  }

  /** The flows of UDP and SCTP listeners, as a worker would report its connections. */
  async #readFlows(): Promise<Map<string, CountedRow[]>> {
    const reading = await this.#datagrams.read()
    return new Map(
      reading?.services.map(({ key, listener: { id, poolId }, counters }) => {
        const names = poolId === null ? [id] : [id, `${poolId}:${id}`]
        return [key, names.map(name => ({ name, counters }))]
      }) ?? this.#knownFlows(),
    )
  }

  /** Those of the last reading, as of an earlier agent. */
  #knownFlows(): [string, CountedRow[]][] {
    return Object.entries(this.#counters.workers)
      .filter(([key]) => key.startsWith(SERVICE_PREFIX))
      .map(([key, counted]) => [key, Object.entries(counted).map(([name, counters]) => ({ name, counters }))])
  }

  /** @returns null if the old worker does not answer */
  #rowsOf(pid: number): Promise<ProxyRow[] | null> {
    return this.#haproxy.commandTo(pid, SHOW_PROXIES).then(parseStat, () => null)
  }

  #absorb(readings: ReadonlyMap<string, CountedRow[]>, workers: ReadonlySet<string>): void {
    const next = observe(this.#counters, readings, new Set([...workers, ...readings.keys()]))
    if (JSON.stringify(next) === JSON.stringify(this.#counters)) return
    this.#counters = next
    this.#pace.changed()
    saveCounters(next)
  }
}

/** Changes when a server goes down or its check fails in another way. */
function failuresOf(servers: readonly ServerState[]): string {
  const down = servers.filter(state => state.operational === 'stopped' && !inMaintenance(state))
  return down.map(({ backend, name, checkStatus }) => `${backend}/${name} ${checkStatus}`).join()
}
