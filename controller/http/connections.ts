import { readFileSync } from 'node:fs'
import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { createProxyCheck, sourceOf } from './trusted-proxies.js'

export type ConnectionLimits = {
  /** Most connections of the server at a time. */
  most: number
  /** Most of these from one source; of trusted proxies as many as there are in all. */
  mostPerSource: number
  trustedProxies: readonly string[]
}

/** Files that a process needs beside the connections of its clients: to databases and other services, logs, sockets that listen. */
const OTHER_FILES = 200

/** Connections for which each of a process's servers has files, so that running out of them never ends a server. */
export function connectionsWithinFiles(servers: number, limits = readFileSync('/proc/self/limits', 'utf8')): number {
  // Node.js raises the soft limit to the hard one when it starts.
  const [, soft] = /^Max open files\s+(\d+)/m.exec(limits) ?? []
  if (soft === undefined) return Number.MAX_SAFE_INTEGER
  return Math.max(16, Math.floor((Number(soft) - OTHER_FILES) / servers))
}

type Connection = { socket: Socket; source: string; request: IncomingMessage | null; hasAsked: boolean }

/**
 * Keeps a server within its limits. A connection beyond them takes the place of the one that is missed least: the oldest that never asked for
 * anything, then the oldest that waits between two requests, then the oldest whose request has not arrived whole. When all are being answered, the
 * new one is refused with 503.
 * @param onRefused called for each connection that had to go, with the source whose fault it is
 */
export function limitConnections(
  server: Server,
  { most, mostPerSource, trustedProxies }: ConnectionLimits,
  onRefused: (source: string) => void,
): void {
  const isProxy = createProxyCheck(trustedProxies)
  // Of each source in the order in which they came, or became idle.
  const sources = new Map<string, Set<Connection>>()
  const bySocket = new WeakMap<Socket, Connection>()
  let count = 0

  const forget = (connection: Connection) => {
    const ofSource = sources.get(connection.source)
    if (ofSource?.delete(connection) !== true) return
    count--
    if (ofSource.size === 0) sources.delete(connection.source)
  }

  const makeRoom = (source: string): boolean => {
    const connections = [...(sources.get(source) ?? [])]
    const leaving =
      connections.find(({ hasAsked }) => !hasAsked) ??
      connections.find(({ request }) => request === null) ??
      connections.find(({ request }) => request?.complete === false)
    if (leaving === undefined) return false
    forget(leaving)
    leaving.socket.destroy()
    return true
  }

  server.on('connection', socket => {
    const address = socket.remoteAddress ?? ''
    const source = sourceOf(address)
    const own = sources.get(source) ?? new Set()
    if (own.size >= mostPerSource && !isProxy(address)) {
      onRefused(source)
      if (!makeRoom(source)) return refuse(socket)
    } else if (count >= most) {
      const [largest] = [...sources].reduce((most, each) => (each[1].size > most[1].size ? each : most))
      onRefused(largest)
      if (!makeRoom(largest)) return refuse(socket)
    }
    const connection: Connection = { socket, source, request: null, hasAsked: false }
    sources.set(source, (sources.get(source) ?? new Set()).add(connection))
    bySocket.set(socket, connection)
    count++
    socket.once('close', () => forget(connection))
  })

  server.on('request', (request: IncomingMessage, response: ServerResponse) => {
    const connection = bySocket.get(request.socket)
    if (connection === undefined) return
    connection.request = request
    connection.hasAsked = true
    response.once('close', () => {
      connection.request = null
      const ofSource = sources.get(connection.source)
      // The most recently used one is the last to go.
      if (ofSource?.delete(connection) === true) ofSource.add(connection)
    })
  })
}

function refuse(socket: Socket): void {
  socket.on('error', () => undefined)
  socket.end('HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nContent-Length: 0\r\nConnection: close\r\n\r\n')
  socket.destroySoon()
}
