import { mkdirSync, writeFileSync } from 'node:fs'
import { createConnection } from 'node:net'
import { encodeFrame } from '../protocol/frames.js'
import { AGENT_SOCKET } from '../protocol/messages.js'
import { AGENT_ANSWERED_FILE, STATE_DIRECTORY } from '../protocol/paths.js'
import { onEveryTick } from '../time/ticks.js'

/** Timeout of one request; shorter than the interval between two. */
const ANSWER_MS = 2_500

/** Sends a request every this many ticks. At the others, touching the file is enough to show that the agent runs. */
const REQUEST_EVERY_TICKS = 4

/**
 * Touches a file at every tick, and regularly sends a request to this agent's own socket, as the controller does.
 * Until that is answered, it repeats the request and does not touch the file. The machine's init restarts an agent
 * that has not touched the file for some seconds: it hangs, or does not answer on its socket.
 * @returns a function that stops it
 */
export function answerInit(): () => void {
  let ticks = 0
  let isAnswered = true
  return onEveryTick(() => {
    ticks += 1
    if (isAnswered && ticks % REQUEST_EVERY_TICKS > 0) return touch()
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

/** Writes no data, so this also works on a full disk. */
function touch(): void {
  try {
    mkdirSync(STATE_DIRECTORY, { recursive: true })
    writeFileSync(AGENT_ANSWERED_FILE, '')
  } catch {
    // Init then restarts the agent.
  }
}
