import { type ChildProcess, type ChildProcessWithoutNullStreams, spawn } from 'node:child_process'
import { once } from 'node:events'
import { setPriority } from 'node:os'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import type { Inspected } from '../../../../x509/material/inspect.js'
import { type InspectorOptions, NICENESS, TOO_COSTLY } from '../../../inspection/inspector.js'
import { readProcessStat } from '../../../process/process-stat.js'
import { KeyManagerUnavailable } from '../errors.js'
import { type CheckJob, checkLine } from './job.js'

const BUNDLED_PROGRAM = fileURLToPath(new URL('certificate-checker.js', import.meta.url))

/** Many times what the largest material needs. */
const MAX_HEAP_MIB = 128
/** More than the verdicts on the most references that a request may have. */
const MAX_OUTPUT_BYTES = 4 * 1024 * 1024
/** How often the processor time of an inspection is looked at. */
const WATCH_MS = 50

/** The key manager does not accept the token of the service user. */
export class ServiceTokenRefused extends Error {}

/**
 * Checks references in a process without rights, which alone sees keys. An item whose inspection costs too much ends the
 * process; the others get a new one.
 * @returns what was found, by the item's index
 * @throws ServiceTokenRefused, KeyManagerUnavailable, and the reason of the signal
 */
export async function runChecker(
  options: InspectorOptions,
  job: Omit<CheckJob, 'skip'>,
  items: number,
  signal: AbortSignal,
): Promise<ReadonlyMap<number, Inspected>> {
  const found = new Map<number, Inspected>()
  while (found.size < items) {
    const costly = await runOnce(options, { ...job, skip: [...found.keys()] }, found, signal)
    if (costly !== null) found.set(costly, { wrong: TOO_COSTLY })
  }
  return found
}

/** @returns the item whose inspection ended the process; null if it has finished */
async function runOnce(
  { inspectionMilliseconds, program = BUNDLED_PROGRAM }: InspectorOptions,
  job: CheckJob,
  found: Map<number, Inspected>,
  signal: AbortSignal,
): Promise<number | null> {
  signal.throwIfAborted()
  const child = spawn(process.execPath, [`--max-old-space-size=${MAX_HEAP_MIB}`, program], {
    ...{ cwd: '/', env: {}, stdio: 'pipe' as const },
  })
  const ended = once(child, 'close').catch(() => undefined)
  const kill = () => child.kill('SIGKILL')
  signal.addEventListener('abort', kill)
  const errors = errorsOf(child)
  const watch = watchCost(child, inspectionMilliseconds)
  try {
    lowerPriority(child)
    child.stdin.on('error', () => undefined)
    child.stdin.write(`${JSON.stringify(job)}\n`)
    for await (const text of linesOf(child)) {
      const line = checkLine.parse(JSON.parse(text))
      if ('refused' in line) throw new ServiceTokenRefused('the key manager does not accept our token')
      if ('unavailable' in line) throw new KeyManagerUnavailable(line.unavailable)
      if ('begins' in line) watch.begin(line.begins)
      else {
        watch.end()
        found.set(line.found, line.inspected)
      }
    }
    await ended
    signal.throwIfAborted()
    const costly = watch.inspected()
    if (costly !== null) return costly
    if (child.exitCode !== 0) throw new Error(`The certificate checker ended (${child.exitCode}): ${errors()}`)
    return null
  } finally {
    watch.stop()
    signal.removeEventListener('abort', kill)
    kill()
    await ended
  }
}

/** Ends the process when an inspection takes too much of the processor. */
function watchCost(child: ChildProcess, milliseconds: number) {
  let current: { item: number; before: number } | null = null
  const spent = () => (child.pid === undefined ? 0 : (readProcessStat(child.pid)?.processorMilliseconds ?? 0))
  const timer = setInterval(() => {
    if (current !== null && spent() - current.before > milliseconds) child.kill('SIGKILL')
  }, WATCH_MS)
  return {
    begin: (item: number) => {
      current = { item, before: spent() }
    },
    end: () => {
      current = null
    },
    /** The item that is being inspected. */
    inspected: () => current?.item ?? null,
    stop: () => clearInterval(timer),
  }
}

function linesOf(child: ChildProcessWithoutNullStreams): AsyncIterable<string> {
  let bytes = 0
  child.stdout.on('data', (chunk: Buffer) => {
    bytes += chunk.length
    // Whoever has taken it over must not fill this process.
    if (bytes > MAX_OUTPUT_BYTES) child.kill('SIGKILL')
  })
  return createInterface({ input: child.stdout })
}

function errorsOf(child: ChildProcessWithoutNullStreams): () => string {
  let text = ''
  child.stderr.on('data', chunk => {
    if (text.length < 500) text += chunk
  })
  child.once('error', error => {
    text += error.message
  })
  return () => text.slice(0, 500)
}

/** So that requests come first when processors are scarce. */
function lowerPriority({ pid }: ChildProcess): void {
  if (pid === undefined) return
  try {
    setPriority(pid, NICENESS)
  } catch {
    // It has ended already, which its output shows.
  }
}
