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

/**
 * Keeps the processes of a service running. Each is in a process group of its own, so that Ctrl-C reaches only the supervisor, which then
 * ends them in order; should the supervisor be killed, the closing channel tells them.
 */
export function createSupervisor(options: SupervisorOptions): Supervisor {
  const { stateDirectory, command, environment, report, reportEveryMs = REPORT_EVERY } = options
  type Slot = { current: ChildProcess | null; timer: NodeJS.Timeout | null; patience: NodeJS.Timeout }
  const children = new Map<ChildName, Slot>()
  let stopping = false
  const rotation = setInterval(() => {
    for (const name of children.keys()) rotateLog(logFile(stateDirectory, name))
  }, 10_000)

  const launch = (name: ChildName, attempt: number, onReady: () => void, onEnd: (words: string) => void) => {
    const slot = children.get(name)
    if (slot === undefined || stopping) return
    const [program, ...args] = command(name)
    const log = openLog(logFile(stateDirectory, name))
    const child = spawn(program, args, {
      cwd: '/',
      detached: true,
      env: environment,
      stdio: ['ignore', log, log, 'ipc'],
    })
    closeSync(log)
    slot.current = child
    const started = performance.now()
    child.on('message', message => {
      if (message === 'ready') onReady()
    })
    let ended = false
    const end = (how: string) => {
      if (ended) return
      ended = true
      slot.current = null
      if (stopping) return
      const failures = performance.now() - started > HEALTHY_AFTER ? 0 : attempt
      const wait = pause(failures)
      report(`${name} ${how}; it is started again in ${wait} ms. Its log: ${logFile(stateDirectory, name)}`)
      onEnd(`${name} ${how}. Its last words:\n${lastWords(logFile(stateDirectory, name), 5)}`)
      slot.timer = setTimeout(() => launch(name, failures + 1, onReady, onEnd), wait)
    }
    child.on('error', error => end(`cannot be started (${error.message})`))
    child.on('exit', (code, signal) => end(signal === null ? `ended with status ${code}` : `was ended by ${signal}`))
  }

  return {
    start: name =>
      new Promise((resolve, reject) => {
        const begun = performance.now()
        const patience = setInterval(() => {
          const seconds = Math.round((performance.now() - begun) / 1000)
          report(`${name} is not ready after ${seconds} s; waiting. Its log: ${logFile(stateDirectory, name)}`)
        }, reportEveryMs)
        children.set(name, { current: null, timer: null, patience })
        let ends = 0
        launch(
          name,
          0,
          () => {
            clearInterval(patience)
            resolve()
          },
          words => {
            ends += 1
            if (ends < 3) return
            clearInterval(patience)
            reject(new Error(words))
          },
        )
      }),
    stop: async () => {
      stopping = true
      clearInterval(rotation)
      const running = [...children.values()]
      for (const { timer, patience } of running) {
        clearInterval(patience)
        if (timer !== null) clearTimeout(timer)
      }
      await Promise.all(running.flatMap(({ current }) => (current === null ? [] : [endChild(current)])))
    },
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
