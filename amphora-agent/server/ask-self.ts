import { createConnection } from 'node:net'
import { encodeFrame } from '../protocol/frames.js'
import { AGENT_SOCKET } from '../protocol/messages.js'

/** Shorter than the interval between two ticks. */
const ANSWER_MS = 2_500

/** Sends a request to this agent's own socket, as the controller does. @returns whether it is answered */
export function askSelf(): Promise<boolean> {
  return new Promise(resolve => {
    const socket = createConnection(AGENT_SOCKET)
    socket.setTimeout(ANSWER_MS, () => socket.destroy())
    socket.on('error', () => socket.destroy())
    socket.once('data', () => {
      resolve(true)
      socket.destroy()
    })
    socket.once('close', () => resolve(false))
    socket.write(encodeFrame({ id: 1, verb: 'hello' }))
  })
}
