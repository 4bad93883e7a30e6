import type { DSAKeyPairOptions, RSAKeyPairOptions, ScryptOptions } from 'node:crypto'
import type { NetworkInterfaceInfo } from 'node:os'
import { Worker } from 'node:worker_threads'

/**
 * What Node.js would otherwise compute on a thread that has the priority of everything else; and what keeps the thread of the caller until the kernel has a
 * moment: to list its interfaces it waits for whoever just changes one, somewhere on the host.
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
 * Linux has a priority for each thread. Where both want a processor, a thread of niceness 10 gets a tenth of what a request gets, and one that is 10 below its process
 * nine times as much; each gets all of one that nobody else wants. Only root may go below: for others that is as everything else.
 */
const NICENESS = { 'goes first': -10, 'gives way': 10 }
export type Urgency = keyof typeof NICENESS

/** Of a thread that waits for the next computation; to start one takes 50 ms of a processor. */
const KEPT_MS = 60_000

/** The program of a thread. It is passed on as text, so nothing outside it is in its reach. */
function program(): void {
  const { parentPort, workerData } = process.getBuiltinModule('node:worker_threads')
  const { generateKeyPairSync, scryptSync } = process.getBuiltinModule('node:crypto')
  const { getPriority, networkInterfaces, setPriority } = process.getBuiltinModule('node:os')
  const niceness: number = workerData
  try {
    setPriority(niceness < 0 ? Math.max(-20, getPriority() + niceness) : Math.max(niceness, getPriority()))
  } catch {
    // Who may not go first goes as the process does.
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

// The one that was busy last is at the end, and is taken first: those that are not needed come to their end.
const idle: Record<Urgency, Idle[]> = { 'goes first': [], 'gives way': [] }

/**
 * Computes on a thread that gives way to requests, or goes before them: everybody's where they are in one scheduling group. It cannot be interrupted. As many are computed at once as are
 * asked for; the caller has the limit.
 * @throws Error of node:crypto
 */
export async function computeAside<Kind extends Computation['kind']>(
  computation: Extract<Computation, { kind: Kind }>,
  urgency: Urgency = 'gives way',
): Promise<Computed[Kind]> {
  const thread =
    takeIdle(idle[urgency]) ?? new Worker(`(${program})()`, { eval: true, execArgv: [], workerData: NICENESS[urgency] })
  const answer = await ask(thread, computation)
  keep(thread, idle[urgency])
  if ('error' in answer) throw answer.error
  return answer.value as Computed[Kind]
}

function ask(thread: Worker, computation: Computation): Promise<Answer> {
  return new Promise((resolve, reject) => {
    // This process waits for an answer before it ends by itself.
    thread.removeAllListeners().ref()
    thread.once('message', resolve)
    thread.on('error', reject)
    thread.once('exit', () => reject(new Error('A thread that computes has ended.')))
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
  const one: Idle = { thread, end: setTimeout(end, KEPT_MS).unref() }
  thread.removeAllListeners().on('error', forget).on('exit', forget).unref()
  idle.push(one)
}
