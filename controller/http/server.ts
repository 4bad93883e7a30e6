import { createServer, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import type Koa from 'koa'
import type { Logger } from '../log/log.js'
import { type ConnectionLimits, limitConnections } from './connections.js'
import { createFloodLog } from './flood-log.js'

export type RunningServer = {
  /** `http://host:port` with the port actually bound (port 0 chooses a free one). */
  url: string
  /** Stops accepting connections, lets running requests finish (up to 5 s), then closes every connection. */
  stop: () => Promise<void>
}

export type ServerOptions = { limits: ConnectionLimits; log: Logger }

/**
 * Headers must arrive within 10 s and the whole request within 30 s, because slow headers or requests occupy a
 * connection without any use. An idle connection is closed after 65 s, later than proxies and clients close
 * theirs; one without any traffic, such as one to a client that does not read, after 120 s.
 */
const TIMEOUTS = {
  headersTimeout: 10_000,
  requestTimeout: 30_000,
  keepAliveTimeout: 65_000,
  connectionsCheckingInterval: 1_000,
}

const SILENCE_MS = 120_000

/**
 * Listens on one address. Rejects with the system's error (EADDRINUSE, EADDRNOTAVAIL ...) when that fails.
 * @param options connection limits; by default none
 */
export async function startServer(
  app: Koa,
  address: { host: string; port: number },
  options?: ServerOptions,
): Promise<RunningServer> {
  const answer = app.callback()
  const server = createServer({ ...TIMEOUTS, requireHostHeader: false }, (request, response) => {
    void answer(request, response)
  })
  answerMalformed(server, app)
  server.setTimeout(SILENCE_MS)
  if (options !== undefined) {
    const logFlood = createFloodLog(options.log, {})
    limitConnections(server, options.limits, source => {
      const flood = `Connections from ${source}`
      logFlood(flood, `${flood}: too many at ${address.host} port ${address.port}; closing idle ones`)
    })
  }
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject)
    server.listen(address.port, address.host, () => {
      server.removeListener('error', reject)
      resolve()
    })
  })
  const { port } = server.address() as AddressInfo
  const host = address.host.includes(':') ? `[${address.host}]` : address.host
  return {
    url: `http://${host}:${port}`,
    stop: () =>
      new Promise(resolve => {
        const timeout = setTimeout(() => server.closeAllConnections(), 5_000)
        server.close(() => {
          clearTimeout(timeout)
          resolve()
        })
        server.closeIdleConnections()
      }),
  }
}

/** Lets the application answer what Node.js cannot read, unless an answer on the same connection has begun. */
function answerMalformed(server: Server, app: Koa): void {
  const answers = new WeakMap<Socket, ServerResponse>()
  server.on('request', (request, response) => answers.set(request.socket, response))
  server.on('clientError', (error, socket) => {
    const last = answers.get(socket as Socket)
    const isInsideAnswer = last?.headersSent === true && !last.writableFinished
    if (!socket.writable || isInsideAnswer || !app.emit('malformed', error, socket)) socket.destroy()
  })
}
