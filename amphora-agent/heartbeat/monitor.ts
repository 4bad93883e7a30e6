import { writeFileSync } from 'node:fs'
import { networkInterfaces } from 'node:os'
import type { Store } from '../apply/store.js'
import type { Haproxy } from '../haproxy/haproxy.js'
import type { KnownDown } from '../haproxy/known-down.js'
import { parseServersState } from '../haproxy/servers-state.js'
import { type ProxyRow, parseStat, SHOW_PROXIES } from '../haproxy/stat.js'
import type { Log } from '../log/log.js'
import { canonical } from '../network/address.js'
import { identityOf } from '../process/process-table.js'
import type { Desired } from '../protocol/desired.js'
import { HAPROXY_TRACK_FILE } from '../protocol/paths.js'
import type { Repairs } from '../reconcile/repairs.js'
import { loadCounters, saveCounters } from '../statistics/counter-file.js'
import { observe, totalOf } from '../statistics/counters.js'
import { changedSince, type Observation, type Snapshot, snapshotOf } from '../statistics/snapshot.js'
import type { Sender, Standing } from './sender.js'

const LOOK_MS = 500
/** Just after a reload the old worker's last counters are worth more looks, and after a crash the return of service is. */
const BUSY_LOOK_MS = 100
const BUSY_MS = 3_000
const LONGEST_PAUSE_MS = 2_000
const FULL_REPORT_MS = 30_000
/** A HAProxy that answers nothing for so long hangs: it is killed, and started again by its supervisor. */
const HUNG_MS = 30_000

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
  beatIntervalMs,
  log,
}: {
  store: Store
  haproxy: Haproxy
  knownDown: KnownDown
  sender: Sender
  repairs: Repairs
  beatIntervalMs: number
  log: Log
}): Monitor {
  let counters = loadCounters()
  let sent: Snapshot | null = null
  let sentFor = ''
  let toldMs = 0
  let fullAt = Number.NEGATIVE_INFINITY
  let beatAt = Number.NEGATIVE_INFINITY
  let answeredAt = performance.now()
  let busyUntil = 0
  let tracked: boolean | null = null
  let stopped = false
  let timer: NodeJS.Timeout | null = null
  let queue = Promise.resolve()

  const setServing = (serving: boolean) => {
    if (serving === tracked) return
    tracked = serving
    writeFileSync(HAPROXY_TRACK_FILE, serving ? '0\n' : '-254\n')
  }

  const lookOnce = async () => {
    const desired = store.confirmed()
    const observation = await observeHaproxy()
    const now = performance.now()
    if (observation !== null) knownDown.see(observation.servers)
    if (observation !== null || haproxy.pid() === null) answeredAt = now
    else if (now - answeredAt > HUNG_MS) killHung()
    if (haproxy.pid() === null) setServing(desired !== null && desired.haproxy === null)
    else if (observation !== null) setServing(true)
    else if (now - answeredAt > 2 * LOOK_MS) setServing(false)

    const standing = standingOf(store)
    if (now - beatAt >= beatIntervalMs) {
      await sender.beat(standing, haproxy.pid() !== null && now - answeredAt <= 2 * LOOK_MS)
    }
    // In the gap of a reload nothing is known: what was said before stands.
    if (desired !== null && (observation !== null || haproxy.pid() === null)) {
      const snapshot = snapshotOf(desired, observation ?? { proxies: [], servers: [] }, name => totalOf(counters, name))
      if (desired.sha256 !== sentFor) sent = null
      const full = sent === null || now - fullAt >= FULL_REPORT_MS
      const changes = changedSince(full ? null : sent, snapshot, now - beatAt >= beatIntervalMs ? 'anything' : 'states')
      const latest = repairs.latest()
      const news = latest.filter(({ atMs }) => full || atMs > toldMs)
      if (full || changes.listeners.length + changes.pools.length + news.length > 0) {
        await sender.report(standing, { epoch: counters.epoch, ...changes, repairs: news })
        toldMs = latest.at(-1)?.atMs ?? toldMs
        sent = merge(sent, snapshot, changes)
        sentFor = desired.sha256
        if (full) fullAt = now
      }
    }
    if (now - beatAt >= beatIntervalMs) beatAt = now
  }

  /** @returns null when HAProxy does not answer, as for a moment during a reload */
  const observeHaproxy = async (): Promise<Observation | null> => {
    const processes = haproxy.pid() === null ? null : await haproxy.processes()
    if (processes === null) {
      if (haproxy.pid() === null) absorb(new Map(), new Set())
      return null
    }
    const readings = new Map<string, ProxyRow[]>()
    const living = new Set<string>()
    let present: ProxyRow[] | null = null
    for (const pid of [processes.workerPid, ...processes.oldWorkerPids]) {
      const identity = pid === null ? null : identityOf(pid)
      if (pid === null || identity === null) continue
      const key = `${pid}-${identity.startTime}`
      living.add(key)
      const rows = await haproxy.commandTo(pid, SHOW_PROXIES).then(parseStat, () => null)
      if (rows === null || rows.length === 0) continue
      readings.set(key, rows)
      if (pid === processes.workerPid) present = rows
    }
    absorb(readings, living)
    if (present === null || processes.workerPid === null) return null
    const states = await haproxy.commandTo(processes.workerPid, 'show servers state').catch(() => null)
    return states === null ? null : { proxies: present, servers: parseServersState(states) }
  }

  const absorb = (readings: ReadonlyMap<string, ProxyRow[]>, living: ReadonlySet<string>) => {
    const next = observe(counters, readings, living)
    if (JSON.stringify(next) === JSON.stringify(counters)) return
    counters = next
    saveCounters(counters)
  }

  const killHung = () => {
    const pid = haproxy.pid()
    repairs.note('HAProxy hung and was killed')
    answeredAt = performance.now()
    if (pid !== null) process.kill(pid, 'SIGKILL')
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

function standingOf(store: Store): Standing {
  const desired = store.confirmed()
  return {
    generation: desired?.generation ?? 0,
    configHash: desired?.sha256.slice(0, 16) ?? '0'.repeat(16),
    needsApply: desired === null,
    vrrpMaster: desired !== null && holdsVip(desired),
    mismatches: [],
  }
}

/** A single amphora holds what it is told to; of a pair that is keepalived's affair. */
function holdsVip({ interfaces, keepalived }: Desired): boolean {
  const vips = interfaces.flatMap(card => card.vips)
  if (keepalived === null) return vips.length > 0
  const held = new Set(Object.values(networkInterfaces()).flatMap(list => (list ?? []).map(({ address }) => address)))
  return vips.some(({ address }) => held.has(canonical(address)))
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
