import { Worker } from 'node:worker_threads'

/** A program to run without a shell. */
export type Command = { argv: readonly [string, ...string[]]; input: string; timeoutMs: number }

export type Result =
  | { kind: 'exited'; code: number | null; signal: NodeJS.Signals | null; stdout: string; stderr: string }
  /** It could not be started. */
  | { kind: 'failed'; reason: string }
  /** It, or what it has started, has not ended although it was killed. */
  | { kind: 'stuck' }

type Request = { id: number; command: Command }
type Response = { id: number; result: Result }

/** The thread's code. It is passed as text, so it cannot use anything outside this function. */
function threadMain(graceMs: number): void {
  const { parentPort } = process.getBuiltinModule('node:worker_threads')
  const { spawn } = process.getBuiltinModule('node:child_process')
  const run = ({ argv, input, timeoutMs }: Command, report: (result: Result) => void) => {
    const [name, ...args] = argv
    const child = spawn(name, args, { timeout: timeoutMs, killSignal: 'SIGKILL' })
    // Not even SIGKILL ends a program that waits in the kernel, nor what it has started.
    const stuck = setTimeout(() => {
      child.unref()
      report({ kind: 'stuck' })
    }, timeoutMs + graceMs)
    child.on('close', () => clearTimeout(stuck))
    child.on('error', error => {
      clearTimeout(stuck)
      report({ kind: 'failed', reason: error.message })
    })
    // Null if no file descriptors were left for the pipes. The error event reports that.
    if (child.stdin === null || child.stdout === null || child.stderr === null) return
    const stdout: Buffer[] = []
    const stderr: Buffer[] = []
    child.stdout.on('data', chunk => stdout.push(chunk))
    child.stderr.on('data', chunk => stderr.push(chunk))
    child.stdin.on('error', () => undefined)
    child.stdin.end(input)
    child.on('close', (code, signal) => {
      const text = (chunks: Buffer[]) => Buffer.concat(chunks).toString()
      report({ kind: 'exited', code, signal, stdout: text(stdout), stderr: text(stderr) })
    })
  }
  parentPort?.on('message', ({ id, command }: Request) => {
    const report = (result: Result) => parentPort.postMessage({ id, result } satisfies Response)
    try {
      run(command, report)
    } catch (error) {
      report({ kind: 'failed', reason: error instanceof Error ? error.message : String(error) })
    }
  })
}

/** How long a killed program may take to end. */
const GRACE_MS = 2_000

type Pending = { resolve: (result: Result) => void; reject: (error: Error) => void }

let thread: Worker | null = null
const pending = new Map<number, Pending>()
let lastId = 0

/**
 * Runs a program from a separate thread. A thread that starts a program blocks until the program has begun, which takes
 * long on a busy machine.
 */
export function runInThread(command: Command): Promise<Result> {
  thread ??= start()
  const worker = thread
  const id = ++lastId
  return new Promise((resolve, reject) => {
    pending.set(id, { resolve, reject })
    worker.ref()
    worker.postMessage({ id, command } satisfies Request)
  })
}

function start(): Worker {
  const started = new Worker(`(${threadMain})(${GRACE_MS})`, { eval: true, execArgv: [] })
  started.on('message', ({ id, result }: Response) => {
    pending.get(id)?.resolve(result)
    pending.delete(id)
    // Lets the process exit while nothing is pending.
    if (pending.size === 0) started.unref()
  })
  const end = (error: Error) => {
    if (thread !== started) return
    thread = null
    for (const { reject } of pending.values()) reject(error)
    pending.clear()
  }
  started.on('error', end)
  started.on('exit', () => end(new Error('The thread that runs programs exited.')))
  return started
}
