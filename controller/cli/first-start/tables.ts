import { setTimeout as delay } from 'node:timers/promises'
import { connect, type Database } from '../../database/connection.js'
import { migrate, prepareSchema } from '../../database/migrate.js'
import { execute } from '../../database/query.js'
import { NotPrimary } from '../../database/servers.js'
import { sql } from '../../database/sql.js'
import { sqlState } from '../../database/transaction.js'
import { databaseFault } from '../faults/database-fault.js'
import { sentenceOf } from '../faults/fault.js'
import { OperatorError } from '../operator-error.js'
import { passwordOf, withoutPassword } from '../state-directory/database-urls.js'
import { print } from '../terminal.js'
import { databaseUrl, type Instance } from '../wiring/instance.js'
import { serviceSchemas } from '../wiring/services.js'

/** SQLSTATE cannot_connect_now: the server is starting or stopping. */
const CANNOT_CONNECT_NOW = '57P03'
const INSUFFICIENT_PRIVILEGE = '42501'
/** Long enough for a cluster to choose another primary. */
const START_TIMEOUT_MS = 60_000

/**
 * Creates roles and schemas (if an administrator's URL is configured) and migrates all tables.
 * @throws OperatorError when the database cannot be reached
 */
export async function prepareTables(instance: Instance): Promise<void> {
  await asAdministrator(instance, async administrator => {
    for (const { schema } of serviceSchemas) {
      await prepareSchema(administrator, schema, passwordOf(databaseUrl(instance, schema)))
    }
  })
  for (const service of serviceSchemas) {
    const url = databaseUrl(instance, service.schema)
    const database = connect({ url, applicationName: 'krater db migrate', isPatient: true })
    try {
      await waitUntilReachable(() => execute(database, sql`SELECT 1`), url)
      await migrate(database, service)
    } finally {
      await database.destroy()
    }
  }
  await asAdministrator(instance, async administrator => {
    for (const { schema, transferOwnership } of serviceSchemas) {
      await transferOwnership?.(administrator).catch(error => {
        if (sqlState(error) !== INSUFFICIENT_PRIVILEGE) throw error
        print(
          `The ${schema} role still owns its audit log: moving the log to a separate role needs a superuser's URL in database.url.`,
        )
      })
    }
  })
}

/** Does nothing without an administrator's URL. */
async function asAdministrator({ config }: Instance, body: (administrator: Database) => Promise<void>): Promise<void> {
  const { url } = config.database
  if (url === undefined) return
  const administrator = connect({ url, applicationName: 'krater db migrate', poolSize: 1, isPatient: true })
  try {
    await waitUntilReachable(() => execute(administrator, sql`SELECT 1`), url)
    await body(administrator)
  } finally {
    await administrator.destroy()
  }
}

async function waitUntilReachable(probe: () => Promise<unknown>, url: string): Promise<void> {
  const until = performance.now() + START_TIMEOUT_MS
  for (;;) {
    try {
      await probe()
      return
    } catch (error) {
      const mayPass = error instanceof NotPrimary || sqlState(error) === CANNOT_CONNECT_NOW
      if (!mayPass || performance.now() > until) {
        const fault = databaseFault(error, { url: withoutPassword(url), privateIn: null })
        throw fault === null ? error : new OperatorError(sentenceOf(fault))
      }
      await delay(200)
    }
  }
}
