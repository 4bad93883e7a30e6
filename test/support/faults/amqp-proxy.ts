import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import type { Test } from 'tap'
import { endTogether } from '../socket-pair.js'

export type AmqpProxy = {
  port: number
  /** From now on, nothing that a client sends reaches the server; the client still receives. */
  holdClients: () => void
  /** For new connections. */
  letClientsSpeak: () => void
}

/**
 * A proxy between a client and a server on loopback, which lets a test block the client's messages at any
 * moment.
 */
export async function startAmqpProxy(t: Test, target: number): Promise<AmqpProxy> {
  const sockets = new Set<Socket>()
  let held = false
  const server = createServer(client => {
    const upstream = connect(target, '127.0.0.1')
    endTogether(client, upstream, sockets)
    client.on('data', bytes => {
      if (!held) upstream.write(bytes)
    })
    upstream.pipe(client)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(async () => {
    for (const socket of sockets) socket.destroy()
    server.close()
    await once(server, 'close')
  })
  return {
    port: (server.address() as AddressInfo).port,
    holdClients: () => {
      held = true
    },
    letClientsSpeak: () => {
      held = false
    },
  }
}
