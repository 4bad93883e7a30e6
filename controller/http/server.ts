import { createServer, type RequestListener, type Server, type ServerResponse } from 'node:http'
import { createServer as createTlsServer, type Server as TlsServer } from 'node:https'
import type { AddressInfo, Socket } from 'node:net'
import type Koa from 'koa'
import type { Logger } from '../log/log.js'
import { type ConnectionLimits, limitConnections } from './connections.js'
import { createFloodLog } from './flood-log.js'
import { type MinimumVersion, serverProfile } from './tls/profile.js'
import type { ServerCertificate } from './tls/server-certificate.js'
import { followHandshakes, plainConnections, type TcpConnections } from './tls/tcp-connections.js'

export type RunningServer = {
  /** `http://host:port`, or `https://` with TLS, with the port actually bound (port 0 chooses a free one). */
  url: string
  /** Presents another certificate to new connections; open ones stay. Without TLS it does nothing. */
  useCertificate: (certificate: ServerCertificate) => void
  /** Stops accepting connections, lets running requests finish (up to 5 s), then closes every connection. */
  stop: () => Promise<void>
}

export type ServerTls = { certificate: ServerCertificate; minimumVersion: MinimumVersion }

/** Without `tls`, plain HTTP. */
export type ServerOptions = { limits: ConnectionLimits; log: Logger; tls?: ServerTls | undefined }

/**
 * A TLS handshake has 10 s. Headers must arrive within 10 s and the whole request within 30 s, because slow headers or
 * requests occupy a connection without any use. An idle connection is closed after 65 s, later than proxies and clients
 * close theirs; one without any traffic, such as one to a client that does not read, after 120 s.
 */
const TIMEOUTS = {
  handshakeTimeout: 10_000,
  headersTimeout: 10_000,
  requestTimeout: 30_000,
  keepAliveTimeout: 65_000,
  connectionsCheckingInterval: 1_000,
}

const SILENCE_MS = 120_000

/**
 * Listens on one address. Rejects with the system's error (EADDRINUSE, EADDRNOTAVAIL ...) when that fails.
 * @param options by default, no connection limits and plain HTTP
 */
export async function startServer(
  app: Koa,
  address: { host: string; port: number },
  options?: ServerOptions,
): Promise<RunningServer> {
  const answer = app.callback()
  const { server, connections, useCertificate } = createTransport(options?.tls, (request, response) => {
    void answer(request, response)
  })
  answerMalformed(server, connections, app)
  server.setTimeout(SILENCE_MS)
  if (options !== undefined) {
    const logFlood = createFloodLog(options.log, {})
    limitConnections(server, connections, options.limits, source => {
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
    url: `${options?.tls === undefined ? 'http' : 'https'}://${host}:${port}`,
    useCertificate,
    stop: () =>
      new Promise(resolve => {
        const timeout = setTimeout(() => server.closeAllConnections(), 5_000)
        server.close(() => {
          clearTimeout(timeout)
          resolve()
        })
        server.closeIdleConnections()
        connections.endHandshakes()
      }),
  }
}

type Transport = { server: Server; connections: TcpConnections; useCertificate: RunningServer['useCertificate'] }

function createTransport(tls: ServerTls | undefined, listener: RequestListener): Transport {
  const options = { ...TIMEOUTS, requireHostHeader: false }
  if (tls === undefined) {
    return { server: createServer(options, listener), connections: plainConnections, useCertificate: () => undefined }
  }
  const present = ({ certificate, key }: ServerCertificate) => ({
    ...serverProfile(tls.minimumVersion),
    cert: certificate,
    key,
  })
  const server: TlsServer = createTlsServer({ ...options, ...present(tls.certificate) }, listener)
  return {
    server,
    connections: followHandshakes(server),
    useCertificate: certificate => server.setSecureContext(present(certificate)),
  }
}

/**
 * Lets the application answer what Node.js cannot read, unless an answer on the same connection has begun. A failed TLS
 * handshake closes the connection, except that a client which speaks plain HTTP is told so.
 */
function answerMalformed(server: Server, connections: TcpConnections, app: Koa): void {
  const answers = new WeakMap<Socket, ServerResponse>()
  server.on('request', (request, response) => answers.set(request.socket, response))
  server.on('clientError', (error: NodeJS.ErrnoException, connection) => {
    const socket = connection as Socket
    if (connections.below(socket) === undefined) {
      const tcp = error.code === 'ERR_SSL_HTTP_REQUEST' ? connections.belowHandshake(socket) : undefined
      if (tcp === undefined || !app.emit('malformed', error, tcp)) socket.destroy()
      return
    }
    const last = answers.get(socket)
    const isInsideAnswer = last?.headersSent === true && !last.writableFinished
    if (!socket.writable || isInsideAnswer || !app.emit('malformed', error, socket)) socket.destroy()
  })
}
