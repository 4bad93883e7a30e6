import { readFileSync, renameSync, writeFileSync } from 'node:fs'
import { z } from 'zod'
import type { Log } from '../log/log.js'
import type { OldWorkerLimits } from '../protocol/desired.js'
import { STATE_DIRECTORY } from '../protocol/paths.js'
import type { Haproxy } from './haproxy.js'
import { commandsFor, isOver, type Leaving, leavingSchema, monotonicMs, pathOf, whoStillLeaves } from './leaving.js'
import { createOldWorkerEnds, observeOldWorkers, surplusOf } from './old-workers.js'
import { closeSessions, closeUnlessOthers, parseSessions, type Session } from './runtime/sessions.js'

const FILE = `${STATE_DIRECTORY}/leaving.json`
/** Soon after a change, for a pool whose members have no time at all. */
const FIRST_LOOK_MS = 50
/** How often a server is tried to be deleted; it can be when its last connection, an idle one included, is closed. */
const LOOK_MS = 500
/** How often it is looked whether old workers are within their limits. */
const OLD_WORKERS_MS = 5_000

export type Drain = {
  leaving: () => readonly Leaving[]
  /** Remembers who leaves, before HAProxy is told, and sees to the rest in the background. */
  begin: (leaving: readonly Leaving[]) => void
  /** The same, and HAProxy itself ends when its old workers have. */
  beginToStop: (leaving: readonly Leaving[]) => void
  /** There is an old worker more. */
  reloaded: () => void
  close: () => void
}

/**
 * Follows servers that leave: closes what is left when their time is over, and deletes them from the present worker when they are free. It
 * also keeps old workers within their limits. What it knows is in a file, so that its successor goes on.
 * @param inTurn runs work while no change of the machine is under way
 */
