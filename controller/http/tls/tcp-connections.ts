import type { Server } from 'node:http'
import type { Socket } from 'node:net'

/** The TCP connections of a server. With TLS, requests arrive on another object, above the TCP connection. */
export type TcpConnections = {
  isTls: boolean
  /** The TCP connection below one on which requests arrive; undefined when its TLS handshake is not complete. */
  below: (connection: Socket) => Socket | undefined
  /** The TCP connection of a TLS handshake that is not complete; undefined for other connections. */
  belowHandshake: (connection: Socket) => Socket | undefined
  /** Closes the connections whose TLS handshake is not complete. */
  endHandshakes: () => void
}

/** The connections of a server without TLS. */
export const plainConnections: TcpConnections = {
  isTls: false,
  below: connection => connection,
  belowHandshake: () => undefined,
  endHandshakes: () => undefined,
}

/** Follows the connections of a TLS server from now on. */
export function followHandshakes(server: Server): TcpConnections {
  const handshakes = new Map<string, Socket>()
  const below = new WeakMap<Socket, Socket>()
  server.on('connection', (tcp: Socket) => {
    const peer = peerOf(tcp)
    handshakes.set(peer, tcp)
    tcp.once('close', () => {
      if (handshakes.get(peer) === tcp) handshakes.delete(peer)
    })
  })
  server.on('secureConnection', (connection: Socket) => {
    const peer = peerOf(connection)
    const tcp = handshakes.get(peer)
    if (tcp === undefined) return
    handshakes.delete(peer)
    below.set(connection, tcp)
  })
  return {
    isTls: true,
    below: connection => below.get(connection),
    belowHandshake: connection => handshakes.get(peerOf(connection)),
    endHandshakes: () => {
      for (const tcp of handshakes.values()) tcp.destroy()
    },
  }
}

/** Both ends of a connection, the same for both objects: Node.js tells neither of the other. */
const peerOf = ({ remoteAddress, remotePort, localAddress }: Socket): string =>
  `${remoteAddress} ${remotePort} ${localAddress}`
