import type { ChildProcess } from 'node:child_process'
import type { Log } from '../log/log.js'
import { waitFor } from '../time/wait.js'
import { findByArgument, identityOf, isAlive, killIfRunning, type ProcessIdentity } from './process-table.js'

/** How often to check a process that an earlier agent started. The kernel reports the exit of our own children. */
const POLL_MS = 1_000
/** A process that ran for this long is restarted at once; one that ran for less, after a growing pause. */
const LONG_RUN_MS = 5_000
const FIRST_PAUSE_MS = 100
const MAX_PAUSE_MS = 5_000

export type SupervisorOptions = {
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
  readonly #options: SupervisorOptions
  #running: (ProcessIdentity & { since: number }) | null = null
  #desired = false
  #failures = 0
  #restart: NodeJS.Timeout | null = null
  /** Only for a process that is not our child: the kernel reports the exit of a child. */
  #pollTimer: NodeJS.Timeout | null = null

  constructor(options: SupervisorOptions) {
    this.#options = options
  }

  /** Adopts the process that an earlier agent started, and keeps it running. @returns whether there is one */
  adopt(): boolean {
    const { name, program, argument, log } = this.#options
    const [found] = findByArgument(program, argument)
    if (found === undefined) return false
    this.#running = { ...found, since: performance.now() }
    this.#desired = true
    this.#pollTimer ??= setInterval(() => this.#checkAlive(), POLL_MS)
    log.info(`${name} adopted: it runs with pid ${found.pid}`)
    return true
  }

  /** Starts the process and keeps it running. Does not wait until it is ready. */
  start(): void {
    // It may have exited since the last check.
    this.#checkAlive()
    this.#desired = true
    this.#failures = 0
    this.#begin(null)
  }

  /** Stops supervising the process and lets it exit by itself. @param signal asks it to exit */
  release(signal: NodeJS.Signals): void {
    this.#desired = false
    this.#cancelRestart()
    if (this.#running) killIfRunning(this.#running.pid, signal)
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
    const { name, log } = this.#options
    this.#desired = false
    this.#cancelRestart()
    const process = this.#running
    if (process) {
      killIfRunning(process.pid, 'SIGTERM')
      const gone = await waitFor(() => (isAlive(process) ? null : true), { timeoutMs: 5_000 })
      if (!gone) killIfRunning(process.pid, 'SIGKILL')
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
    const hasLived = this.#running !== null && performance.now() - this.#running.since >= LONG_RUN_MS
    return hasLived ? 0 : this.#failures
  }

  /** Stops supervising the process and leaves it running. */
  close(): void {
    if (this.#pollTimer) clearInterval(this.#pollTimer)
    if (this.#restart) clearTimeout(this.#restart)
    this.#desired = false
  }

  #checkAlive(): void {
    if (this.#running && !isAlive(this.#running)) this.#onExit()
  }

  #onExit(): void {
    if (this.#running === null) return
    const { name, onEnd, log } = this.#options
    const ranForMs = performance.now() - this.#running.since
    this.#running = null
    if (!this.#desired) return
    log.error(`${name} exited unexpectedly`)
    onEnd()
    this.#failures = ranForMs >= LONG_RUN_MS ? 0 : this.#failures + 1
    const pause = this.#failures < 2 ? 0 : Math.min(MAX_PAUSE_MS, FIRST_PAUSE_MS * 2 ** (this.#failures - 2))
    this.#beginAfter(pause)
  }

  /** @param replaced pid of the process that the new one takes over from */
  #begin(replaced: number | null): void {
    this.#cancelRestart()
    if (!this.#desired || this.#running) return
    if (replaced === null) this.#killLeftovers()
    const { name, log } = this.#options
    let child: ChildProcess
    try {
      child = this.#options.spawn(replaced)
    } catch (error) {
      log.error(`${name} cannot be started: ${error instanceof Error ? error.message : String(error)}`)
      this.#failures += 1
      this.#beginAfter(MAX_PAUSE_MS)
      return
    }
    this.#follow(child)
    log.info(`${name} started with pid ${child.pid ?? 'none'}`)
  }

  #follow(child: ChildProcess): void {
    const { name, log } = this.#options
    child.unref()
    const identity = child.pid === undefined ? null : identityOf(child.pid)
    const running = { pid: child.pid ?? 0, startTime: identity?.startTime ?? 0, since: performance.now() }
    this.#running = running
    const ended = () => {
      if (this.#running === running) this.#onExit()
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
    const { program, argument } = this.#options
    for (const { pid } of findByArgument(program, argument)) killIfRunning(pid, 'SIGKILL')
  }
}
