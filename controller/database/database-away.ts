import { sqlState } from './transaction.js'

const CONNECTION_CODES: ReadonlySet<string> = new Set([
  'ECONNREFUSED',
  'ECONNRESET',
  'EPIPE',
  'ENOENT', // the server's unix socket
  'ENOTFOUND',
  'EAI_AGAIN',
  'ETIMEDOUT',
  'EHOSTUNREACH',
  'ENETUNREACH',
])

/** SQLSTATE classes: 08 connection exception, 57P shutdown, crash or start-up; 53300 too many connections. */
const AWAY_STATE = /^(08...|57P..|53300)$/

/** What pg and knex say, without any code, when a connection breaks under a query or none is to be had; knex puts the statement before it. */
const AWAY_WORDS =
  /^Knex: Timeout acquiring a connection|(^|- )(Connection (terminated|ended)[a-z ]*|timeout expired|Client (has encountered a connection error|was closed) and is not queryable)$/

/** True when the database was out of reach, so that the same work may be tried again: it says nothing about the work. */
export function isDatabaseAway(error: unknown): boolean {
  if (!(error instanceof Error)) return false
  const code = sqlState(error)
  return CONNECTION_CODES.has(code) || AWAY_STATE.test(code) || AWAY_WORDS.test(error.message)
}
