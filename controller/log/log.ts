import { type Logger, pino } from 'pino'

export type { Logger }

/** JSON lines on standard output. Anything that may hold a secret is redacted by its name, whatever object carries it. */
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
