import { isDatabaseAway } from '../../database/database-away.js'
import { NotPrimary } from '../../database/servers.js'
import { sqlState } from '../../database/transaction.js'
import type { Fault } from './fault.js'

/** The database of an instance, as far as its settings are readable. */
export type DatabasePlace = {
  /** URL without its password; null when no setting names one. */
  url: string | null
  /** The state directory, if the database is the private PostgreSQL in it. */
  privateIn: string | null
}

const MIGRATE = 'Run `krater up` or `krater db migrate`, which create and update roles and tables'
const SETTINGS = 'correct database.url and the URLs of the services (database.*) in krater.yaml'

/** What an SQLSTATE means for an operator. */
const STATES: readonly { state: RegExp; reason: string; remedy: string }[] = [
  {
    state: /^28/,
    reason: 'it refuses the role or its password',
    remedy: `${MIGRATE}; with a server of your own, ${SETTINGS}`,
  },
  { state: /^3D000$/, reason: 'that database does not exist', remedy: `Create it there (createdb), or ${SETTINGS}` },
  { state: /^(42P01|42703|3F000|42883)$/, reason: 'its tables are missing or older than this Krater', remedy: MIGRATE },
  { state: /^42501$/, reason: 'its role lacks rights', remedy: MIGRATE },
  {
    state: /^(53100|53200|58030)$/,
    reason: 'its server is out of disk space or memory, or its disk is faulty',
    remedy: 'Free some space on its machine (df -h), then run the command again',
  },
  {
    state: /^53300$/,
    reason: 'it has no connection left',
    remedy: 'Raise max_connections there, or end other clients',
  },
  {
    state: /^25006$/,
    reason: 'it is read-only',
    remedy: 'Name the primary server in krater.yaml instead of a standby',
  },
  { state: /^57P03$/, reason: 'it is starting or stopping', remedy: 'Run the command again in a moment' },
  { state: /^(57P01|57P02)$/, reason: 'it was stopped', remedy: 'Run the command again once it is back' },
]

const CONNECTIONS: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'nothing listens there (ECONNREFUSED)',
  ENOENT: 'its socket does not exist (ENOENT)',
  EACCES: 'permission denied (EACCES)',
  ENOTFOUND: 'its host name is unknown (ENOTFOUND)',
  EAI_AGAIN: 'its host name cannot be resolved now (EAI_AGAIN)',
  EHOSTUNREACH: 'no route leads there (EHOSTUNREACH)',
  ENETUNREACH: 'no route leads there (ENETUNREACH)',
  ETIMEDOUT: 'it does not answer in time (ETIMEDOUT)',
}

/** Why the database failed; null when the error is not the database's. */
export function databaseFault(error: unknown, { url, privateIn }: DatabasePlace): Fault | null {
  if (!(error instanceof Error)) return null
  const code = sqlState(error)
  const about = `The database${url === null ? '' : ` ${url}`} cannot be used`
  if (error instanceof NotPrimary) {
    return { what: `${about}: ${error.message}`, remedy: 'Run the command again once its cluster has a primary' }
  }
  const known = 'severity' in error ? STATES.find(({ state }) => state.test(code)) : undefined
  if (known !== undefined) return { what: `${about}: ${known.reason}`, remedy: known.remedy }
  if ('severity' in error && !isDatabaseAway(error)) return null
  const isConnecting = 'syscall' in error && ['connect', 'getaddrinfo'].includes(String(error.syscall))
  if (!isConnecting && !(error instanceof AggregateError) && !isAwayWithoutCode(error, code)) return null
  if (code === 'EACCES') {
    return { what: `${about}: permission denied (EACCES)`, remedy: 'Run the command as root (with sudo)' }
  }
  if (privateIn !== null) {
    return { what: `PostgreSQL is not running on ${privateIn}`, remedy: 'Start it with `krater up --detach`' }
  }
  const reason = CONNECTIONS[code] ?? 'it does not answer in time'
  return { what: `${about}: ${reason}`, remedy: `Start PostgreSQL there, or ${SETTINGS}` }
}

/** pg and knex report some broken connections by a message alone. */
const isAwayWithoutCode = (error: Error, code: string): boolean => code === '' && isDatabaseAway(error)
