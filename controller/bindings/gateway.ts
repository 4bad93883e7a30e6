import { createServer, type Server } from 'node:http'
import { connect } from 'node:net'
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
const MAX_CONNECTIONS = 256
const MAX_PER_AMPHORA = 16
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
    server ??= await listen(createGateway(targets), host, port)
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

function createGateway(targets: ReadonlyMap<string, URL>): Server {
  const open = new Map<string, number>()
  const server = createServer((_, response) => response.writeHead(405, { Connection: 'close' }).end())
  server.maxConnections = MAX_CONNECTIONS
  server.requestTimeout = CONNECT_MS
  server.on('connect', (request, client) => {
    const refuse = (status: string) => client.end(`HTTP/1.1 ${status}\r\nConnection: close\r\n\r\n`)
    client.on('error', () => undefined)
    const from = request.socket.remoteAddress ?? ''
    const target = targets.get(request.url ?? '')
    if (target === undefined) return refuse('403 Forbidden')
    const before = open.get(from) ?? 0
    if (before >= MAX_PER_AMPHORA) return refuse('503 Service Unavailable')
    open.set(from, before + 1)
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
      const left = (open.get(from) ?? 1) - 1
      if (left === 0) open.delete(from)
      else open.set(from, left)
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
