import { readFileSync } from 'node:fs'
import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { TcpConnections } from './tls/tcp-connections.js'
import { createProxyCheck, sourceOf } from './trusted-proxies.js'

export type ConnectionLimits = {
  /** Maximum concurrent connections of the server. */
  max: number
  /** Maximum concurrent connections from one source; for a trusted proxy only `max` counts. */
  maxPerSource: number
  trustedProxies: readonly string[]
}

/** Files that a process needs besides client connections: to databases and other services, logs, listening sockets. */
const OTHER_FILES = 200

/**
 * The number of connections for which each server of this process has file descriptors. This limit exists so
 * that running out of file descriptors never ends a server.
 */
export function connectionsWithinFiles(servers: number, limits = readFileSync('/proc/self/limits', 'utf8')): number {
  // Node.js raises the soft limit to the hard one when it starts.
  const [, soft] = /^Max open files\s+(\d+)/m.exec(limits) ?? []
  if (soft === undefined) return Number.MAX_SAFE_INTEGER
  return Math.max(16, Math.floor((Number(soft) - OTHER_FILES) / servers))
}

/**
 * Keeps a server within its limits. A new connection beyond them replaces the least useful one: the oldest
 * without any request so far, else the oldest that waits between two requests, else the oldest whose request is
 * incomplete. If all are being answered, the new connection gets 503 or, with TLS, is closed.
 * @param onRefused called for each connection that has to go, with the source that caused it
 */
export function limitConnections(
  server: Server,
  { below, isTls }: TcpConnections,
  { max, maxPerSource, trustedProxies }: ConnectionLimits,
  onRefused: (source: string) => void,
): void {
  const isProxy = createProxyCheck(trustedProxies)
  const connections = new Connections()
  // An answer in clear would be none to a client that waits for TLS.
  const refuse = (socket: Socket) => (isTls ? socket.destroy() : answerUnavailable(socket))

  server.on('connection', socket => {
    const address = socket.remoteAddress ?? ''
    const source = sourceOf(address)
    if (connections.countFrom(source) >= maxPerSource && !isProxy(address)) {
      onRefused(source)
      if (!connections.closeOne(source)) {
        refuse(socket)
        return
      }
    } else if (connections.count >= max) {
      const largest = connections.largestSource()
      onRefused(largest)
      if (!connections.closeOne(largest)) {
        refuse(socket)
        return
      }
    }
    connections.add(socket, source)
  })
  server.on('request', (request, response) => connections.noteRequest(below(request.socket), request, response))
}

type Connection = { socket: Socket; source: string; request: IncomingMessage | null; hasAsked: boolean }

/** The open connections of a server. */
class Connections {
  // The connections of each source in the order in which they arrived or became idle.
  readonly #sources = new Map<string, Set<Connection>>()
  readonly #bySocket = new WeakMap<Socket, Connection>()
  #count = 0

  get count(): number {
    return this.#count
  }

  countFrom(source: string): number {
    return this.#sources.get(source)?.size ?? 0
  }

  /** The source with the most connections. Call it only if there are connections. */
  largestSource(): string {
    const [source] = [...this.#sources].reduce((most, each) => (each[1].size > most[1].size ? each : most))
    return source
  }

  add(socket: Socket, source: string): void {
    const connection: Connection = { socket, source, request: null, hasAsked: false }
    this.#sources.set(source, (this.#sources.get(source) ?? new Set()).add(connection))
    this.#bySocket.set(socket, connection)
    this.#count++
    socket.once('close', () => this.#forget(connection))
  }

  /** Closes the least useful connection of a source. @returns false when all of them are being answered */
  closeOne(source: string): boolean {
    const connections = [...(this.#sources.get(source) ?? [])]
    const leastUseful =
      connections.find(({ hasAsked }) => !hasAsked) ??
      connections.find(({ request }) => request === null) ??
      connections.find(({ request }) => request?.complete === false)
    if (leastUseful === undefined) return false
    this.#forget(leastUseful)
    leastUseful.socket.destroy()
    return true
  }

  noteRequest(socket: Socket | undefined, request: IncomingMessage, response: ServerResponse): void {
    const connection = socket === undefined ? undefined : this.#bySocket.get(socket)
    if (connection === undefined) return
    connection.request = request
    connection.hasAsked = true
    response.once('close', () => {
      connection.request = null
      const ofSource = this.#sources.get(connection.source)
      // Moves the connection to the end: the most recently used one is closed last.
      if (ofSource?.delete(connection) === true) ofSource.add(connection)
    })
  }

  #forget(connection: Connection): void {
    const ofSource = this.#sources.get(connection.source)
    if (ofSource?.delete(connection) !== true) return
    this.#count--
    if (ofSource.size === 0) this.#sources.delete(connection.source)
  }
}

function answerUnavailable(socket: Socket): void {
  socket.on('error', () => undefined)
  socket.end('HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nContent-Length: 0\r\nConnection: close\r\n\r\n')
  socket.destroySoon()
}
