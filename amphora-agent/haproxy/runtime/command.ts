import { createConnection } from 'node:net'

/** Far above the state of ten thousand servers. */
const MAX_ANSWER = 64 * 1024 * 1024

/**
 * One command on a runtime or master socket.
 * @returns the answer, without the empty line at its end
 * @throws Error when nobody listens, or when the whole answer is not there in time
 */
export function sendCommand(socketPath: string, command: string, timeoutMs = 5_000): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = createConnection(socketPath)
    const pieces: Buffer[] = []
    let size = 0
    const timer = setTimeout(() => fail(new Error(`HAProxy did not answer within ${timeoutMs} ms`)), timeoutMs)
    const fail = (error: Error) => {
      clearTimeout(timer)
      socket.destroy()
      reject(error)
    }
    socket.on('error', fail)
    socket.on('data', (piece: Buffer) => {
      size += piece.length
      pieces.push(piece)
      if (size > MAX_ANSWER) fail(new Error('HAProxy answered with too much'))
    })
    socket.on('end', () => {
      clearTimeout(timer)
      socket.destroy()
      resolve(Buffer.concat(pieces).toString('utf8').trimEnd())
    })
    // The master socket answers to its end only when the asker has said that there is no more to come.
    socket.end(`${command}\n`)
  })
}
