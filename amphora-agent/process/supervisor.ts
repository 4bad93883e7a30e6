import type { ChildProcess } from 'node:child_process'
import type { Log } from '../log/log.js'
import { waitFor } from '../time/wait.js'
import { findByArgument, identityOf, isAlive, killIfThere, type ProcessIdentity } from './process-table.js'

/** How often to check a process that an earlier agent started. The kernel reports the exit of our own children. */
const LOOK_MS = 1_000
/** A process that ran for this long is restarted at once; one that ran for less, after a growing pause. */
const LONG_LIFE_MS = 5_000
const FIRST_PAUSE_MS = 100
const LONGEST_PAUSE_MS = 5_000

export type Supervised = {
  name: string
  program: string
  /** An argument that identifies our process and its children in the process table. */
  argument: string
  /**
   * Starts the process detached, so that it outlives the agent.
   * @param replaced pid of the process to take over from and to shut down gracefully; null if there is none
   */
  spawn: (replaced: number | null) => ChildProcess
  /** Called when the process exits unexpectedly, before it is restarted. */
  onEnd: () => void
  log: Log
}

/** Keeps one program running, also across restarts of the agent. */
export class Supervisor {
  readonly #supervised: Supervised
  #running: (ProcessIdentity & { since: number }) | null = null
  #desired = false
  #failures = 0
  #restart: NodeJS.Timeout | null = null
  /** Only for a process that is not our child: the kernel reports the exit of a child. */
  #look: NodeJS.Timeout | null = null

  constructor(supervised: Supervised) {
    this.#supervised = supervised
  }

  /** Adopts the process that an earlier agent started, and keeps it running. @returns whether there is one */
  adopt(): boolean {
    const { name, program, argument, log } = this.#supervised
    const [found] = findByArgument(program, argument)
    if (found === undefined) return false
    this.#running = { ...found, since: performance.now() }
    this.#desired = true
    this.#look ??= setInterval(() => this.#noticeEnd(), LOOK_MS)
    log.info(`${name} adopted: it runs with pid ${found.pid}`)
    return true
  }

  /** Starts the process and keeps it running. Does not wait until it is ready. */
  start(): void {
    // It may have exited since the last check.
    this.#noticeEnd()
    this.#desired = true
    this.#failures = 0
    this.#begin(null)
  }

  /** Stops supervising the process and lets it exit by itself. @param signal asks it to exit */
  release(signal: NodeJS.Signals): void {
    this.#desired = false
    this.#cancelRestart()
    if (this.#running) killIfThere(this.#running.pid, signal)
  }

  /** Starts a second process that takes over from this one. */
  replace(): void {
    const replaced = this.#running?.pid ?? null
    this.#desired = true
    this.#running = null
    this.#failures = 0
    this.#begin(replaced)
  }

  /** Terminates the process and waits until it has exited. */
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

  /** Null while the process does not run. */
  pid(): number | null {
    return this.#running && isAlive(this.#running) ? this.#running.pid : null
  }

  /** How many times in a row the process exited soon after its start; 0 once it has run for a while. */
  failures(): number {
    const hasLived = this.#running !== null && performance.now() - this.#running.since >= LONG_LIFE_MS
    return hasLived ? 0 : this.#failures
  }

  /** Stops supervising the process and leaves it running. */
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
    log.error(`${name} exited unexpectedly`)
    onEnd()
    this.#failures = lived >= LONG_LIFE_MS ? 0 : this.#failures + 1
    const pause = this.#failures < 2 ? 0 : Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** (this.#failures - 2))
    this.#beginAfter(pause)
  }

  /** @param replaced pid of the process that the new one takes over from */
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

  /** Kills children that outlived their parent: they would hold its sockets. */
  #killLeftovers(): void {
    const { program, argument } = this.#supervised
    for (const { pid } of findByArgument(program, argument)) killIfThere(pid, 'SIGKILL')
  }
}
