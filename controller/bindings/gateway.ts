import { createServer, type Server } from 'node:http'
import { connect } from 'node:net'
import { limitConnections } from '../http/connections.js'
import { createFloodLog } from '../http/flood-log.js'
import { plainConnections } from '../http/tls/tcp-connections.js'
import type { Logger } from '../log/log.js'
import { repeat } from '../process/repeat.js'

export type GatewayOptions = {
  /** Where amphorae reach it: on the management network. */
  host: string
  port: number
  /** URLs of the services that it leads to, and no others. */
  services: readonly string[]
  log: Logger
}

/** An amphora reads a few secrets at a time. */
const LIMITS = { max: 256, maxPerSource: 16, trustedProxies: [] }
const CONNECT_MS = 5_000
/** Longer than an agent waits for one reference. */
const LIFE_MS = 30_000
const RETRY_SECONDS = 3

/**
 * Passes connections from the management network, which leads nowhere else, on to the key manager and the identity
 * service (HTTP CONNECT). TLS is between the agent and the service: nothing is read here. One per machine; a worker whose
 * machine has one tries again until the other worker is gone.
 */
export async function startGateway({
  host,
  port,
  services,
  log,
}: GatewayOptions): Promise<{ stop: () => Promise<void> }> {
  const targets = new Map(services.map(url => [authorityOf(url), new URL(url)]))
  const stopping = new AbortController()
  let server: Server | null = null
  const loop = repeat('opening the gateway to the key manager', RETRY_SECONDS, stopping.signal, log, async () => {
    server ??= await listen(createGateway(targets, log), host, port)
  })
  return {
    stop: async () => {
      stopping.abort()
      await loop
      server?.closeAllConnections()
      await new Promise<void>(resolve => (server === null ? resolve() : server.close(() => resolve())))
    },
  }
}

/** `host:port` in the form that agents ask for. */
function authorityOf(url: string): string {
  const { hostname, port, protocol } = new URL(url)
  return `${hostname}:${port || (protocol === 'https:' ? 443 : 80)}`
}

function createGateway(targets: ReadonlyMap<string, URL>, log: Logger): Server {
  const timeouts = { headersTimeout: CONNECT_MS, requestTimeout: CONNECT_MS, connectionsCheckingInterval: 1_000 }
  const server = createServer(timeouts, (_, response) => response.writeHead(405, { Connection: 'close' }).end())
  const logFlood = createFloodLog(log, {})
  limitConnections(server, plainConnections, LIMITS, source => {
    const flood = `Connections from ${source}`
    logFlood(flood, `${flood}: too many at the gateway to the key manager; closing the oldest`)
  })
  server.on('connect', (request, client) => {
    const refuse = (status: string) => client.end(`HTTP/1.1 ${status}\r\nConnection: close\r\n\r\n`)
    client.on('error', () => undefined)
    const target = targets.get(request.url ?? '')
    if (target === undefined) return refuse('403 Forbidden')
    const [hostname, port] = [
      target.hostname.replace(/^\[|\]$/g, ''),
      Number(authorityOf(target.href).split(':').at(-1)),
    ]
    const service = connect({ host: hostname, port })
    const limit = setTimeout(() => service.destroy(), CONNECT_MS)
    const life = setTimeout(() => service.destroy(), LIFE_MS)
    let isConnected = false
    service.once('connect', () => {
      isConnected = true
      clearTimeout(limit)
      client.write('HTTP/1.1 200 Connection established\r\n\r\n')
      client.pipe(service).pipe(client)
    })
    service.on('error', () => undefined)
    service.once('close', () => {
      clearTimeout(limit)
      clearTimeout(life)
      if (isConnected) client.destroy()
      else refuse('502 Bad Gateway')
    })
    client.once('close', () => service.destroy())
  })
  return server
}

function listen(server: Server, host: string, port: number): Promise<Server> {
  return new Promise((resolve, reject) => {
    server.once('error', reject)
    server.listen(port, host, () => {
      server.removeListener('error', reject)
      resolve(server)
    })
  })
}
