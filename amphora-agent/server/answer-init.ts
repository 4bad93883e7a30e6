import { mkdirSync, writeFileSync } from 'node:fs'
import { createConnection } from 'node:net'
import { encodeFrame } from '../protocol/frames.js'
import { AGENT_SOCKET } from '../protocol/messages.js'
import { AGENT_ANSWERED_FILE, STATE_DIRECTORY } from '../protocol/paths.js'
import { atEveryMoment } from '../time/moments.js'

/** Sooner than it is asked again. */
const ANSWER_MS = 2_500

/** It asks at one of so many moments. At the others the touch alone says that the agent runs. */
const ASK_EVERY = 4

/**
 * Touches a file at every moment, and now and then asks this agent on its own socket, as the controller does: until that is answered it asks on
 * and touches nothing. The machine's init starts an agent anew that has touched nothing for some seconds: one that hangs, or whose socket
 * answers nobody.
 * @returns a function that ends it
 */
export function answerInit(): () => void {
  let moments = 0
  let isAnswered = true
  return atEveryMoment(() => {
    moments += 1
    if (isAnswered && moments % ASK_EVERY > 0) return touch()
    isAnswered = false
    const socket = createConnection(AGENT_SOCKET)
    socket.setTimeout(ANSWER_MS, () => socket.destroy())
    socket.on('error', () => socket.destroy())
    socket.once('data', () => {
      socket.destroy()
      isAnswered = true
      touch()
    })
    socket.write(encodeFrame({ id: 1, verb: 'hello' }))
  })
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
