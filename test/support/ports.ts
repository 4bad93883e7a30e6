import { createServer } from 'node:net'

/** Above the well-known ports, and below those that the kernel gives to clients and to servers that name none. */
const FIRST_PORT = 10_000
const LAST_PORT = 30_000

/**
 * Ports that no other process of the sandbox gets while this process lives. A check that a port is free would
 * not do: tests run side by side, and two HAProxies on one port share its connections silently.
 */
export async function ownPorts(count: number): Promise<number[]> {
  const owned: number[] = []
  while (owned.length < count) {
    const port = FIRST_PORT + Math.floor(Math.random() * (LAST_PORT - FIRST_PORT))
    if (await claim(port)) owned.push(port)
  }
  return owned
}

/** An abstract socket name represents the port: it has the same scope and one owner, and ends with that process. */
function claim(port: number): Promise<boolean> {
  return new Promise((resolve, reject) => {
    const claimed = createServer().unref()
    claimed.once('error', (error: NodeJS.ErrnoException) =>
      error.code === 'EADDRINUSE' ? resolve(false) : reject(error),
    )
    claimed.listen(`\0krater-test-port-${port}`, () => resolve(true))
  })
}
