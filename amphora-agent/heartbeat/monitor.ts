import { existsSync, writeFileSync } from 'node:fs'
import type { Store } from '../apply/store.js'
import type { Haproxy, HaproxyLook } from '../haproxy/haproxy.js'
import type { KnownDown } from '../haproxy/known-down.js'
import { planRepair } from '../haproxy/plan-repair.js'
import { type ProxyRow, parseStat, SHOW_PROXIES } from '../haproxy/runtime/stat.js'
import type { Log } from '../log/log.js'
import type { Repairs } from '../log/repairs.js'
import { holdsVip } from '../network/observed.js'
import { activityOf, childrenOf, identityOf, isStopped, killIfThere } from '../process/process-table.js'
import type { Desired } from '../protocol/desired.js'
import { HAPROXY_TRACK_FILE } from '../protocol/paths.js'
import { loadCounters, saveCounters } from '../statistics/counter-file.js'
import { observe, totalOf } from '../statistics/counters.js'
import { changedSince, type Snapshot, snapshotOf } from '../statistics/snapshot.js'
import { untilNextMoment } from '../time/moments.js'
import type { Sender, Standing } from './sender.js'

const LOOK_MS = 1_000
/** Nothing has changed for so long: nobody uses it, and the moments suffice; each look costs, and hundreds of amphorae may stand idle on one host. */
const IDLE_AFTER_MS = 10_000
/** Just after a reload the old worker's last counters are worth more looks, and after a crash the return of service is. */
const BUSY_LOOK_MS = 100
const BUSY_MS = 3_000
const LONGEST_PAUSE_MS = 2_000
const FULL_REPORT_MS = 30_000
/** Its worker ends old connections, and somebody else may have it reload: how often the master is asked for its workers, at least. */
const WORKERS_MS = 30_000
/** How often HAProxy is asked for the limits of its servers, which are rows of their own. */
const SERVER_LIMITS_MS = 8_000
/** A HAProxy that answers nothing for so long does not serve. */
const SILENT_MS = 1_000
/** One that answers nothing and does nothing for so long hangs: it is killed, and started again by its supervisor. */
const HUNG_MS = 1_500
/** One that answers nothing for so long hangs, whatever it does; a machine that is short of processor time may be slow. */
const BUSY_HUNG_MS = 30_000

/** A HAProxy that does not answer: since when, and since when it has not done anything either. */
type Silence = { pid: number; since: number; work: bigint; idleSince: number }

export type Monitor = {
  /** Looks at HAProxy now and reports what changed. */
  look: () => Promise<void>
  /** The old worker is about to count its last: look now, and more often for a while. */
  beforeReload: () => Promise<void>
  /** HAProxy has ended: keepalived must know at once. */
  haproxyEnded: () => void
  /** HAProxy has started and answers. */
  haproxyReady: () => void
  stop: () => Promise<void>
}

