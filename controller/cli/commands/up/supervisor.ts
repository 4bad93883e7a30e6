import { type ChildProcess, spawn } from 'node:child_process'
import { closeSync } from 'node:fs'
import { lastWords, logFile, openLog, rotateLog } from '../../host/log-files.js'
import type { ProcessName } from '../../state-directory/run-record.js'

export type ChildName = Exclude<ProcessName, 'up' | 'api'>

export type SupervisorOptions = {
  stateDirectory: string
  /** Program and arguments of a child. The child sends 'ready' over its IPC channel and exits when the channel closes. */
  command: (name: ChildName) => [program: string, ...args: string[]]
  environment: NodeJS.ProcessEnv
  report: (line: string) => void
  /** Interval of reports about a child that is not ready yet; 30 s by default. */
  reportEveryMs?: number
}

export type Supervisor = {
  /**
   * Starts a child and keeps it running. Resolves when it is ready, however long that takes on a busy machine, but never after `stop`.
   * @throws Error with the end of its log when it keeps failing
   */
  start: (name: ChildName) => Promise<void>
  /** Stops every child and kills those that do not stop in time. */
  stop: () => Promise<void>
}

/** Milliseconds before the n-th restart in a row. */
const pause = (attempt: number): number => Math.min(200 * 2 ** attempt, 10_000)
/** After this long a child counts as healthy, and its back-off starts over. */
const HEALTHY_AFTER = 20_000
const REPORT_EVERY = 30_000
const END_WITHIN = 10_000
/** A child that fails this often before it is ready is given up. */
const MOST_ENDS_AT_START = 3

/**
 * Keeps the processes of a service running. Each has its own process group, so Ctrl-C reaches only the supervisor, which then stops them in
 * order. If the supervisor is killed, the closed IPC channel tells them.
 */
export function createSupervisor(options: SupervisorOptions): Supervisor {
  const children: Child[] = []
  let isStopping = false
  const rotation = setInterval(() => {
    for (const { log } of children) rotateLog(log)
  }, 10_000)
  return {
    start: name => {
      if (isStopping) return new Promise(() => undefined)
      const child = new Child(name, options)
      children.push(child)
      return child.start()
    },
    stop: async () => {
      isStopping = true
      clearInterval(rotation)
      await Promise.all(children.map(child => child.stop()))
    },
  }
}

/** A process that is restarted whenever it ends. */
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
    let ends = 0
    return new Promise((resolve, reject) => {
      const onReady = () => {
        this.#stopReminding()
        resolve()
      }
      const onEnd = (words: string) => {
        ends += 1
        if (ends < MOST_ENDS_AT_START) return
        this.#stopReminding()
        reject(new Error(words))
      }
      this.#launch(0, onReady, onEnd)
    })
  }

  async stop(): Promise<void> {
    this.#isStopping = true
    this.#stopReminding()
    if (this.#restart !== null) clearTimeout(this.#restart)
    if (this.#current !== null) await endChild(this.#current)
  }

  /** @param attempt how many launches in a row have failed */
  #launch(attempt: number, onReady: () => void, onEnd: (words: string) => void): void {
    if (this.#isStopping) return
    const child = this.#spawn()
    this.#current = child
    const started = performance.now()
    child.on('message', message => {
      if (message === 'ready') onReady()
    })
    const end = (how: string) => {
      if (this.#current !== child) return
      this.#current = null
      if (this.#isStopping) return
      const failures = performance.now() - started > HEALTHY_AFTER ? 0 : attempt
      const wait = pause(failures)
      this.#options.report(`${this.#name} ${how}; it is started again in ${wait} ms. Its log: ${this.log}`)
      onEnd(`${this.#name} ${how}. Its last words:\n${lastWords(this.log, 5)}`)
      this.#restart = setTimeout(() => this.#launch(failures + 1, onReady, onEnd), wait)
    }
    child.on('error', error => end(`cannot be started (${error.message})`))
    child.on('exit', (code, signal) => end(signal === null ? `ended with status ${code}` : `was ended by ${signal}`))
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
    const { report, reportEveryMs = REPORT_EVERY } = this.#options
    const begun = performance.now()
    this.#reminder = setInterval(() => {
      const seconds = Math.round((performance.now() - begun) / 1000)
      report(`${this.#name} is not ready after ${seconds} s; waiting. Its log: ${this.log}`)
    }, reportEveryMs)
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
    const impatience = setTimeout(() => child.kill('SIGKILL'), END_WITHIN)
    child.once('exit', () => {
      clearTimeout(impatience)
      resolve()
    })
    child.kill('SIGTERM')
  })
}
