import { mkdirSync, writeFileSync } from 'node:fs'
import { AGENT_ANSWERED_FILE, STATE_DIRECTORY } from '../protocol/paths.js'
import { onEveryTick } from '../time/ticks.js'
import { askSelf } from './ask-self.js'

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
    void askSelf().then(answered => {
      if (!answered) return
      isAnswered = true
      touch()
    })
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
