import { fileURLToPath } from 'node:url'
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads'
import type { Assembled } from '../../x509/material/assemble.js'
import { FEW_ITERATIONS, TooManyIterations } from '../../x509/material/derivation-limits.js'
import { type Material, Unusable, whatIsWrong } from '../../x509/material/material.js'

/** Far longer than the most expensive material takes that the key manager binds. */
const LIMIT_MS = 60_000
/** Of the thread. Material has a few hundred KiB at most. */
const MAX_HEAP_MIB = 256

type Answer = { assembled: Assembled } | { wrong: string }

const THREAD = 'krater assembler'

/** Loaded on demand: many amphorae serve no TLS, and what opens PKCS#12 is a third of the agent's code. */
const loadAssemble = () => import('../../x509/material/assemble.js')

/**
 * Assembles material. A PKCS#12 bundle or an encrypted key may take seconds; that happens on a thread of its own, which
 * ends afterwards with all that it has read. A start of the thread takes longer than a usual bundle.
 * @throws Unusable
 */
export async function assembleAside(material: Material): Promise<Assembled> {
  const isLocked = material.kind === 'certificate' && material.passphrase !== null
  const { assemble } = await loadAssemble()
  try {
    if (!isLocked) return assemble(material, FEW_ITERATIONS)
  } catch (error) {
    if (!(error instanceof TooManyIterations)) throw error
  }
  // The agent is one file, and runs it on the thread too.
  const worker = new Worker(fileURLToPath(import.meta.url), {
    ...{ workerData: THREAD, execArgv: [] },
    resourceLimits: { maxOldGenerationSizeMb: MAX_HEAP_MIB },
  })
  try {
    const answer = await new Promise<Answer>((resolve, reject) => {
      const limit = setTimeout(() => resolve({ wrong: 'it takes too long to read' }), LIMIT_MS)
      worker.once('message', (message: Answer) => {
        clearTimeout(limit)
        resolve(message)
      })
      worker.once('error', (error: NodeJS.ErrnoException) => {
        if (error.code === 'ERR_WORKER_OUT_OF_MEMORY') resolve({ wrong: 'it takes too much memory to read' })
        else reject(error)
      })
      worker.postMessage(material)
    })
    if ('wrong' in answer) throw new Unusable(answer.wrong)
    return answer.assembled
  } finally {
    await worker.terminate()
  }
}

/** Whether this thread is the assembler's; if so, it does its work. */
export function runAssembler(): boolean {
  if (isMainThread || workerData !== THREAD) return false
  parentPort?.on('message', (material: Material) => {
    void answerTo(material).then(answer => parentPort?.postMessage(answer))
  })
  return true
}

async function answerTo(material: Material): Promise<Answer> {
  const { assemble } = await loadAssemble()
  try {
    return { assembled: assemble(material) }
  } catch (error) {
    const wrong = whatIsWrong(error)
    if (wrong === null) throw error
    return { wrong }
  }
}
