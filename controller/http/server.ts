import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import type Koa from 'koa'

export type RunningServer = {
  /** `http://host:port`, with the port that was really bound (port 0 chooses a free one). */
  url: string
  /** Stops accepting, lets running requests end (up to 5 s), then closes every connection. */
  stop: () => Promise<void>
}

/** Listens on one address. Rejects with the system's error (EADDRINUSE, EADDRNOTAVAIL ...) when that fails. */
export async function startServer(app: Koa, address: { host: string; port: number }): Promise<RunningServer> {
  const answer = app.callback()
  const timeouts = { keepAliveTimeout: 65_000, headersTimeout: 20_000, requestTimeout: 60_000 }
  const server = createServer(timeouts, (request, response) => void answer(request, response))
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
    url: `http://${host}:${port}`,
    stop: () =>
      new Promise(resolve => {
        const impatience = setTimeout(() => server.closeAllConnections(), 5_000)
        server.close(() => {
          clearTimeout(impatience)
          resolve()
        })
        server.closeIdleConnections()
      }),
  }
}
