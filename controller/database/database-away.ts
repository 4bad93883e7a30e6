import { NotPrimary } from './servers.js'
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

/** SQLSTATE read_only_sql_transaction: the server is a standby by now. */
export const READ_ONLY = '25006'

/** SQLSTATE classes: 08 connection exception, 57P shutdown, crash or start-up; 53300 too many connections. */
const AWAY_STATE = /^(08...|57P..|53300|25006)$/

/**
 * Messages of pg and knex, which come without a code, when a connection breaks during a query or none is
 * available. Knex puts the statement before the message.
 */
const AWAY_MESSAGE =
  /^Knex: Timeout acquiring a connection|(^|- )(Connection (terminated|ended)[a-z ]*|timeout expired|Query read timeout|There was an error establishing an SSL connection|Client (has encountered a connection error|was closed) and is not queryable)$/

/** Whether the database was unreachable. The same work may then be retried: the error says nothing about the work. */
export function isDatabaseAway(error: unknown): boolean {
  if (!(error instanceof Error)) return false
  const code = sqlState(error)
  if (error instanceof NotPrimary) return true
  return CONNECTION_CODES.has(code) || AWAY_STATE.test(code) || AWAY_MESSAGE.test(error.message)
}
