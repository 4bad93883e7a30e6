import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import type { Ending } from './tenant-machine.js'

/** A program in a network namespace that serves on port 8080, TCP and UDP, and speaks to such servers. */
export type Inhabitant = {
  /** What the server at an address answers: its name, and the address that it sees. Null if nothing comes in time. */
  ask: (
    host: string,
    how?: { from?: string; protocol?: 'tcp' | 'udp'; port?: number; waitMs?: number },
  ) => Promise<string | null>
  /** Opens a TCP connection that stays. @returns its name for `say` */
  open: (host: string) => Promise<number>
  /** Sends on a connection. @returns the answer, or null if none comes in time or the connection is gone */
  say: (connection: number, waitMs?: number) => Promise<string | null>
}

/** The program's code. It is passed as text, so it cannot use anything outside this function. */
function program(name: string, ports: number[]): void {
  const net = process.getBuiltinModule('node:net')
  const dgram = process.getBuiltinModule('node:dgram')
  const { createInterface: lines } = process.getBuiltinModule('node:readline')
  const answer = (address: string | undefined) => `${name} ${address?.replace('::ffff:', '')}`
  let listening = 0
  const onListening = () => {
    listening += 1
    if (listening === 2 * ports.length) process.stdout.write(`${JSON.stringify({ id: 0, text: 'ready' })}\n`)
  }
  for (const port of ports) {
    net
      .createServer(socket => {
        socket.on('error', () => undefined)
        socket.on('data', () => socket.write(answer(socket.remoteAddress)))
      })
      .listen(port, '::', onListening)
    const udp = dgram.createSocket('udp6')
    udp.on('message', (_, from) => udp.send(answer(from.address), from.port, from.address))
    udp.bind(port, '::', onListening)
  }
  const connections = new Map<number, import('node:net').Socket>()
  type Request = {
    id: number
    what: string
    host: string
    port: number
    from?: string
    protocol: string
    waitMs: number
    on: number
  }
  const run = (request: Request, done: (text: string | null) => void) => {
    const { id, what, host, port, from, protocol, waitMs, on } = request
    setTimeout(() => done(null), waitMs)
    if (what === 'say') {
      const socket = connections.get(on)
      socket?.once('data', data => done(String(data)))
      socket?.write('x')
      return
    }
    if (protocol === 'udp') {
      const socket = dgram.createSocket(host.includes(':') ? 'udp6' : 'udp4')
      socket.on('error', () => done(null))
      socket.on('message', text => done(String(text)))
      socket.bind(0, from, () => socket.send('x', port, host))
      return
    }
    const socket = net.connect({ host, port, ...(from === undefined ? {} : { localAddress: from }) })
    socket.on('error', () => done(null))
    socket.once('data', data => done(String(data)))
    socket.once('connect', () => socket.write('x'))
    if (what === 'open') connections.set(id, socket)
    else socket.once('data', () => socket.destroy())
  }
  lines({ input: process.stdin }).on('line', line => {
    const request = JSON.parse(line) as Request
    let isDone = false
    run(request, text => {
      if (isDone) return
      isDone = true
      process.stdout.write(`${JSON.stringify({ id: request.id, text })}\n`)
    })
  })
}

/** Starts it. @param start starts a program in the namespace, with pipes to its standard input and output */
export async function inhabit(
  name: string,
  start: (program: string, args: string[]) => ChildProcess,
  ports: readonly number[] = [8080],
): Promise<Inhabitant> {
  const child = start(process.execPath, ['-e', `(${program})(${JSON.stringify(name)}, ${JSON.stringify(ports)})`])
  const { stdin, stdout } = child
  if (stdin === null || stdout === null) throw new Error(`${name} has no pipes`)
  const waiting = new Map<number, (text: string | null) => void>()
  const lines = createInterface({ input: stdout })
  const ready = once(lines, 'line')
  lines.on('line', line => {
    const { id, text } = JSON.parse(line) as { id: number; text: string | null }
    waiting.get(id)?.(text)
    waiting.delete(id)
  })
  await ready
  let last = 0
  const request = (values: object): { id: number; answer: Promise<string | null> } => {
    const id = ++last
    const answer = new Promise<string | null>(resolve => waiting.set(id, resolve))
    stdin.write(`${JSON.stringify({ id, ...values })}\n`)
    return { id, answer }
  }
  return {
    ask: (host, { from, protocol = 'tcp', port = 8080, waitMs = 3_000 } = {}) =>
      request({ what: 'ask', host, from, protocol, port, waitMs }).answer,
    open: async host => {
      const { id, answer } = request({ what: 'open', host, protocol: 'tcp', port: 8080, waitMs: 3_000 })
      if ((await answer) === null) throw new Error(`${name} cannot connect to ${host}`)
      return id
    },
    say: (connection, waitMs = 3_000) => request({ what: 'say', on: connection, waitMs }).answer,
  }
}

/** Starts it in a named network namespace. It ends with the test. */
export const inhabitNamespace = (t: Ending, name: string, namespace: string): Promise<Inhabitant> =>
  inhabit(name, (program, args) => {
    const child = spawn('ip', ['netns', 'exec', namespace, program, ...args], { stdio: ['pipe', 'pipe', 'inherit'] })
    const ended = once(child, 'exit')
    t.teardown(async () => {
      child.kill('SIGKILL')
      await ended
    })
    return child
  })
