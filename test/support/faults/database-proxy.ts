import { mkdtemp, rm } from 'node:fs/promises'
import { connect, createServer, type Server, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { endTogether } from '../socket-pair.js'

export type DatabaseProxy = {
  /** The same database, reached through the proxy. */
  url: string
  /** Breaks every connection and accepts no new ones, as when PostgreSQL was killed. */
  disconnect: () => Promise<void>
  reconnect: () => Promise<void>
  stop: () => Promise<void>
}

/**
 * A proxy between a client and PostgreSQL's Unix socket, which lets a test take the database away from one
 * client alone.
 * @param delayMs until a connection reaches PostgreSQL, as on a machine without processor time
 */
export async function startDatabaseProxy(databaseUrl: string, delayMs = 0): Promise<DatabaseProxy> {
  const target = decodeURIComponent(databaseUrl.split('host=')[1] ?? '')
  const directory = await mkdtemp(join(tmpdir(), 'krater-proxy-'))
  const path = join(directory, '.s.PGSQL.5432')
  const sockets = new Set<Socket>()
  let server: Server | null = null

  const reconnect = async () => {
    const forward = (client: Socket) => {
      const upstream = connect(join(target, '.s.PGSQL.5432'))
      endTogether(client, upstream, sockets)
      client.pipe(upstream).pipe(client)
    }
    server = createServer(client => {
      if (delayMs === 0) forward(client)
      else setTimeout(forward, delayMs, client)
    })
    await new Promise<void>(resolve => server?.listen(path, resolve))
  }
  const disconnect = async () => {
    const closed = new Promise<void>(resolve => (server === null ? resolve() : server.close(() => resolve())))
    for (const socket of sockets) socket.destroy()
    await closed
    server = null
  }
  await reconnect()
  return {
    url: databaseUrl.replace(/host=.*$/, `host=${encodeURIComponent(directory)}`),
    disconnect,
    reconnect,
    stop: async () => {
      await disconnect()
      await rm(directory, { recursive: true, force: true })
    },
  }
}
