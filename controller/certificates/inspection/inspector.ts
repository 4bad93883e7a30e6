import { fileURLToPath } from 'node:url'
import { Worker } from 'node:worker_threads'
import type { FromThread } from './inspector-thread.js'
import type { Material } from './material.js'

export type Inspector = {
  /**
   * What is wrong with it, as a clause that may be shown, or null. To be called for one material after another. Its bytes are
   * overwritten.
   */
  inspect: (material: Material) => Promise<string | null>
  /** Ends the thread, and with it all that it has seen. */
  close: () => Promise<void>
}

export type InspectorOptions = {
  /** For one material. */
  inspectionMilliseconds: number
  /** The script of the thread; the one beside the bundle when not given. */
  program?: string
}

/** Of a thread: many times what the largest material needs. */
const MEMORY = { maxOldGenerationSizeMb: 128, maxYoungGenerationSizeMb: 16 }

/** For a thread to load its program. */
const START_LIMIT_MS = 20_000

const TOO_COSTLY = 'it takes too long, or too much memory, to be read'

const beside = fileURLToPath(new URL('inspector-thread.js', import.meta.url))

/**
 * Inspects in a thread of its own, with limits of time and memory: what others have stored may be made to cost much. A thread that comes to
 * them is ended, and the next material has a new one.
 */
export function createInspector({ inspectionMilliseconds, program = beside }: InspectorOptions): Inspector {
  let thread: Worker | null = null

  const end = async (): Promise<void> => {
    const last = thread
    thread = null
    await last?.terminate()
  }
  const start = async (): Promise<Worker> => {
    const started = new Worker(program, { resourceLimits: MEMORY, execArgv: [] })
    thread = started
    const first = await nextOf(started, START_LIMIT_MS)
    if (first === 'nothing') throw new Error('The thread that inspects certificates does not start.')
    return started
  }
  const inspect = async (material: Material): Promise<string | null> => {
    const used = thread ?? (await start())
    const { copy, buffers } = ownCopy(material)
    used.postMessage(copy, buffers)
    const answer = await nextOf(used, inspectionMilliseconds)
    if (answer !== 'nothing' && 'wrong' in answer) return answer.wrong
    await end()
    return TOO_COSTLY
  }
  return { inspect, close: end }
}

/** What a thread says next; nothing when its time is over or its memory full. @throws Error with which it ended otherwise */
function nextOf(thread: Worker, milliseconds: number): Promise<FromThread | 'nothing'> {
  return new Promise((resolve, reject) => {
    const limit = setTimeout(() => settle(() => resolve('nothing')), milliseconds)
    const settle = (outcome: () => void) => {
      clearTimeout(limit)
      for (const event of ['message', 'exit']) thread.removeAllListeners(event)
      outcome()
    }
    // Stays until the thread is gone: an error that nobody hears would end this process.
    thread.removeAllListeners('error').on('error', (error: NodeJS.ErrnoException) => {
      settle(() => (error.code === 'ERR_WORKER_OUT_OF_MEMORY' ? resolve('nothing') : reject(error)))
    })
    thread.once('message', (words: FromThread) => settle(() => resolve(words)))
    thread.once('exit', () => settle(() => resolve('nothing')))
  })
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
