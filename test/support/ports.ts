import { createServer } from 'node:net'

/** Above those with a meaning, and below those that the kernel gives to clients and to whoever names none. */
const FIRST_PORT = 10_000
const LAST_PORT = 30_000

/**
 * Ports that nobody else in the sandbox gets while this process lives, and that nobody has by chance. To see that a port is free now would not
 * do: tests run side by side, and two HAProxies that have the same one share its connections without a word.
 */
export async function ownPorts(count: number): Promise<number[]> {
  const owned: number[] = []
  while (owned.length < count) {
    const port = FIRST_PORT + Math.floor(Math.random() * (LAST_PORT - FIRST_PORT))
    if (await claim(port)) owned.push(port)
  }
  return owned
}

/** A name of the kernel's stands for the port: it has the same scope, and one owner, with whom it goes. */
function claim(port: number): Promise<boolean> {
  return new Promise((resolve, reject) => {
    const claimed = createServer().unref()
    claimed.once('error', (error: NodeJS.ErrnoException) =>
      error.code === 'EADDRINUSE' ? resolve(false) : reject(error),
    )
    claimed.listen(`\0krater-test-port-${port}`, () => resolve(true))
  })
}
