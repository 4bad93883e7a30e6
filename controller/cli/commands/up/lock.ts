import { createHash } from 'node:crypto'
import { createServer } from 'node:net'

/**
 * Ensures that only one `krater up` works on a state directory. The lock is an abstract unix socket: the kernel
 * releases it however its holder exits.
 * @returns a function that releases the lock; null when another process holds it
 */
export function lockStateDirectory(stateDirectory: string): Promise<(() => void) | null> {
  const name = `\0krater-up-${createHash('sha256').update(stateDirectory).digest('hex').slice(0, 32)}`
  return new Promise((resolve, reject) => {
    const server = createServer(socket => socket.destroy())
    server.once('error', error => {
      if ((error as NodeJS.ErrnoException).code === 'EADDRINUSE') resolve(null)
      else reject(error)
    })
    server.listen(name, () => {
      server.unref()
      resolve(() => server.close())
    })
  })
}