export function createDrain({
  haproxy,
  limits,
  inTurn,
  onClosed,
  log,
}: {
  haproxy: Haproxy
  /** For old workers, as they are desired now. */
  limits: () => OldWorkerLimits | null
  inTurn: <T>(work: () => Promise<T>) => Promise<T>
  /** With a sentence about it. */
  onClosed: (text: string) => void
  log: Log
}): Drain {
  let leaving = load()
  let thenStop = false
  let hasOldWorkers = false
  let isClosed = false
  let isLooking = false
  let timer: NodeJS.Timeout | null = null
  const ends = createOldWorkerEnds()

  const keep = (next: readonly Leaving[]): boolean => {
    if (JSON.stringify(next) === JSON.stringify(leaving)) return false
    leaving = [...next]
    writeFileSync(`${FILE}.new`, JSON.stringify(leaving), { mode: 0o600 })
    renameSync(`${FILE}.new`, FILE)
    return true
  }

  /** @returns what is then to be done to old workers, which may take a while and needs no turn */
  const look = async (): Promise<(() => Promise<void>)[]> => {
    const processes = await haproxy.processes()
    if (isClosed || (processes === null && haproxy.pid() !== null)) return []
    const worker = processes?.workerPid ?? null
    const oldWorkers = processes?.oldWorkerPids ?? []
    hasOldWorkers = oldWorkers.length > 0
    const ending = planSurplus(oldWorkers)
    const { closed, closing } = await closeWhatIsOver(worker, oldWorkers)
    const deleted = new Set<string>()
    for (const one of leaving.filter(({ removed, held }) => removed && held)) {
      if (worker !== null && (await isDeleted(worker, one))) deleted.add(pathOf(one))
    }
    keep(whoStillLeaves(leaving, monotonicMs(), { deleted, closed, hasOldWorkers }))
    if (thenStop && oldWorkers.length === 0) {
      thenStop = false
      await haproxy.stop()
    }
    return [...closing, ...ending]
  }

  const sessionsOf = async (pid: number): Promise<Session[]> =>
    parseSessions(await haproxy.commandTo(pid, 'show sess').catch(() => ''))

  const closingOf = (pid: number) => ({
    command: (...commands: string[]) => haproxy.commandTo(pid, ...commands).catch(() => ''),
    isOver: () => isClosed,
  })

  /** @returns the paths of servers that still had connections, and what closes those of old workers */
  const closeWhatIsOver = async (worker: number | null, oldWorkers: readonly number[]) => {
    const over = leaving.filter(one => isOver(one, monotonicMs()))
    const closed = new Map<string, number>()
    const closing: (() => Promise<void>)[] = []
    if (over.length === 0) return { closed: new Set<string>(), closing }
    for (const pid of worker === null ? oldWorkers : [worker, ...oldWorkers]) {
      const sessions = await sessionsOf(pid)
      for (const one of over.filter(({ held }) => held || pid !== worker)) {
        const ours = sessions.filter(({ backend, server }) => backend === one.backend && server === one.server.name)
        if (ours.length === 0) continue
        // An old worker has stopped its proxies and takes no command for a server, only for single sessions.
        if (pid !== worker) closing.push(() => closeUnlessOthers(closingOf(pid), ours))
        else await haproxy.commandTo(pid, commandsFor(one).closeSessions).catch(() => '')
        closed.set(pathOf(one), (closed.get(pathOf(one)) ?? 0) + ours.length)
      }
    }
    for (const one of over) {
      const count = closed.get(pathOf(one)) ?? 0
      if (count > 0)
        onClosed(`${count} connections of member ${one.server.name}, ${one.delayMs / 1000} s after it left`)
    }
    return { closed: new Set(closed.keys()), closing }
  }

  /** The oldest of too many old workers end, with what is left of their connections. */
  const planSurplus = (pids: readonly number[]): (() => Promise<void>)[] => {
    const allowed = limits()
    if (allowed === null || pids.length === 0) return []
    const workers = observeOldWorkers(pids)
    const limit = workers.length > allowed.most ? `${allowed.most} of them` : `${allowed.memoryMib} MiB`
    const surplus = surplusOf(workers, allowed).filter(worker => !ends.isEnding(worker))
    return surplus.map(worker => async () => {
      const open = (await sessionsOf(worker.pid)).filter(({ server }) => server !== '<none>')
      await closeSessions(closingOf(worker.pid), open)
      ends.end(worker)
      onClosed(`${open.length} connections of an old worker of HAProxy: more than ${limit}`)
    })
  }

  /** Also when it is gone already, as from a HAProxy that was started anew. */
  const isDeleted = async (worker: number, one: Leaving) => {
    const answer = await haproxy.commandTo(worker, commandsFor(one).remove).catch(() => '')
    return /Server deleted|No such (server|backend)/.test(answer)
  }

  const schedule = (delay: number) => {
    if (timer) clearTimeout(timer)
    timer = isClosed ? null : setTimeout(tick, delay)
  }

  const tick = () => {
    if (isLooking) return schedule(LOOK_MS)
    isLooking = true
    void lookAndClose()
      .catch(error => log.error(`servers that leave: ${String(error)}`))
      .then(() => {
        isLooking = false
        const pause = pauseUntilNext()
        if (pause !== null) schedule(pause)
      })
  }

  const lookAndClose = async () => {
    for (const work of await inTurn(look)) if (!isClosed) await work()
  }

  const pauseUntilNext = (): number | null => {
    if (thenStop || leaving.some(one => one.removed && one.held)) return LOOK_MS
    if (leaving.length === 0) return hasOldWorkers ? OLD_WORKERS_MS : null
    const next = Math.min(...leaving.map(one => one.since + one.delayMs)) - monotonicMs()
    return Math.min(OLD_WORKERS_MS, Math.max(FIRST_LOOK_MS, next))
  }

  const begin = (next: readonly Leaving[], stop: boolean) => {
    const changes = keep(next) || stop !== thenStop
    thenStop = stop
    if (changes && (leaving.length > 0 || thenStop)) schedule(FIRST_LOOK_MS)
  }
  schedule(FIRST_LOOK_MS)

  return {
    leaving: () => leaving,
    begin: next => begin(next, false),
    beginToStop: next => begin(next, true),
    reloaded: () => schedule(FIRST_LOOK_MS),
    close: () => {
      isClosed = true
      if (timer) clearTimeout(timer)
    },
  }
}

function load(): Leaving[] {
  try {
    return z.array(leavingSchema).parse(JSON.parse(readFileSync(FILE, 'utf8')))
  } catch {
    return []
  }
}
