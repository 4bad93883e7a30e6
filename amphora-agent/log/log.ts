import { appendFileSync, mkdirSync } from 'node:fs'
import { LOG_DIRECTORY } from '../protocol/paths.js'

export type Log = { info: (text: string) => void; warn: (text: string) => void; error: (text: string) => void }

export const AGENT_LOG = `${LOG_DIRECTORY}/agent.log`

/** Writes one line per event: time, level, text. Callers must never pass key material. */
export function createLog(): Log {
  mkdirSync(LOG_DIRECTORY, { recursive: true })
  const writer = (level: string) => (text: string) => {
    const line = `${new Date().toISOString()} ${level} ${text.replaceAll('\n', ' | ')}\n`
    try {
      appendFileSync(AGENT_LOG, line)
    } catch {
      // A full memory file system must not stop the agent.
    }
  }
  return { info: writer('info'), warn: writer('warning'), error: writer('error') }
}
