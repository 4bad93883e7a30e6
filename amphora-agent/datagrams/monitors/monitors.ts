import type { Log } from '../../log/log.js'
import { canonical } from '../../network/address.js'
import { afterResult, type Standing } from '../../ping/judge.js'
import type { FailedCheck } from '../../protocol/checks.js'
import type { DatagramMember, DatagramPool } from '../../protocol/datagrams.js'
import type { MemberMonitors } from '../member-states.js'
import { type Probe, type ProbeResult, probeOnce } from './probe.js'
import { Prober } from './prober.js'
import { firstPause, nextStart, phaseOf } from './schedule.js'
import { type KeptState, loadStates, saveStates } from './state-file.js'

/** How long to collect changed states before they are written. */
const SAVE_MS = 100
/** How soon to try again what could not be tried. */
const RETRY_MS = 2_000

type MonitorsOptions = {
  /** Members went up or down, or fail for other reasons. Changes at one moment are one call. */
  onChange: () => void
  /** The process that probes ended, or hung; another one takes its place. */
  onFailure: (text: string) => void
  log: Log
}

/** A member that is probed. */
type Watched = {
  /** What the state belongs to. */
  subject: string
  probe: Probe
  /** Where in each delay it is probed. */
  phase: number
  /** Null until a probe has ended. */
  standing: Standing | null
  failed: FailedCheck | null
  timer: NodeJS.Timeout | null
  isStopped: boolean
}

/** Probes the members of UDP and SCTP pools as their monitors say, all of them by one process. */
export class Monitors implements MemberMonitors {
  readonly #options: MonitorsOptions
  /** By pool and member. */
  #watched: ReadonlyMap<string, Watched> = new Map()
  /** What an earlier agent knew, until somebody says what to watch. */
  #kept = loadStates()
  /** Null while there is nothing to probe. */
  #prober: Prober | null = null
  #announcing: NodeJS.Immediate | null = null
  #saving: NodeJS.Timeout | null = null

  constructor(options: MonitorsOptions) {
    this.#options = options
  }

  isUp(poolId: string, memberId: string): boolean | null {
    const standing = this.#watched.get(keyOf(poolId, memberId))?.standing ?? null
    return standing && standing.verdict === 'up'
  }

  failedCheck(poolId: string, memberId: string): FailedCheck | null {
    return this.#watched.get(keyOf(poolId, memberId))?.failed ?? null
  }

  watch(pools: readonly DatagramPool[], downMembers: readonly string[]): void {
    const states = new Map([...this.#kept, ...this.#states()])
    const down = new Set(downMembers)
    const next = new Map<string, Watched>()
    const appearing: Watched[] = []
    for (const pool of pools) {
      for (const member of pool.members) {
        if (pool.monitor === null || member.disabled) continue
        const key = keyOf(pool.id, member.id)
        const fresh = watchedMember(pool.id, member, { monitor: pool.monitor, ...member.monitor })
        const present = this.#watched.get(key)
        if (present !== undefined && isSame(present, fresh)) {
          next.set(key, present)
          continue
        }
        const known = states.get(fresh.subject) ?? (down.has(member.id) ? { verdict: 'down', failed: null } : null)
        next.set(key, { ...fresh, ...stateOf(known) })
        appearing.push(next.get(key)!)
      }
    }
    for (const [key, watched] of this.#watched) if (next.get(key) !== watched) stop(watched)
    this.#watched = next
    this.#kept = new Map()
    this.#provideProber()
    for (const [position, watched] of appearing.entries()) this.#schedule(watched, firstPause(position))
    this.#saveSoon()
  }

  async close(): Promise<void> {
    for (const watched of this.#watched.values()) stop(watched)
    if (this.#announcing) clearImmediate(this.#announcing)
    if (this.#saving) this.#save()
    await this.#prober?.close()
  }

  #provideProber(): void {
    if (this.#watched.size === 0) {
      void this.#prober?.close()
      this.#prober = null
    } else {
      this.#prober ??= new Prober(this.#options)
    }
  }

  #schedule(watched: Watched, pauseMs: number): void {
    watched.timer = setTimeout(() => void this.#probe(watched), pauseMs)
  }

  async #probe(watched: Watched): Promise<void> {
    if (this.#prober === null) return
    const started = performance.now()
    const result = await probeOnce(this.#prober, watched.probe)
    if (watched.isStopped) return
    const ended = performance.now()
    this.#judge(watched, result)
    const delayMs = watched.probe.monitor.delay * 1000
    const next = result === 'unknown' ? ended + RETRY_MS : nextStart(started, ended, watched.phase, delayMs)
    this.#schedule(watched, next - ended)
  }

  #judge(watched: Watched, result: ProbeResult): void {
    if (result === 'unknown') return
    const before = JSON.stringify(keptStateOf(watched))
    watched.standing = afterResult(watched.standing, result === 'passed', watched.probe.monitor)
    if (watched.standing.verdict === 'up') watched.failed = null
    else if (result !== 'passed') watched.failed = result
    if (JSON.stringify(keptStateOf(watched)) === before) return
    this.#saveSoon()
    this.#announcing ??= setImmediate(() => {
      this.#announcing = null
      this.#options.onChange()
    })
  }

  #states(): Map<string, KeptState> {
    const known = [...this.#watched.values()].map(watched => [watched.subject, keptStateOf(watched)] as const)
    return new Map(known.filter((entry): entry is [string, KeptState] => entry[1] !== null))
  }

  #saveSoon(): void {
    this.#saving ??= setTimeout(() => this.#save(), SAVE_MS)
  }

  #save(): void {
    if (this.#saving) clearTimeout(this.#saving)
    this.#saving = null
    try {
      saveStates(this.#states())
    } catch (error) {
      this.#options.log.error(`cannot keep the states of members: ${String(error)}`)
    }
  }
}

const keyOf = (poolId: string, memberId: string): string => `${poolId} ${memberId}`

/** Its state stays the same if its id, its monitor's type or times change. */
function watchedMember(poolId: string, { address, port }: DatagramMember, probe: Probe): Watched {
  const subject = `${poolId} ${canonical(address)} ${port} ${canonical(probe.address)} ${probe.port}`
  const phase = phaseOf(subject, probe.monitor.delay * 1000)
  return { subject, probe, phase, standing: null, failed: null, timer: null, isStopped: false }
}

const isSame = (one: Watched, other: Watched): boolean =>
  one.subject === other.subject && JSON.stringify(one.probe) === JSON.stringify(other.probe)

const stateOf = (known: KeptState | null): Pick<Watched, 'standing' | 'failed'> =>
  known === null
    ? { standing: null, failed: null }
    : { standing: { verdict: known.verdict, against: 0 }, failed: known.failed }

const keptStateOf = ({ standing, failed }: Watched): KeptState | null =>
  standing && { verdict: standing.verdict, failed }

function stop(watched: Watched): void {
  watched.isStopped = true
  if (watched.timer) clearTimeout(watched.timer)
}
