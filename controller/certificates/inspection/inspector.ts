import { getPriority, setPriority } from 'node:os'
import { fileURLToPath } from 'node:url'
import { Worker } from 'node:worker_threads'
import { readProcessStat } from '../../process/process-stat.js'
import type { FromThread } from './inspector-thread.js'
import type { Material } from './material.js'

export type Inspector = {
  /**
   * What is wrong with it, as a clause that may be shown, or null. To be called for one material after another. Its bytes are
   * overwritten.
   * @param signal ends the inspection: nothing is known then
   * @throws the reason of the signal
   */
  inspect: (material: Material, signal: AbortSignal) => Promise<string | null>
  /** Ends the thread, and with it all that it has seen. */
  close: () => Promise<void>
}

export type InspectorOptions = {
  /** Of a processor, for one material: a thread that waits for its turn on a busy machine spends none. */
  inspectionMilliseconds: number
  /** The script of the thread; the one beside the bundle when not given. */
  program?: string
}

type Started = { worker: Worker; task: string }

/** Of a thread: many times what the largest material needs. */
const MEMORY = { maxOldGenerationSizeMb: 128, maxYoungGenerationSizeMb: 16 }

/** For a thread to load its program. */
const START_LIMIT_MS = 20_000

const TOO_COSTLY = 'it takes too long, or too much memory, to be read'

const beside = fileURLToPath(new URL('inspector-thread.js', import.meta.url))

/**
 * Inspects in a thread of its own, with limits of processor time and memory: what others have stored may be made to cost much. A thread that comes to
 * them is ended, and the next material has a new one.
 */
export function createInspector({ inspectionMilliseconds, program = beside }: InspectorOptions): Inspector {
  let thread: Started | null = null

  const end = async (): Promise<void> => {
    const last = thread
    thread = null
    await last?.worker.terminate()
  }
  const start = async (signal: AbortSignal): Promise<Started> => {
    const worker = new Worker(program, { resourceLimits: MEMORY, execArgv: [] })
    const first = await nextOf(worker, START_LIMIT_MS, signal)
    if (typeof first === 'object' && 'task' in first) {
      giveWay(first.task)
      return { worker, task: first.task }
    }
    await worker.terminate()
    signal.throwIfAborted()
    throw new Error('The thread that inspects certificates does not start.')
  }
  const inspect = async (material: Material, signal: AbortSignal): Promise<string | null> => {
    thread ??= await start(signal)
    const { worker, task } = thread
    const { copy, buffers } = ownCopy(material)
    const before = processorMilliseconds(task)
    worker.postMessage(copy, buffers)
    for (let left = inspectionMilliseconds; left > 0; ) {
      const answer = await nextOf(worker, left, signal)
      if (typeof answer === 'object' && 'wrong' in answer) return answer.wrong
      if (answer === 'gone' || signal.aborted) break
      left = inspectionMilliseconds - (processorMilliseconds(task) - before)
    }
    await end()
    signal.throwIfAborted()
    return TOO_COSTLY
  }
  return { inspect, close: end }
}

/** What a thread says next; that its time is over, or that it has ended. @throws Error with which it ended, unless its memory was full */
function nextOf(thread: Worker, milliseconds: number, signal: AbortSignal): Promise<FromThread | 'silent' | 'gone'> {
  return new Promise((resolve, reject) => {
    const settle = (outcome: () => void) => {
      clearTimeout(limit)
      signal.removeEventListener('abort', giveUp)
      for (const event of ['message', 'exit']) thread.removeAllListeners(event)
      outcome()
    }
    const giveUp = () => settle(() => resolve('silent'))
    const limit = setTimeout(giveUp, signal.aborted ? 0 : milliseconds)
    signal.addEventListener('abort', giveUp)
    // Stays until the thread is gone: an error that nobody hears would end this process.
    thread.removeAllListeners('error').on('error', (error: NodeJS.ErrnoException) => {
      settle(() => (error.code === 'ERR_WORKER_OUT_OF_MEMORY' ? resolve('gone') : reject(error)))
    })
    thread.once('message', (words: FromThread) => settle(() => resolve(words)))
    thread.once('exit', () => settle(() => resolve('gone')))
  })
}

/** For threads that compute for long: requests go first where processors are short. */
const NICENESS = 10

/** To Linux the priority is a thread's own. */
function giveWay(task: string): void {
  setPriority(Number(task.split('/').at(-1)), Math.max(NICENESS, getPriority()))
}

/** How long a thread of this process has kept a processor. */
function processorMilliseconds(task: string): number {
  const stat = readProcessStat(task)
  if (stat === null) throw new Error(`the inspector's thread ${task} is gone`)
  return stat.processorMilliseconds
}

/** The same in memory of its own, which can be handed over; what it was copied from is overwritten. */
function ownCopy(material: Material): { copy: object; buffers: ArrayBuffer[] } {
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
