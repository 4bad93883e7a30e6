import type { DSAKeyPairOptions, RSAKeyPairOptions, ScryptOptions } from 'node:crypto'
import type { NetworkInterfaceInfo } from 'node:os'
import { Worker } from 'node:worker_threads'

/**
 * Work for threads with their own priority. Key pairs and scrypt would otherwise run at the priority of
 * requests. Listing interfaces would block the caller: the kernel makes it wait for any change of an interface
 * on the host.
 */
export type Computation =
  | { kind: 'scrypt'; password: string; salt: Uint8Array; bytes: number; cost: ScryptOptions }
  | { kind: 'RSA key pair'; options: RSAKeyPairOptions<'pem', 'pem'> }
  | { kind: 'DSA key pair'; options: DSAKeyPairOptions<'pem', 'pem'> }
  | { kind: 'network interfaces' }

/** Both in PEM. */
export type ComputedPair = { publicKey: string; privateKey: string }

type Computed = {
  scrypt: Uint8Array
  'RSA key pair': ComputedPair
  'DSA key pair': ComputedPair
  'network interfaces': NodeJS.Dict<NetworkInterfaceInfo[]>
}

type Answer = { value: Computed[keyof Computed] } | { error: Error }

/**
 * Linux gives each thread a priority. Under contention, a thread of niceness 10 gets a tenth of a request's
 * share of a processor, and one of -10 nine times as much; an idle processor is theirs alone. Only root may
 * lower the niceness; for other users, -10 has no effect.
 */
const NICENESS = { high: -10, low: 10 }
export type ThreadPriority = keyof typeof NICENESS

/** How long to keep an idle thread; starting one costs 50 ms of processor time. */
const IDLE_TIMEOUT_MS = 60_000

/** The program of a thread. It is passed as text, so it must not refer to anything outside itself. */
function program(): void {
  const { parentPort, workerData } = process.getBuiltinModule('node:worker_threads')
  const { generateKeyPairSync, scryptSync } = process.getBuiltinModule('node:crypto')
  const { getPriority, networkInterfaces, setPriority } = process.getBuiltinModule('node:os')
  const niceness: number = workerData
  try {
    setPriority(niceness < 0 ? Math.max(-20, getPriority() + niceness) : Math.max(niceness, getPriority()))
  } catch {
    // Without the right to lower the niceness, keep that of the process.
  }
  const compute = (computation: Computation): Computed[keyof Computed] => {
    switch (computation.kind) {
      case 'scrypt':
        return scryptSync(computation.password, computation.salt, computation.bytes, computation.cost)
      case 'RSA key pair':
        return generateKeyPairSync('rsa', computation.options)
      case 'DSA key pair':
        return generateKeyPairSync('dsa', computation.options)
      case 'network interfaces':
        return networkInterfaces()
    }
  }
  parentPort?.on('message', (computation: Computation) => {
    try {
      parentPort.postMessage({ value: compute(computation) } satisfies Answer)
    } catch (error) {
      parentPort.postMessage({ error: error as Error } satisfies Answer)
    }
  })
}

type Idle = { thread: Worker; end: NodeJS.Timeout }

// The most recently used thread is last and taken first, so that surplus threads time out.
const idle: Record<ThreadPriority, Idle[]> = { high: [], low: [] }

/**
 * Computes on a thread that gives way to requests or goes before them, in all processes of the same scheduling group. A
 * computation cannot be interrupted. The caller limits how many run at once.
 * @throws Error of node:crypto
 */
export async function computeOnThread<Kind extends Computation['kind']>(
  computation: Extract<Computation, { kind: Kind }>,
  priority: ThreadPriority = 'low',
): Promise<Computed[Kind]> {
  const thread =
    takeIdle(idle[priority]) ??
    new Worker(`(${program})()`, { eval: true, execArgv: [], workerData: NICENESS[priority] })
  const answer = await ask(thread, computation)
  keep(thread, idle[priority])
  if ('error' in answer) throw answer.error
  return answer.value as Computed[Kind]
}

function ask(thread: Worker, computation: Computation): Promise<Answer> {
  return new Promise((resolve, reject) => {
    // Keep the process alive until the answer comes.
    thread.removeAllListeners().ref()
    thread.once('message', resolve)
    thread.on('error', reject)
    thread.once('exit', () => reject(new Error('A computing thread exited.')))
    thread.postMessage(computation)
  })
}

function takeIdle(idle: Idle[]): Worker | undefined {
  const last = idle.pop()
  clearTimeout(last?.end)
  return last?.thread
}

function keep(thread: Worker, idle: Idle[]): void {
  const forget = () => {
    const at = idle.indexOf(one)
    if (at !== -1) idle.splice(at, 1)
  }
  const end = () => {
    forget()
    void thread.terminate()
  }
  const one: Idle = { thread, end: setTimeout(end, IDLE_TIMEOUT_MS).unref() }
  thread.removeAllListeners().on('error', forget).on('exit', forget).unref()
  idle.push(one)
}
