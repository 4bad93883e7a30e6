import { createConnection } from 'node:net'

/** Limit of an answer, far above the state of ten thousand servers. */
const MAX_ANSWER = 64 * 1024 * 1024

/**
 * Sends one command to a runtime or master socket.
 * @returns the answer, without the empty line at its end
 * @throws Error if nothing listens, or the answer is incomplete at the timeout or too long
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
      if (size > MAX_ANSWER) fail(new Error(`HAProxy's answer exceeds ${MAX_ANSWER} bytes`))
    })
    socket.on('end', () => {
      clearTimeout(timer)
      socket.destroy()
      resolve(Buffer.concat(pieces).toString('utf8').trimEnd())
    })
    // The master socket completes its answer only after the client has closed its sending side.
    socket.end(`${command}\n`)
  })
}
