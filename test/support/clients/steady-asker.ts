import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import type { Test } from 'tap'

/** What one kind of request saw: how many were answered or not, and the longest time without an answer, in ms. */
export type Gaps = { answered: number; missed: number; longestMs: number }

export type Asked = { protocol: 'http' | 'tcp' | 'udp'; host: string; port: number }

/** The program's code. It is passed as text, so it cannot use anything outside this function. */
function program(targets: Asked[], waitMs: number): void {
  const net = process.getBuiltinModule('node:net')
  const dgram = process.getBuiltinModule('node:dgram')
  const WARM = 11
  const once = ({ protocol, host, port }: Asked, done: (answered: boolean) => void) => {
    if (protocol === 'udp') {
      const socket = dgram.createSocket(host.includes(':') ? 'udp6' : 'udp4')
      let isOver = false
      const end = (answered: boolean) => {
        if (isOver) return
        isOver = true
        clearTimeout(limit)
        socket.close()
        done(answered)
      }
      // An answer that has come while this process had no processor is in time: it is read first.
      const limit = setTimeout(() => setImmediate(end, false), waitMs)
      socket.on('message', () => end(true))
      socket.on('error', () => undefined)
      socket.send('x', port, host)
      return
    }
    const socket = net.connect({ host, port })
    socket.setTimeout(waitMs, () => setImmediate(() => socket.destroy()))
    let answered = false
    socket.on('connect', () => socket.write(protocol === 'http' ? 'GET / HTTP/1.0\r\nHost: vip\r\n\r\n' : 'x'))
    socket.on('data', data => {
      answered = protocol === 'http' ? data.includes(' 200 ') : true
      socket.destroy()
    })
    socket.on('error', () => undefined)
    socket.on('close', () => done(answered))
  }
  let stopped = false
  const results = targets.map(target => {
    const gaps = { answered: 0, missed: 0, longestMs: 0 }
    let last = 0
    const ask = () =>
      once(target, answered => {
        if (gaps.answered > 0) gaps.longestMs = Math.max(gaps.longestMs, Math.round(performance.now() - last))
        if (answered) last = performance.now()
        if (answered || gaps.answered > 0) gaps[answered ? 'answered' : 'missed'] += 1
        if (answered && gaps.answered === WARM) process.stdout.write('warm\n')
        if (!stopped) setTimeout(ask, 50)
      })
    ask()
    return gaps
  })
  process.stdin.once('data', () => {
    stopped = true
    setTimeout(() => process.stdout.write(`${JSON.stringify(results)}\n`, () => process.exit(0)), 600)
  })
}

/**
 * Asks every target again and again, each time on a new connection. Resolves once each has answered a few times.
 * @param start starts a program with pipes to its standard input and output
 * @param waitMs for how long a request may take: later, it counts as missed
 * @returns a function that ends it and tells what each target's requests saw
 */
export async function askSteadily(
  t: Test,
  start: (program: string, args: string[]) => ChildProcess,
  targets: readonly Asked[],
  { waitMs = 400 }: { waitMs?: number } = {},
): Promise<() => Promise<Gaps[]>> {
  const child = start(process.execPath, ['-e', `(${program})(${JSON.stringify(targets)}, ${waitMs})`])
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
