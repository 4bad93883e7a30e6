import { type Logger, pino } from 'pino'

export type { Logger }

/** Writes JSON lines to standard output. Redacts fields that may hold secrets, by name. */
export function createLog(name: string, level = 'info'): Logger {
  return pino({
    name,
    level,
    redact: {
      paths: ['password', 'secret', 'token', '*.password', '*.secret', '*.token', 'headers["x-auth-token"]'],
      censor: '(hidden)',
    },
    timestamp: pino.stdTimeFunctions.isoTime,
  })
}
