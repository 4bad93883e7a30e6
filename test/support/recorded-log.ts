import { pino } from 'pino'
import type { Logger } from '../../controller/log/log.js'

export type LogLine = Record<string, unknown> & { level: number; msg: string }

/** What one of our parts logs, at every level, as it would be written. */
export type RecordedLog = {
  log: Logger
  lines: LogLine[]
  text: () => string
  /** The first line, past or future, with this message that `matches`. @throws Error after 15 s */
  line: (msg: string, matches?: (line: LogLine) => boolean) => Promise<LogLine>
}

export function recordLog(): RecordedLog {
  const lines: LogLine[] = []
  const watchers = new Set<() => void>()
  const written: string[] = []
  const log = pino(
    { level: 'trace' },
    {
      write: (text: string) => {
        written.push(text)
        lines.push(JSON.parse(text) as LogLine)
        for (const look of watchers) look()
      },
    },
  )
  return {
    log,
    lines,
    text: () => written.join(''),
    line: (msg, matches = () => true) =>
      new Promise((resolve, reject) => {
        const look = () => {
          const found = lines.find(line => line.msg === msg && matches(line))
          if (found === undefined) return
          end()
          resolve(found)
        }
        const limit = setTimeout(() => {
          end()
          reject(new Error(`Not logged within 15 s: ${msg}. Logged: ${lines.map(line => line.msg).join('; ')}`))
        }, 15_000)
        const end = () => {
          clearTimeout(limit)
          watchers.delete(look)
        }
        watchers.add(look)
        look()
      }),
  }
}
