import { createServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { createApi } from '../../api/api.js'
import { limitConnections } from '../../http/connections.js'
import { createFloodLog } from '../../http/flood-log.js'
import { followHandshakes } from '../../http/tls/tcp-connections.js'
import type { ChannelCertificate } from '../../key-channel/keys.js'
import type { Logger } from '../../log/log.js'
import { amphoraRoutes } from './amphora-routes.js'
import { challengeRoutes } from './challenge-routes.js'
import { controllerRoutes } from './controller-routes.js'
import { type ChannelService, channelDialect } from './dialect.js'
import { createChannelTokens } from './tokens.js'

export type ChannelServerOptions = {
  service: ChannelService
  address: { host: string; port: number }
  certificate: ChannelCertificate
  /** The secret of the key channel, 32 bytes. */
  secret: Buffer
  log: Logger
  /** Milliseconds since 1970. */
  now?: () => number
}

export type ChannelServer = {
  /** Resolves once it listens. */
  listening: Promise<{ port: number }>
  /** Stops listening, lets running requests finish for up to 5 s, then closes every connection. */
  stop: () => Promise<void>
}

const TIMEOUTS = {
  handshakeTimeout: 10_000,
  headersTimeout: 10_000,
  requestTimeout: 30_000,
  keepAliveTimeout: 65_000,
  connectionsCheckingInterval: 1_000,
}
/** Each amphora keeps a few, and no more than fit through one address. */
const LIMITS = { max: 20_000, maxPerSource: 64, trustedProxies: [] }
const RETRY_MS = 1_000
const STOP_MS = 5_000

/**
 * Serves the key channel. Its address, usually on the management network, may appear only later: until then it tries
 * again each second.
 */
export function startChannelServer(options: ChannelServerOptions): ChannelServer {
  const { service, address, certificate, secret, log, now } = options
  const routes = [...amphoraRoutes, ...controllerRoutes, ...challengeRoutes]
  const app = createApi({
    dialect: channelDialect(createChannelTokens(secret, now)),
    routes,
    service,
    log,
  })
  const handle = app.callback()
  const server = createServer(
    { ...TIMEOUTS, cert: certificate.certificate, key: certificate.privateKey, minVersion: 'TLSv1.3' },
    (request, response) => void handle(request, response),
  )
  const logFlood = createFloodLog(log, {})
  limitConnections(server, followHandshakes(server), LIMITS, source => {
    const flood = `Connections from ${source}`
    logFlood(flood, `${flood}: too many on the key channel; closing idle ones`)
  })
  let retry: NodeJS.Timeout | undefined
  let isReported = false
  const listening = new Promise<{ port: number }>(resolve => {
    const listen = () => server.listen(address.port, address.host)
    server.on('listening', () => {
      log.info({ ...address, port: (server.address() as AddressInfo).port }, 'key channel listening')
      resolve({ port: (server.address() as AddressInfo).port })
    })
    server.on('error', (error: NodeJS.ErrnoException) => {
      if (!isReported) log.warn({ ...address, code: error.code }, 'the key channel cannot listen yet; trying again')
      isReported = true
      retry = setTimeout(listen, RETRY_MS)
    })
    listen()
  })
  return {
    listening,
    stop: async () => {
      clearTimeout(retry)
      server.removeAllListeners('error')
      const limit = setTimeout(() => server.closeAllConnections(), STOP_MS)
      await new Promise<void>(resolve => {
        server.close(() => resolve())
        server.closeIdleConnections()
      })
      clearTimeout(limit)
    },
  }
}
