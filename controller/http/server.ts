import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import type Koa from 'koa'
import type { Logger } from '../log/log.js'
import { type ConnectionLimits, limitConnections } from './connections.js'
import { createFloodLog } from './flood-log.js'

export type RunningServer = {
  /** `http://host:port`, with the port that was really bound (port 0 chooses a free one). */
  url: string
  /** Stops accepting, lets running requests end (up to 5 s), then closes every connection. */
  stop: () => Promise<void>
}

export type ServerOptions = { limits: ConnectionLimits; log: Logger }

/**
 * Headers have 10 s, and the whole request 30 s: who needs longer holds a connection for nothing. A connection that waits for its next request is
 * closed after 65 s, later than proxies and clients give up theirs; one on which nothing moves, such as of a client that does not read, after 120 s.
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
 * @param options limits of its connections; none when absent
 */
export async function startServer(
  app: Koa,
  address: { host: string; port: number },
  options?: ServerOptions,
): Promise<RunningServer> {
  const answer = app.callback()
  const server = createServer(TIMEOUTS, (request, response) => void answer(request, response))
  server.setTimeout(SILENCE_MS)
  if (options !== undefined) {
    const logFlood = createFloodLog(options.log, {})
    limitConnections(server, options.limits, source => {
      const flood = `Connections of ${source}`
      logFlood(flood, `${flood}: there are too many at ${address.host} port ${address.port}; idle ones are closed`)
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
        const impatience = setTimeout(() => server.closeAllConnections(), 5_000)
        server.close(() => {
          clearTimeout(impatience)
          resolve()
        })
        server.closeIdleConnections()
      }),
  }
}
