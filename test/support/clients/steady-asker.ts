import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import type { Test } from 'tap'

/**
 * What one kind of request saw: how many were answered or not, the longest time without an answer, in ms, and how the
 * first requests without an answer ended.
 */
export type Gaps = { answered: number; missed: number; longestMs: number; ends: string[] }

export type Asked = { protocol: 'http' | 'tcp' | 'udp'; host: string; port: number }

/** The program's code. It is passed as text, so it cannot use anything outside this function. */
function program(targets: Asked[], connectMs: number, answerMs: number): void {
  const net = process.getBuiltinModule('node:net')
  const dgram = process.getBuiltinModule('node:dgram')
  const WARM = 11
  const MOST_ENDS = 5
  /** Calls back with null once it is answered, or with how it ended. */
  const once = ({ protocol, host, port }: Asked, done: (end: string | null) => void) => {
    const began = performance.now()
    const after = () => `after ${Math.round(performance.now() - began)} ms`
    if (protocol === 'udp') {
      const socket = dgram.createSocket(host.includes(':') ? 'udp6' : 'udp4')
      let isOver = false
      const end = (answered: boolean) => {
        if (isOver) return
        isOver = true
        clearTimeout(limit)
        socket.close()
        done(answered ? null : `no answer ${after()}`)
      }
      // An answer that has come while this process had no processor is in time: it is read first.
      const limit = setTimeout(() => setImmediate(end, false), answerMs)
      socket.on('message', () => end(true))
      socket.on('error', () => undefined)
      socket.send('x', port, host)
      return
    }
    const socket = net.connect({ host, port })
    let stage = 'connecting'
    let end = 'closed'
    // Likewise. A connection that stands by then is asked.
    socket.on('timeout', () => {
      const late = stage
      setImmediate(() => {
        if (stage !== late) return
        end = 'no answer'
        socket.destroy()
      })
    })
    socket.setTimeout(connectMs)
    let answered = false
    socket.on('connect', () => {
      stage = 'asking'
      socket.setTimeout(answerMs)
      socket.write(protocol === 'http' ? 'GET / HTTP/1.0\r\nHost: vip\r\n\r\n' : 'x')
    })
    socket.on('data', data => {
      answered = protocol === 'http' ? data.includes(' 200 ') : true
      socket.destroy()
    })
    socket.on('error', (error: NodeJS.ErrnoException) => (end = String(error.code)))
    socket.on('close', () => done(answered ? null : `${end} while ${stage}, ${after()}`))
  }
  let stopped = false
  const results = targets.map(target => {
    const gaps: Gaps = { answered: 0, missed: 0, longestMs: 0, ends: [] }
    let last = 0
    const ask = () =>
      once(target, end => {
        const answered = end === null
        if (gaps.answered > 0) gaps.longestMs = Math.max(gaps.longestMs, Math.round(performance.now() - last))
        if (answered) last = performance.now()
        if (answered || gaps.answered > 0) gaps[answered ? 'answered' : 'missed'] += 1
        if (!answered && gaps.answered > 0 && gaps.ends.length < MOST_ENDS) gaps.ends.push(end)
        if (answered && gaps.answered === WARM) process.stdout.write('warm\n')
        if (!stopped) setTimeout(ask, 50)
      })
    ask()
    return gaps
  })
  process.stdin.once('data', () => {
    stopped = true
    setTimeout(() => process.stdout.write(`${JSON.stringify(results)}\n`, () => process.exit(0)), answerMs + 200)
  })
}

/** The kernel connects, however busy its programs are. One second after a packet of it was lost, it sends that again. */
const CONNECT_MS = 900
/** A program without a processor answers late, and misses nothing. A lost datagram is never answered. */
const ANSWER_MS = 2_000

/**
 * Asks every target again and again, each time on a new connection. Resolves once each has answered a few times.
 * @param start starts a program with pipes to its standard input and output
 * @returns a function that ends it and tells what each target's requests saw
 */
export async function askSteadily(
  t: Test,
  start: (program: string, args: string[]) => ChildProcess,
  targets: readonly Asked[],
): Promise<() => Promise<Gaps[]>> {
  const child = start(process.execPath, ['-e', `(${program})(${JSON.stringify(targets)}, ${CONNECT_MS}, ${ANSWER_MS})`])
  const { stdin, stdout } = child
  if (stdin === null || stdout === null) throw new Error('The asker has no pipes')
  t.teardown(() => child.kill('SIGKILL'))
  const lines = createInterface({ input: stdout })[Symbol.asyncIterator]()
  for (const _ of targets) await lines.next()
  return async () => {
    const closed = once(child, 'exit')
    stdin.write('stop\n')
    const { value } = await lines.next()
    await closed
    return JSON.parse(String(value)) as Gaps[]
  }
}

/** Starts a program in a network namespace, with pipes. */
export const startIn =
  (namespace: string) =>
  (name: string, args: string[]): ChildProcess =>
    spawn('ip', ['netns', 'exec', namespace, name, ...args], { stdio: ['pipe', 'pipe', 'inherit'] })
