import { type ChildProcess, spawn } from 'node:child_process'
import { closeSync } from 'node:fs'
import { lastWords, logFile, openLog, rotateLog } from '../../host/log-files.js'
import type { ProcessName } from '../../state-directory/run-record.js'

export type ChildName = Exclude<ProcessName, 'up' | 'api'>

export type SupervisorOptions = {
  stateDirectory: string
  /** Program and arguments of a child; it sends 'ready' over its channel when it works, and ends by itself when the channel closes. */
  command: (name: ChildName) => [program: string, ...args: string[]]
  environment: NodeJS.ProcessEnv
  report: (line: string) => void
  /** Between two lines about a child that is not ready yet; 30 s when not given. */
  reportEveryMs?: number
}

export type Supervisor = {
  /**
   * Starts a child and keeps it running. Resolves when it is ready, however long that takes on a busy machine, and never after `stop`.
   * @throws Error with its last words when it ends again and again
   */
  start: (name: ChildName) => Promise<void>
  /** Ends every child; those that do not end in time are killed. */
  stop: () => Promise<void>
}

/** Pause before the n-th restart in a row. */
const pause = (attempt: number): number => Math.min(200 * 2 ** attempt, 10_000)
/** A child that ran this long is healthy: its next end counts as the first. */
const HEALTHY_AFTER = 20_000
const REPORT_EVERY = 30_000
const END_WITHIN = 10_000
/** A child that ends so often before it was ready will not become ready. */
const MOST_ENDS_AT_START = 3

/**
 * Keeps the processes of a service running. Each is in a process group of its own, so that Ctrl-C reaches only the supervisor, which then
 * ends them in order; should the supervisor be killed, the closing channel tells them.
 */
export function createSupervisor(options: SupervisorOptions): Supervisor {
  const children: Child[] = []
  const rotation = setInterval(() => {
    for (const { log } of children) rotateLog(log)
  }, 10_000)
  return {
    start: name => {
      const child = new Child(name, options)
      children.push(child)
      return child.start()
    },
    stop: async () => {
      clearInterval(rotation)
      await Promise.all(children.map(child => child.stop()))
    },
  }
}

/** One process that is started again whenever it ends. */
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

  /** @param attempt how many launches in a row have failed before */
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

  /** Says now and then that it is not ready yet. */
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
