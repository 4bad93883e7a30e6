import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import type { Krater } from '../worlds/krater.js'

/** A line of a worker's log that tells where it is. `at` is in milliseconds of the machine's clock. */
export type WorkerLine = {
  at: number
  level: number
  msg: string
  step?: string
  loadBalancer?: string
  amphora?: string
  fence?: number
  generation?: number
}

const ERROR = 50

export type TestWorker = {
  pid: number
  /** Everything that it has logged so far. */
  lines: WorkerLine[]
  /**
   * Calls `act` at once for the first matching line from now on. Resolves with that line, or with null when the
   * worker ends without one.
   */
  at: (matches: (line: WorkerLine) => boolean, act?: () => void) => Promise<WorkerLine | null>
  signal: (signal: NodeJS.Signals) => void
  isAlive: () => boolean
  /** kill -9 */
  kill: () => Promise<void>
}

/**
 * Starts a worker of the test besides those of the service. Resolves when it is ready. It is killed with the
 * test.
 */
export async function startWorker(
  krater: Krater,
  settings: Readonly<Record<string, string>> = {},
): Promise<TestWorker> {
  const child = startWith(krater, settings)
  const lines: WorkerLine[] = []
  const watchers = new Set<(line: WorkerLine) => void>()
  const ended = once(child, 'exit')
  const output = createInterface({ input: child.stdout! })
  output.on('line', text => {
    const line = parse(text)
    if (line === null) return
    // A worker's errors are bugs, and a failed test cannot be understood without them.
    if (line.level >= ERROR) process.stderr.write(`${text}\n`)
    lines.push(line)
    for (const watch of watchers) watch(line)
  })
  child.stderr!.pipe(process.stderr)

  const at: TestWorker['at'] = (matches, act) =>
    new Promise(resolve => {
      const done = (line: WorkerLine | null) => {
        watchers.delete(watch)
        output.removeListener('close', close)
        resolve(line)
      }
      const close = () => done(null)
      const watch = (line: WorkerLine) => {
        if (!matches(line)) return
        act?.()
        done(line)
      }
      watchers.add(watch)
      output.once('close', close)
    })

  if ((await at(line => line.msg === 'worker is ready')) === null) throw new Error('the worker did not start')
  return {
    pid: child.pid!,
    lines,
    at,
    signal: signal => void child.kill(signal),
    isAlive: () => child.exitCode === null && child.signalCode === null,
    kill: async () => {
      child.kill('SIGKILL')
      await ended
    },
  }
}

/** The harness passes its environment to each child that it starts. */
function startWith(krater: Krater, settings: Readonly<Record<string, string>>): ChildProcess {
  const before = { ...krater.environment }
  try {
    return Object.assign(krater.environment, settings) && krater.start('worker')
  } finally {
    for (const name of Object.keys(settings)) {
      if (before[name] === undefined) delete krater.environment[name]
      else krater.environment[name] = before[name]
    }
  }
}

function parse(text: string): WorkerLine | null {
  if (!text.startsWith('{')) return null
  const line = JSON.parse(text) as WorkerLine & { time: string }
  return { ...line, at: Date.parse(line.time) }
}

/** One converge of one load balancer by one worker. */
export type Converge = { loadBalancer: string; worker: number; fence: number; begin: number; end: number }

/** The converges of several workers, in the order in which they began; one that was cut off ends with its worker's last line. */
export function convergesOf(workers: readonly TestWorker[]): Converge[] {
  return workers
    .flatMap(({ lines }, worker) => {
      const last = lines.at(-1)?.at ?? 0
      return lines.flatMap((line, index): Converge[] => {
        if (line.msg !== 'converge begins') return []
        const { loadBalancer = '', fence = 0, at: begin } = line
        const end = lines
          .slice(index)
          .find(later => later.msg === 'converge ends' && later.loadBalancer === loadBalancer)
        return [{ loadBalancer, worker, fence, begin, end: end?.at ?? last }]
      })
    })
    .sort((a, b) => a.begin - b.begin)
}
