import { mkdirSync, writeFileSync } from 'node:fs'
import { createConnection } from 'node:net'
import { encodeFrame } from './protocol/frames.js'
import { AGENT_SOCKET } from './protocol/messages.js'
import { AGENT_ANSWERED_FILE, STATE_DIRECTORY } from './protocol/paths.js'

const EVERY_MS = 3_000

/**
 * Asks this agent on its own socket, as the controller does, again and again, and touches a file when it has answered. The machine's init starts an
 * agent anew that has not answered for some seconds: one that hangs, or whose socket is gone.
 * @returns a function that ends it
 */
export function answerInit(): () => void {
  const timer = setInterval(() => {
    const socket = createConnection(AGENT_SOCKET)
    socket.setTimeout(EVERY_MS, () => socket.destroy())
    socket.on('error', () => socket.destroy())
    socket.once('data', () => {
      socket.destroy()
      touch()
    })
    socket.write(encodeFrame({ id: 1, verb: 'hello' }))
  }, EVERY_MS)
  return () => clearInterval(timer)
}

/** Takes no room, so it works on a full disk as well. */
function touch(): void {
  try {
    mkdirSync(STATE_DIRECTORY, { recursive: true })
    writeFileSync(AGENT_ANSWERED_FILE, '')
  } catch {
    // Init hears nothing, and starts the agent anew.
  }
}
