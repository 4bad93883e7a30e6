import type { ChildProcess } from 'node:child_process'
import type { Log } from '../log/log.js'
import { waitFor } from '../time/wait.js'
import { findByArgument, identityOf, isAlive, killIfThere, type ProcessIdentity } from './process-table.js'

/** How often to check a process that an earlier agent started; the kernel tells us of our own children. */
const LOOK_MS = 1_000
/** A process that ran for this long is restarted at once; a shorter-lived one after a growing pause. */
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

/** Keeps one program running, across the agent's own restarts. */
export class Supervisor {
  readonly #supervised: Supervised
  #running: (ProcessIdentity & { since: number }) | null = null
  #desired = false
  #failures = 0
  #restart: NodeJS.Timeout | null = null
  /** Only for a process that is not our child: the kernel tells us when a child ends. */
  #look: NodeJS.Timeout | null = null

  constructor(supervised: Supervised) {
    this.#supervised = supervised
  }

  /** Takes over the process that an earlier agent started, and keeps it running from now on. @returns whether there is one */
  adopt(): boolean {
    const { name, program, argument, log } = this.#supervised
    const [found] = findByArgument(program, argument)
    if (found === undefined) return false
    this.#running = { ...found, since: performance.now() }
    this.#desired = true
    this.#look ??= setInterval(() => this.#noticeEnd(), LOOK_MS)
    log.info(`${name} still runs with pid ${found.pid}`)
    return true
  }

  /** Starts it and keeps it running. Does not wait until it is ready. */
  start(): void {
    // It may have ended unnoticed.
    this.#noticeEnd()
    this.#desired = true
    this.#failures = 0
    this.#begin(null)
  }

  /** Stops keeping it running and lets it end by itself. @param signal asks it to */
  release(signal: NodeJS.Signals): void {
    this.#desired = false
    this.#cancelRestart()
    if (this.#running) killIfThere(this.#running.pid, signal)
  }

  /** Starts a second process beside it, which takes over. */
  replace(): void {
    const replaced = this.#running?.pid ?? null
    this.#desired = true
    this.#running = null
    this.#failures = 0
    this.#begin(replaced)
  }

  /** Ends it, and waits until it is gone. */
  async stop(): Promise<void> {
    const { name, log } = this.#supervised
    this.#desired = false
    this.#cancelRestart()
    const process = this.#running
    if (process) {
      killIfThere(process.pid, 'SIGTERM')
      const gone = await waitFor(() => (isAlive(process) ? null : true), { timeoutMs: 5_000 })
      if (!gone) killIfThere(process.pid, 'SIGKILL')
      log.info(`${name} stopped`)
    }
    this.#running = null
    this.#killLeftovers()
  }

  /** Null while it does not run. */
  pid(): number | null {
    return this.#running && isAlive(this.#running) ? this.#running.pid : null
  }

  /** How many times in a row it ended soon after its start; 0 once it has run for a while. */
  failures(): number {
    const hasLived = this.#running !== null && performance.now() - this.#running.since >= LONG_LIFE_MS
    return hasLived ? 0 : this.#failures
  }

  /** Leaves it running and stops supervising it. */
  close(): void {
    if (this.#look) clearInterval(this.#look)
    if (this.#restart) clearTimeout(this.#restart)
    this.#desired = false
  }

  #noticeEnd(): void {
    if (this.#running && !isAlive(this.#running)) this.#ended()
  }

  #ended(): void {
    if (this.#running === null) return
    const { name, onEnd, log } = this.#supervised
    const lived = performance.now() - this.#running.since
    this.#running = null
    if (!this.#desired) return
    log.error(`${name} ended by itself`)
    onEnd()
    this.#failures = lived >= LONG_LIFE_MS ? 0 : this.#failures + 1
    const pause = this.#failures < 2 ? 0 : Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** (this.#failures - 2))
    this.#beginAfter(pause)
  }

  /** @param replaced the process that the new one takes over from */
  #begin(replaced: number | null): void {
    this.#cancelRestart()
    if (!this.#desired || this.#running) return
    if (replaced === null) this.#killLeftovers()
    const { name, log } = this.#supervised
    let child: ChildProcess
    try {
      child = this.#supervised.spawn(replaced)
    } catch (error) {
      log.error(`${name} cannot be started: ${error instanceof Error ? error.message : String(error)}`)
      this.#failures += 1
      this.#beginAfter(LONGEST_PAUSE_MS)
      return
    }
    this.#follow(child)
    log.info(`${name} started with pid ${child.pid ?? 'none'}`)
  }

  #follow(child: ChildProcess): void {
    const { name, log } = this.#supervised
    child.unref()
    const identity = child.pid === undefined ? null : identityOf(child.pid)
    const running = { pid: child.pid ?? 0, startTime: identity?.startTime ?? 0, since: performance.now() }
    this.#running = running
    const ended = () => {
      if (this.#running === running) this.#ended()
    }
    child.on('exit', ended)
    child.on('error', error => {
      log.error(`${name} cannot be started: ${error.message}`)
      ended()
    })
  }

  #beginAfter(pause: number): void {
    this.#restart = setTimeout(() => this.#begin(null), pause)
  }

  #cancelRestart(): void {
    if (this.#restart) clearTimeout(this.#restart)
    this.#restart = null
  }

  /** Children that outlived their parent would hold its sockets. */
  #killLeftovers(): void {
    const { program, argument } = this.#supervised
    for (const { pid } of findByArgument(program, argument)) killIfThere(pid, 'SIGKILL')
  }
}
