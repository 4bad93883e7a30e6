import { getPriority, setPriority } from 'node:os'
import { fileURLToPath } from 'node:url'
import { Worker } from 'node:worker_threads'
import type { Inspected } from '../../x509/material/inspect.js'
import type { Material } from '../../x509/material/material.js'
import { readProcessStat } from '../process/process-stat.js'
import type { ThreadMessage } from './inspector-thread.js'

export type Inspector = {
  /**
   * Overwrites the bytes of the material. Not for concurrent calls.
   * @throws the reason of the signal when it aborts the inspection
   */
  inspect: (material: Material, signal: AbortSignal) => Promise<Inspected>
  /** Ends the thread and frees all that it has read. */
  close: () => Promise<void>
}

export type InspectorOptions = {
  /** CPU time per material. A thread that waits for a processor on a busy machine spends none. */
  inspectionMilliseconds: number
  /** The thread's script. Default: the one beside the bundle. */
  program?: string
  /** Where its threads come from. Default: each is started when it is needed. */
  threads?: InspectorThreads
}

type Started = { worker: Worker; task: string }

/** Threads that have read nothing yet. A start takes far longer than most inspections. */
export type InspectorThreads = {
  /** @throws the reason of the signal when it aborts the start */
  take: (signal: AbortSignal) => Promise<Started>
  /** Starts a thread for the next `take`, unless there is one. It does not keep the process alive. */
  prepare: () => void
}

/** Per thread: many times what the largest material needs. */
const MEMORY = { maxOldGenerationSizeMb: 128, maxYoungGenerationSizeMb: 16 }

/** For a thread to load its program. */
const START_LIMIT_MS = 20_000

export const TOO_COSTLY = 'it takes too long or too much memory to read'

const BUNDLED_PROGRAM = fileURLToPath(new URL('inspector-thread.js', import.meta.url))

/**
 * Inspects in a separate thread with limited CPU time and memory, as tenants can craft material that is expensive to
 * read. A thread that reaches a limit is terminated; the next material gets a new one.
 */
export function createInspector({
  inspectionMilliseconds,
  program = BUNDLED_PROGRAM,
  threads = createInspectorThreads(program),
}: InspectorOptions): Inspector {
  let thread: Started | null = null

  const end = async (): Promise<void> => {
    const ended = thread
    thread = null
    await ended?.worker.terminate()
  }
  const inspect = async (material: Material, signal: AbortSignal): Promise<Inspected> => {
    thread ??= await threads.take(signal)
    const { worker, task } = thread
    const { copy, buffers } = moveOut(material)
    const before = processorMilliseconds(task)
    worker.postMessage(copy, buffers)
    for (let left = inspectionMilliseconds; left > 0; ) {
      const answer = await nextEvent(worker, left, signal)
      if (typeof answer === 'object' && 'wrong' in answer) return answer
      if (answer === 'gone' || signal.aborted) break
      left = inspectionMilliseconds - (processorMilliseconds(task) - before)
    }
    await end()
    signal.throwIfAborted()
    return { wrong: TOO_COSTLY }
  }
  return { inspect, close: end }
}

export function createInspectorThreads(program = BUNDLED_PROGRAM): InspectorThreads {
  let spare: Started | 'starting' | null = null
  return {
    take: async signal => {
      if (spare === null || spare === 'starting') return start(program, signal)
      const taken = spare
      spare = null
      if (taken.worker.threadId === ENDED) return start(program, signal)
      taken.worker.ref()
      return taken
    },
    prepare: () => {
      if (spare !== null) return
      spare = 'starting'
      start(program, AbortSignal.timeout(START_LIMIT_MS)).then(
        started => {
          started.worker.unref()
          spare = started
        },
        () => {
          // Whoever needs one starts it, and reports why it does not start.
          spare = null
        },
      )
    },
  }
}

const ENDED = -1

async function start(program: string, signal: AbortSignal): Promise<Started> {
  const worker = new Worker(program, { resourceLimits: MEMORY, execArgv: [] })
  const first = await nextEvent(worker, START_LIMIT_MS, signal)
  if (typeof first === 'object' && 'task' in first) {
    lowerPriority(first.task)
    return { worker, task: first.task }
  }
  await worker.terminate()
  signal.throwIfAborted()
  throw new Error('The certificate inspector thread did not start.')
}

/**
 * @returns the thread's next message, `silent` after the time limit, or `gone`
 * @throws the error that ended it, unless it ran out of memory
 */
function nextEvent(
  thread: Worker,
  milliseconds: number,
  signal: AbortSignal,
): Promise<ThreadMessage | 'silent' | 'gone'> {
  return new Promise((resolve, reject) => {
    const settle = (outcome: () => void) => {
      clearTimeout(limit)
      signal.removeEventListener('abort', onSilent)
      for (const event of ['message', 'exit']) thread.removeAllListeners(event)
      outcome()
    }
    const onSilent = () => settle(() => resolve('silent'))
    const limit = setTimeout(onSilent, signal.aborted ? 0 : milliseconds)
    signal.addEventListener('abort', onSilent)
    // Stays for the thread's lifetime: an unhandled error would end this process.
    thread.removeAllListeners('error').on('error', (error: NodeJS.ErrnoException) => {
      settle(() => (error.code === 'ERR_WORKER_OUT_OF_MEMORY' ? resolve('gone') : reject(error)))
    })
    thread.once('message', (message: ThreadMessage) => settle(() => resolve(message)))
    thread.once('exit', () => settle(() => resolve('gone')))
  })
}

/** For threads with long computations, so that requests come first when processors are scarce. */
export const NICENESS = 10

/** On Linux each thread has its own priority. */
function lowerPriority(task: string): void {
  setPriority(Number(task.split('/').at(-1)), Math.max(NICENESS, getPriority()))
}

/** CPU time that a thread of this process has spent. */
function processorMilliseconds(task: string): number {
  const stat = readProcessStat(task)
  if (stat === null) throw new Error(`the inspector thread ${task} is gone`)
  return stat.processorMilliseconds
}

/** A copy in transferable buffers. Overwrites the original. */
function moveOut(material: Material): { copy: object; buffers: ArrayBuffer[] } {
  const buffers: ArrayBuffer[] = []
  const members = Object.entries(material).map(([name, value]) => {
    if (!(value instanceof Uint8Array)) return [name, value]
    const own = new Uint8Array(value.length)
    own.set(value)
    value.fill(0)
    buffers.push(own.buffer)
    return [name, own]
  })
  return { copy: Object.fromEntries(members), buffers }
}
