import type { ChildProcess } from 'node:child_process'
import type { Log } from '../log/log.js'
import { waitFor } from '../time/wait.js'
import { findByArgument, identityOf, isAlive, killIfThere, type ProcessIdentity } from './process-table.js'

/** How often a process that an earlier agent started is looked at; our own children tell us themselves. */
const LOOK_MS = 1_000
/** A process that lived this long is started again at once, a shorter-lived one after a growing pause. */
const LONG_LIFE_MS = 5_000
const FIRST_PAUSE_MS = 100
const LONGEST_PAUSE_MS = 5_000

export type Supervised = {
  name: string
  program: string
  /** An argument by which our process and its children are recognised in the process table. */
  argument: string
  /**
   * Starts it detached, so that it outlives the agent.
   * @param replaced the process that it takes over from and tells to end in peace; null when there is none
   */
  spawn: (replaced: number | null) => ChildProcess
  /** It ended without being asked to; called before it is started again. */
  onEnd: () => void
  log: Log
}

export type Supervisor = {
  /** Takes over what an earlier agent started, if it still runs. From now on it is desired. */
  adopt: () => boolean
  /** Wants it to run, now and after every end. Does not wait until it is ready. */
  start: () => void
  /** No longer wants it, but leaves its end to itself. @param signal tells it */
  release: (signal: NodeJS.Signals) => void
  /** Starts another one beside it, which takes over. */
  replace: () => void
  /** No longer wants it, and waits until it is gone. */
  stop: () => Promise<void>
  /** Null while it does not run. */
  pid: () => number | null
  /** How often in a row it ended soon after its start; 0 once it has lived for long. */
  failures: () => number
  /** Leaves it running and stops looking after it. */
  close: () => void
}

/** Keeps one program running, across the agent's own restarts. */
export function createSupervisor(supervised: Supervised): Supervisor {
  const { name, program, argument, log } = supervised
  let running: (ProcessIdentity & { since: number }) | null = null
  let desired = false
  let failures = 0
  let restart: NodeJS.Timeout | null = null
  /** Only for one that is not our child: the end of a child is told. */
  let look: NodeJS.Timeout | null = null

  const ended = () => {
    if (running === null) return
    const lived = performance.now() - running.since
    running = null
    if (!desired) return
    log.error(`${name} ended by itself`)
    supervised.onEnd()
    failures = lived >= LONG_LIFE_MS ? 0 : failures + 1
    const pause = failures < 2 ? 0 : Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** (failures - 2))
    restart = setTimeout(() => begin(), pause)
  }

  const begin = (replaced: number | null = null) => {
    if (restart) clearTimeout(restart)
    restart = null
    if (!desired || running) return
    if (replaced === null) killLeftovers()
    let child: ChildProcess
    try {
      child = supervised.spawn(replaced)
    } catch (error) {
      log.error(`${name} cannot be started: ${error instanceof Error ? error.message : String(error)}`)
      failures += 1
      restart = setTimeout(() => begin(), LONGEST_PAUSE_MS)
      return
    }
    child.unref()
    const identity = child.pid === undefined ? null : identityOf(child.pid)
    running = { pid: child.pid ?? 0, startTime: identity?.startTime ?? 0, since: performance.now() }
    const mine = running
    const childEnded = () => {
      if (running === mine) ended()
    }
    child.on('exit', childEnded)
    child.on('error', error => {
      log.error(`${name} cannot be started: ${error.message}`)
      childEnded()
    })
    log.info(`${name} started with pid ${child.pid ?? 'none'}`)
  }

  /** Children that outlived their parent would hold its sockets. */
  const killLeftovers = () => {
    for (const { pid } of findByArgument(program, argument)) killIfThere(pid, 'SIGKILL')
  }

  return {
    adopt: () => {
      const [found] = findByArgument(program, argument)
      if (found === undefined) return false
      running = { ...found, since: performance.now() }
      desired = true
      look ??= setInterval(() => {
        if (running && !isAlive(running)) ended()
      }, LOOK_MS)
      log.info(`${name} still runs with pid ${found.pid}`)
      return true
    },
    start: () => {
      // Nobody may have told of its end yet.
      if (running !== null && !isAlive(running)) ended()
      desired = true
      failures = 0
      begin()
    },
    release: signal => {
      desired = false
      if (restart) clearTimeout(restart)
      restart = null
      if (running) killIfThere(running.pid, signal)
    },
    replace: () => {
      const replaced = running?.pid ?? null
      desired = true
      running = null
      failures = 0
      begin(replaced)
    },
    stop: async () => {
      desired = false
      if (restart) clearTimeout(restart)
      restart = null
      const process = running
      if (process) {
        killIfThere(process.pid, 'SIGTERM')
        const gone = await waitFor(() => (isAlive(process) ? null : true), { timeoutMs: 5_000 })
        if (!gone) killIfThere(process.pid, 'SIGKILL')
        log.info(`${name} stopped`)
      }
      running = null
      killLeftovers()
    },
    pid: () => (running && isAlive(running) ? running.pid : null),
    failures: () => (running !== null && performance.now() - running.since >= LONG_LIFE_MS ? 0 : failures),
    close: () => {
      if (look) clearInterval(look)
      if (restart) clearTimeout(restart)
      desired = false
    },
  }
}
