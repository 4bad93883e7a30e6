import { type ChildProcess, spawn } from 'node:child_process'
import { closeSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { lastLines, logFile, openLog, rotateLog } from '../../host/log-files.js'
import { OperatorError } from '../../operator-error.js'
import type { ProcessName } from '../../state-directory/run-record.js'

export type ChildName = Exclude<ProcessName, 'up' | 'api'>

export type SupervisorOptions = {
  stateDirectory: string
  /** Program and arguments of a child, which sends 'ready' over its IPC channel and exits when the channel closes. */
  command: (name: ChildName) => [program: string, ...args: string[]]
  environment: NodeJS.ProcessEnv
  report: (line: string) => void
  /** Interval between reports about a child that is not ready yet; 30 s by default. */
  reportIntervalMs?: number
}

export type Supervisor = {
  /**
   * Starts a child and keeps it running. Resolves when the child is ready, however long that takes on a busy machine,
   * but never after `stop`.
   * @throws OperatorError with the last lines of its log when it keeps failing
   */
  start: (name: ChildName) => Promise<void>
  /** Starts children in their order, a few at a time. */
  startAll: (names: readonly ChildName[]) => Promise<void>
  /** Stops every child; kills those that do not stop in time. */
  stop: () => Promise<void>
}

/** Milliseconds to wait before restarting a child after `failures` failed launches in a row. */
const restartDelay = (failures: number): number => Math.min(200 * 2 ** failures, 10_000)
/** A child that ran this long counts as healthy: its back-off starts over. */
const HEALTHY_AFTER_MS = 20_000
const REPORT_INTERVAL_MS = 30_000
const STOP_TIMEOUT_MS = 10_000
/** Gives up on a child that exits this often before it is ready. */
const MAX_EXITS_AT_START = 3
/** All at once, children on a slow machine would keep one another waiting for longer than they wait for a database. */
const STARTING_AT_ONCE = Math.max(4, availableParallelism())

/**
 * Keeps the processes of a service running. Each has its own process group, so Ctrl-C reaches only the supervisor,
 * which then stops them in order. If the supervisor is killed, the closed IPC channel makes them exit.
 */
export function createSupervisor(options: SupervisorOptions): Supervisor {
  const children: Child[] = []
  let isStopping = false
  const rotation = setInterval(() => {
    for (const { log } of children) rotateLog(log)
  }, 10_000)
  const start = (name: ChildName): Promise<void> => {
    if (isStopping) return new Promise(() => undefined)
    const child = new Child(name, options)
    children.push(child)
    return child.start()
  }
  return {
    start,
    startAll: async names => {
      const waiting = names.values()
      const startOneByOne = async () => {
        for (const name of waiting) await start(name)
      }
      await Promise.all(Array.from({ length: STARTING_AT_ONCE }, startOneByOne))
    },
    stop: async () => {
      isStopping = true
      clearInterval(rotation)
      await Promise.all(children.map(child => child.stop()))
    },
  }
}

/** A process that is restarted whenever it exits. */
class Child {
  readonly log: string
  readonly #name: ChildName
  readonly #options: SupervisorOptions
  #current: ChildProcess | null = null
  #restart: NodeJS.Timeout | null = null
  #reminder: NodeJS.Timeout | null = null
  #isStopping = false

  constructor(name: ChildName, options: SupervisorOptions) {
    this.#name = name
    this.#options = options
    this.log = logFile(options.stateDirectory, name)
  }

  start(): Promise<void> {
    this.#remind()
    let exits = 0
    return new Promise((resolve, reject) => {
      const onReady = () => {
        this.#stopReminding()
        resolve()
      }
      const onExit = (reason: string) => {
        exits += 1
        if (exits < MAX_EXITS_AT_START) return
        this.#stopReminding()
        reject(new OperatorError(reason))
      }
      this.#launch(0, onReady, onExit)
    })
  }

  async stop(): Promise<void> {
    this.#isStopping = true
    this.#stopReminding()
    if (this.#restart !== null) clearTimeout(this.#restart)
    if (this.#current !== null) await endChild(this.#current)
  }

  /** @param failures number of failed launches in a row */
  #launch(failures: number, onReady: () => void, onExit: (reason: string) => void): void {
    if (this.#isStopping) return
    const child = this.#spawn()
    this.#current = child
    const started = performance.now()
    child.on('message', message => {
      if (message === 'ready') onReady()
    })
    const restart = (how: string) => {
      if (this.#current !== child) return
      this.#current = null
      if (this.#isStopping) return
      const failed = performance.now() - started > HEALTHY_AFTER_MS ? 0 : failures
      const delay = restartDelay(failed)
      this.#options.report(`${this.#name} ${how}; restarting it in ${delay} ms. Its log: ${this.log}`)
      onExit(`${this.#name} ${how}. The end of its log:\n${lastLines(this.log, 5)}`)
      this.#restart = setTimeout(() => this.#launch(failed + 1, onReady, onExit), delay)
    }
    child.on('error', error => restart(`cannot be started (${error.message})`))
    child.on('exit', (code, signal) =>
      restart(signal === null ? `exited with status ${code}` : `was killed by ${signal}`),
    )
  }

  #spawn(): ChildProcess {
    const { command, environment } = this.#options
    const [program, ...args] = command(this.#name)
    const log = openLog(this.log)
    try {
      return spawn(program, args, { cwd: '/', detached: true, env: environment, stdio: ['ignore', log, log, 'ipc'] })
    } finally {
      closeSync(log)
    }
  }

  /** Reports periodically until the child is ready. */
  #remind(): void {
    const { report, reportIntervalMs = REPORT_INTERVAL_MS } = this.#options
    const begun = performance.now()
    this.#reminder = setInterval(() => {
      const seconds = Math.round((performance.now() - begun) / 1000)
      report(`${this.#name} is not ready after ${seconds} s; still waiting. Its log: ${this.log}`)
    }, reportIntervalMs)
  }

  #stopReminding(): void {
    if (this.#reminder !== null) clearInterval(this.#reminder)
  }
}

function endChild(child: ChildProcess): Promise<void> {
  return new Promise(resolve => {
    if (child.exitCode !== null || child.signalCode !== null) {
      resolve()
      return
    }
    const timeout = setTimeout(() => child.kill('SIGKILL'), STOP_TIMEOUT_MS)
    child.once('exit', () => {
      clearTimeout(timeout)
      resolve()
    })
    child.kill('SIGTERM')
  })
}
