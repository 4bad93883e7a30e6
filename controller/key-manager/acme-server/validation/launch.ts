import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { failed, type ProbeJob, type ProbeResult, probeResult } from '../probe/job.js'

const BUNDLED_PROGRAM = fileURLToPath(new URL('acme-probe.js', import.meta.url))

/** Milliseconds that a probe may take, without the time to start it. */
const PROBE_MS = 10_000
const START_MS = 10_000
const MAX_HEAP_MIB = 64

export type Launch = {
  /** The probe's program; by default the bundled one. */
  program?: string
  /** Starts it in a network namespace of its own, which has nothing but what `connect` gives it. */
  isolated: boolean
  /** Connects the namespace of the process. @returns a function that undoes it */
  connect?: (pid: number) => Promise<() => Promise<void>>
}

/**
 * Runs one probe in a process without rights, which is gone afterwards.
 * @throws Error if the process cannot be started or connected; what the other side does is a result
 */
export async function launchProbe(
  { program = BUNDLED_PROGRAM, isolated, connect }: Launch,
  job: ProbeJob,
  signal: AbortSignal,
): Promise<ProbeResult> {
  const words = [process.execPath, `--max-old-space-size=${MAX_HEAP_MIB}`, program]
  const [command = '', ...args] = isolated ? ['unshare', '--net', '--', ...words] : words
  const child = spawn(command, args, { cwd: '/', env: {}, stdio: 'pipe' })
  const ended = once(child, 'close').catch(() => undefined)
  const lines = linesOf(child)
  let disconnect = async () => {}
  try {
    const start = await within(lines.next(), START_MS, signal)
    if (start !== 'ready') throw new Error(`The probe did not start: ${lines.errors().slice(0, 500)}`)
    if (connect !== undefined) disconnect = await connect(child.pid ?? 0)
    child.stdin.write(`${JSON.stringify(job)}\n`)
    const line = await within(lines.next(), PROBE_MS, signal)
    if (line === null) return failed('connection', `no answer within ${PROBE_MS / 1000} s`)
    return probeResult.parse(JSON.parse(line))
  } finally {
    child.kill('SIGKILL')
    await ended
    await disconnect()
  }
}

/** More than any result. */
const MAX_OUTPUT_BYTES = 65_536

/** The next line, or null after the time or at the end of the output. */
function linesOf(child: ChildProcessWithoutNullStreams) {
  const waiting: ((line: string | null) => void)[] = []
  const come: (string | null)[] = []
  const add = (line: string | null) => {
    const next = waiting.shift()
    if (next === undefined) come.push(line)
    else next(line)
  }
  let errors = ''
  child.stderr.on('data', chunk => {
    if (errors.length < 2000) errors += chunk
  })
  let bytes = 0
  child.stdout.on('data', (chunk: Buffer) => {
    bytes += chunk.length
    // Whoever has taken over a probe must not fill this process.
    if (bytes > MAX_OUTPUT_BYTES) child.kill('SIGKILL')
  })
  // A process that is gone before it reads its job.
  child.stdin.on('error', () => undefined)
  child.once('error', error => {
    errors += error.message
    add(null)
  })
  createInterface({ input: child.stdout })
    .on('line', add)
    .once('close', () => add(null))
  return {
    errors: () => errors,
    next: () =>
      new Promise<string | null>(resolve => {
        const line = come.shift()
        if (line === undefined) waiting.push(resolve)
        else resolve(line)
      }),
  }
}

function within(next: Promise<string | null>, milliseconds: number, signal: AbortSignal): Promise<string | null> {
  return new Promise(resolve => {
    const finish = (line: string | null) => {
      clearTimeout(timer)
      signal.removeEventListener('abort', onAbort)
      resolve(line)
    }
    const onAbort = () => finish(null)
    const timer = setTimeout(onAbort, milliseconds)
    signal.addEventListener('abort', onAbort)
    if (signal.aborted) onAbort()
    void next.then(finish)
  })
}
