import { rmSync } from 'node:fs'
import { connect, createServer, type NetConnectOpts, type Socket } from 'node:net'
import { pipeline } from 'node:stream'
import type { Desired } from '../protocol/desired.js'
import { type RelayRequest, relayRequestSchema } from '../protocol/messages.js'
import { proofSocket, RELAY_SOCKET } from '../protocol/paths.js'
import { openToController } from '../server/group.js'

/** Longer than any handshake takes. */
const LIFE_MS = 15_000
const MAX_LINE = 500
const MAX_CONNECTIONS = 32

/**
 * Relays the controller's connections to HAProxy's listeners, so that it can see what they serve, whatever the agent
 * says. Reaches nothing else.
 * @param confirmed the state in effect
 * @returns a function that stops it
 */
export async function relayConnections(confirmed: () => Desired | null): Promise<() => Promise<void>> {
  const open = new Set<Socket>()
  const server = createServer({ allowHalfOpen: false }, socket => {
    open.add(socket)
    const limit = setTimeout(() => socket.destroy(), LIFE_MS)
    socket.on('error', () => undefined)
    socket.once('close', () => {
      clearTimeout(limit)
      open.delete(socket)
    })
    awaitLine(socket, (line, rest) => {
      const destination = destinationOf(line, confirmed())
      if (destination === null) return socket.destroy()
      const upstream = connect(destination)
      upstream.write(rest)
      pipeline(socket, upstream, socket, () => {
        upstream.destroy()
        socket.destroy()
      })
    })
  })
  server.maxConnections = MAX_CONNECTIONS
  rmSync(RELAY_SOCKET, { force: true })
  const before = process.umask(0o177)
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject)
    server.listen(RELAY_SOCKET, resolve)
  }).finally(() => process.umask(before))
  openToController(RELAY_SOCKET)
  return () =>
    new Promise(resolve => {
      server.close(() => resolve())
      for (const socket of open) socket.destroy()
    })
}

function awaitLine(socket: Socket, onLine: (line: string, rest: Buffer) => void): void {
  let held = Buffer.alloc(0)
  const take = (piece: Buffer) => {
    held = Buffer.concat([held, piece])
    const end = held.indexOf('\n')
    if (end === -1) {
      if (held.length > MAX_LINE) socket.destroy()
      return
    }
    socket.removeListener('data', take)
    socket.pause()
    onLine(held.subarray(0, end).toString(), held.subarray(end + 1))
  }
  socket.on('data', take)
}

/** Where to connect; null for anything but a listener of this amphora. */
function destinationOf(line: string, desired: Desired | null): NetConnectOpts | null {
  const request = parse(line)
  if (request === null || desired?.haproxy == null) return null
  const { address, port, listenerId } = request
  if (!desired.haproxy.tls?.lists.some(list => list.listenerId === listenerId)) return null
  if (address === null) return { path: proofSocket(listenerId) }
  const vips = desired.interfaces.flatMap(nic => nic.vips.map(vip => vip.address))
  return vips.includes(address) ? { host: address, port } : null
}

function parse(line: string): RelayRequest | null {
  try {
    return relayRequestSchema.safeParse(JSON.parse(line)).data ?? null
  } catch {
    return null
  }
}