/** Watches HAProxy and tells the health managers: beats at their interval, states when they change, everything every half minute. */
export function startMonitor({
  store,
  haproxy,
  knownDown,
  sender,
  repairs,
  drains,
  standing,
  onDrift,
  beatIntervalMs,
  log,
}: {
  store: Store
  haproxy: Haproxy
  knownDown: KnownDown
  sender: Sender
  repairs: Repairs
  /** Whether HAProxy is ending with its last connection, and answers nobody meanwhile. */
  drains: () => boolean
  /** What the comparison with the desired state has found. */
  standing: () => Pick<Standing, 'mismatches' | 'needsApply'>
  /** HAProxy does not run what it should. */
  onDrift: () => void
  beatIntervalMs: number
  log: Log
}): Monitor {
  let counters = loadCounters()
  let sent: Snapshot | null = null
  let sentFor = ''
  let toldMs = 0
  let toldMismatches = ''
  let fullAt = Number.NEGATIVE_INFINITY
  let beatAt = Number.NEGATIVE_INFINITY
  let answeredAt = performance.now()
  let silence: Silence | null = null
  let serverLimitsAt = Number.NEGATIVE_INFINITY
  let workersAt = Number.NEGATIVE_INFINITY
  let oldWorkers: readonly number[] = []
  let busyUntil = 0
  /** When counters or states last changed. */
  let changedAt = performance.now()
  let tracked: boolean | null = null
  let stopped = false
  let timer: NodeJS.Timeout | null = null
  let queue = Promise.resolve()

  const setServing = (serving: boolean) => {
    if (serving === tracked) return
    tracked = serving
    writeFileSync(HAPROXY_TRACK_FILE, serving ? '0\n' : '-254\n')
  }

  const isIdle = () => performance.now() > Math.max(busyUntil, changedAt + IDLE_AFTER_MS)

  const lookOnce = async () => {
    const desired = store.confirmed()
    const observation = await observeHaproxy()
    const now = performance.now()
    if (observation !== null) knownDown.see(observation.servers)
    const pid = haproxy.pid()
    if (observation !== null || pid === null) answeredAt = now
    if (observation !== null || pid === null || drains()) silence = null
    else endHung(pid, now)
    if (!existsSync(HAPROXY_TRACK_FILE)) tracked = null
    if (pid === null) setServing(desired !== null && desired.haproxy === null)
    else if (observation !== null) setServing(true)
    else if (now - answeredAt > SILENT_MS) setServing(false)
    if (observation !== null && desired !== null && !drains() && differs(desired, observation)) onDrift()

    const present = standingOf(desired, standing())
    const changed = present.mismatches.join() !== toldMismatches
    // Rather before its time than between two moments.
    const isDue = now + (isIdle() ? untilNextMoment(now) : 0) - beatAt >= beatIntervalMs
    if (changed || isDue) {
      await sender.beat(present, pid !== null && now - answeredAt <= SILENT_MS)
      toldMismatches = present.mismatches.join()
    }
    // In the gap of a reload nothing is known: what was said before stands.
    if (desired !== null && (observation !== null || haproxy.pid() === null)) {
      const snapshot = snapshotOf(desired, observation ?? { proxies: [], servers: [] }, name => totalOf(counters, name))
      if (desired.sha256 !== sentFor) sent = null
      const full = sent === null || now - fullAt >= FULL_REPORT_MS
      const changes = changedSince(full ? null : sent, snapshot, isDue ? 'anything' : 'states')
      const latest = repairs.latest()
      if (changes.listeners.length + changes.pools.length > 0 && !full) changedAt = now
      const news = latest.filter(({ atMs }) => full || atMs > toldMs)
      if (full || changes.listeners.length + changes.pools.length + news.length > 0) {
        await sender.report(present, { epoch: counters.epoch, ...changes, repairs: news })
        toldMs = latest.at(-1)?.atMs ?? toldMs
        sent = merge(sent, snapshot, changes)
        sentFor = desired.sha256
        if (full) fullAt = now
      }
    }
    if (isDue) beatAt = now
  }

  /** @returns null when HAProxy does not answer, as for a moment during a reload */
  const observeHaproxy = async (): Promise<HaproxyLook | null> => {
    if (haproxy.pid() === null) {
      absorb(new Map(), new Set())
      return null
    }
    const withServerLimits = performance.now() - serverLimitsAt >= SERVER_LIMITS_MS
    // Also when no answer comes: the next look is a cheap one, by which HAProxy shows that it lives.
    if (withServerLimits) serverLimitsAt = performance.now()
    const present = await haproxy.look(withServerLimits)
    if (present === null) return null
    const now = performance.now()
    // Its worker serves, whatever the master says, which is busy during a reload.
    answeredAt = now
    silence = null
    if (now < busyUntil || oldWorkers.length > 0 || now - workersAt > WORKERS_MS) {
      const processes = await haproxy.processes()
      if (processes === null) return null
      oldWorkers = processes.oldWorkerPids
      workersAt = now
    }
    const readings = new Map<string, ProxyRow[]>()
    const living = new Set<string>()
    for (const pid of [present.workerPid, ...oldWorkers]) {
      const identity = identityOf(pid)
      if (identity === null) continue
      const key = `${pid}-${identity.startTime}`
      living.add(key)
      const isPresent = pid === present.workerPid
      const rows = isPresent ? present.proxies : await haproxy.commandTo(pid, SHOW_PROXIES).then(parseStat, () => null)
      if (rows !== null && rows.length > 0) readings.set(key, rows)
    }
    absorb(readings, living)
    return present
  }

  const differs = (desired: Desired, present: HaproxyLook): boolean => {
    const { haproxy: part } = desired
    if (part === null) return false
    return haproxy.isForeign(present.workerPid) || planRepair({ ...desired, haproxy: part }, present).found.length > 0
  }

  const absorb = (readings: ReadonlyMap<string, ProxyRow[]>, living: ReadonlySet<string>) => {
    const next = observe(counters, readings, living)
    if (JSON.stringify(next) === JSON.stringify(counters)) return
    counters = next
    changedAt = performance.now()
    saveCounters(counters)
  }

  /** One whose sockets are gone cannot answer, and serves: that is for the comparison with the desired state. */
  const endHung = (pid: number, now: number) => {
    const processes = [pid, ...childrenOf(pid)]
    const activities = processes.map(activityOf)
    const work = activities.reduce((sum, each) => sum + each.work, 0n)
    const isIdle = processes.some(isStopped) || !activities.some(({ running }) => running)
    if (!haproxy.isReachable()) silence = null
    else if (silence === null || silence.pid !== pid) silence = { pid, since: now, work, idleSince: now }
    else if (!isIdle || work !== silence.work) silence = { ...silence, work, idleSince: now }
    if (silence === null) return
    if (now - silence.idleSince < HUNG_MS && now - silence.since < BUSY_HUNG_MS) return
    repairs.note('HAProxy hung: it is killed and started again')
    silence = null
    // A worker that is stopped does not notice that its master is gone, and keeps its share of new connections.
    for (const each of processes) killIfThere(each)
  }

  const look = (): Promise<void> => {
    queue = queue.then(lookOnce).catch(error => log.error(`look failed: ${String(error)}`))
    return queue
  }

  const tick = () => {
    const started = performance.now()
    void look().then(() => {
      if (stopped) return
      const spent = performance.now() - started
      if (silence !== null) return schedule(BUSY_LOOK_MS)
      if (isIdle()) {
        const untilBeat = beatAt + beatIntervalMs - performance.now()
        return schedule(Math.min(untilNextMoment(), Math.max(LOOK_MS, untilBeat)))
      }
      const pause = performance.now() < busyUntil ? BUSY_LOOK_MS : LOOK_MS
      // Thousands of servers make a look long: then it is taken less often.
      schedule(Math.min(LONGEST_PAUSE_MS, Math.max(pause - spent, 5 * spent)))
    })
  }

  const lookOften = () => {
    busyUntil = performance.now() + BUSY_MS
    schedule(BUSY_LOOK_MS)
  }

  const schedule = (delay: number) => {
    if (timer) clearTimeout(timer)
    timer = setTimeout(tick, delay)
  }
  saveCounters(counters)
  tick()

  return {
    look,
    beforeReload: async () => {
      await look()
      lookOften()
    },
    haproxyEnded: () => {
      setServing(false)
      lookOften()
    },
    haproxyReady: () => setServing(true),
    stop: async () => {
      stopped = true
      if (timer) clearTimeout(timer)
      await queue
    },
  }
}

function standingOf(
  desired: Desired | null,
  { mismatches, needsApply }: Pick<Standing, 'mismatches' | 'needsApply'>,
): Standing {
  const isInEffect = desired !== null && !needsApply
  return {
    generation: desired?.generation ?? 0,
    configHash: isInEffect ? desired.sha256.slice(0, 16) : '0'.repeat(16),
    needsApply: !isInEffect,
    vrrpMaster: desired !== null && holdsVip(desired),
    mismatches,
  }
}

/** What the health managers know after the changes: the rest of the snapshot they have not been told. */
function merge(sent: Snapshot | null, now: Snapshot, changes: ReturnType<typeof changedSince>): Snapshot {
  if (sent === null) return now
  const listeners = [...sent.listeners]
  const pools = [...sent.pools]
  for (const { index } of changes.listeners) listeners[index] = now.listeners[index]!
  for (const { index } of changes.pools) pools[index] = now.pools[index]!
  return { listeners, pools }
}
