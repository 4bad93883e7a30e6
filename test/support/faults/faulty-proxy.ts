import { createServer, type IncomingMessage, request, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'

export type Passed = { method: string; path: string; token: string }

/** What the proxy does with a request: forwards it, never answers, closes the connection, or answers itself. */
export type Behaviour = 'pass' | 'hang' | 'drop' | { status: number; body: string }

export type FaultyProxy = {
  url: string
  /** The requests received, in order. */
  requests: Passed[]
  /** Sets the behaviour from now on. */
  behave: (behaviour: (passed: Passed) => Behaviour | Promise<Behaviour>) => void
  stop: () => Promise<void>
}

/** A proxy before an HTTP service that a test makes unreliable. */
export async function startFaultyProxy(target: string): Promise<FaultyProxy> {
  let behaviour: (passed: Passed) => Behaviour | Promise<Behaviour> = () => 'pass'
  const requests: Passed[] = []
  const handle = async (incoming: IncomingMessage, outgoing: ServerResponse) => {
    const { method = '', url: path = '', headers } = incoming
    const passed = { method, path, token: String(headers['x-auth-token'] ?? '') }
    requests.push(passed)
    const done = await behaviour(passed)
    if (done === 'hang') return
    if (done === 'drop') {
      incoming.socket.destroy()
      return
    }
    if (done !== 'pass') {
      outgoing.writeHead(done.status, { 'Content-Type': 'application/json' }).end(done.body)
      return
    }
    const destroy = () => outgoing.destroy()
    text(incoming).then(body => {
      const onward = request(target + path, { method, headers }, answer => {
        outgoing.writeHead(answer.statusCode ?? 500, answer.headers)
        answer.pipe(outgoing)
      })
      onward.once('error', destroy)
      onward.end(body)
    }, destroy)
  }
  const server = createServer((incoming, outgoing) => void handle(incoming, outgoing))
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    requests,
    behave: next => {
      behaviour = next
    },
    stop: () =>
      new Promise(resolve => {
        server.close(() => resolve())
        server.closeAllConnections()
      }),
  }
}
