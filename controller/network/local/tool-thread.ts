import { Worker } from 'node:worker_threads'

/** A program to run without a shell, and what becomes of it. */
export type Errand = { words: readonly [string, ...string[]]; input: string; limitMs: number }

export type Result =
  | { kind: 'ended'; code: number | null; signal: NodeJS.Signals | null; output: string; complaints: string }
  /** It could not be started. */
  | { kind: 'failed'; reason: string }

type Sent = { number: number; errand: Errand }
type Received = { number: number; result: Result }

/** The program of the thread. It is passed on as text, so nothing outside it is in its reach. */
function program(): void {
  const { parentPort } = process.getBuiltinModule('node:worker_threads')
  const { spawn } = process.getBuiltinModule('node:child_process')
  const run = ({ words, input, limitMs }: Errand, tell: (result: Result) => void) => {
    const [name, ...args] = words
    const child = spawn(name, args, { timeout: limitMs, killSignal: 'SIGKILL' })
    child.on('error', error => tell({ kind: 'failed', reason: error.message }))
    // Without open files for its pipes it has none: the error says so.
    if (child.stdin === null || child.stdout === null || child.stderr === null) return
    const output: Buffer[] = []
    const complaints: Buffer[] = []
    child.stdout.on('data', chunk => output.push(chunk))
    child.stderr.on('data', chunk => complaints.push(chunk))
    child.stdin.on('error', () => undefined)
    child.stdin.end(input)
    child.on('close', (code, signal) => {
      const text = (chunks: Buffer[]) => Buffer.concat(chunks).toString()
      tell({ kind: 'ended', code, signal, output: text(output), complaints: text(complaints) })
    })
  }
  parentPort?.on('message', ({ number, errand }: Sent) => {
    const tell = (result: Result) => parentPort.postMessage({ number, result } satisfies Received)
    try {
      run(errand, tell)
    } catch (error) {
      tell({ kind: 'failed', reason: error instanceof Error ? error.message : String(error) })
    }
  })
}

type Waiting = { resolve: (result: Result) => void; reject: (error: Error) => void }

let thread: Worker | null = null
const waiting = new Map<number, Waiting>()
let last = 0

/**
 * Runs a program from a thread of its own: a process that starts another one stands still until the other has begun, and on a busy machine that takes
 * long.
 */
export function runInThread(errand: Errand): Promise<Result> {
  thread ??= start()
  const own = thread
  const number = ++last
  return new Promise((resolve, reject) => {
    waiting.set(number, { resolve, reject })
    own.ref()
    own.postMessage({ number, errand } satisfies Sent)
  })
}

function start(): Worker {
  const started = new Worker(`(${program})()`, { eval: true, execArgv: [] })
  started.on('message', ({ number, result }: Received) => {
    waiting.get(number)?.resolve(result)
    waiting.delete(number)
    // Whoever waits for nothing may end.
    if (waiting.size === 0) started.unref()
  })
  const end = (error: Error) => {
    if (thread !== started) return
    thread = null
    for (const { reject } of waiting.values()) reject(error)
    waiting.clear()
  }
  started.on('error', end)
  started.on('exit', () => end(new Error('The thread that runs programs has ended.')))
  return started
}
