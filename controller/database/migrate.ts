import type { Knex } from 'knex'
import type { Database } from './connection.js'
import { execute, many, maybeOne, one } from './query.js'
import { identifier, sql, trusted, unprepared } from './sql.js'
import { inTransaction } from './transaction.js'
import { UnusableDatabase } from './unusable-database.js'

export type Migration = {
  /** Sorts the migrations of one service: `001-first-tables`. Never renamed once released. */
  name: string
  up: (trx: Knex) => Promise<void>
}

export type ServiceSchema = {
  /** Name of the PostgreSQL schema; the role is `krater_<schema>`. */
  schema: 'identity' | 'network' | 'load_balancer' | 'key_manager'
  migrations: readonly Migration[]
  /** Runs as administrator after every migration run: transfers ownership of what the service uses but must not own. */
  transferOwnership?: (administrator: Knex) => Promise<void>
}

export const roleOf = (schema: ServiceSchema['schema']): string => `krater_${schema}`

/**
 * Timeout for a migration's statements, which may rewrite millions of rows. The timeout for requests is far
 * shorter.
 */
const MIGRATION_TIMEOUT = '1h'

/**
 * Creates the role and the schema of one service, as a database administrator. Safe to repeat and to run concurrently.
 * @param password the role's password, set at each call
 */
export async function prepareSchema(
  administrator: Database,
  schema: ServiceSchema['schema'],
  password: string,
): Promise<void> {
  const role = roleOf(schema)
  await inTransaction(administrator, async trx => {
    await execute(trx, sql`SELECT pg_advisory_xact_lock(hashtext('krater prepare schema'))`)
    const known = await maybeOne(trx, sql`SELECT oid FROM pg_roles WHERE rolname = ${role}`)
    if (known === undefined) await execute(trx, sql`CREATE ROLE ${identifier(role)} LOGIN`)
    // ALTER ROLE takes no bind parameters; the server itself quotes the password.
    const { statement } = await one(
      trx,
      sql<{
        statement: string
      }>`SELECT format('ALTER ROLE %I PASSWORD %L', ${role}::text, ${password}::text) AS statement`,
    )
    await execute(trx, unprepared(trusted(statement))).catch(error => {
      // Knex puts the statement, which holds the password, before the server's message.
      error.message = `ALTER ROLE ${role}: ${error.message.slice(error.message.lastIndexOf(' - ') + 3)}`
      throw error
    })
    // The second schema, if it exists, holds what the service uses but does not own.
    const path = sql`${identifier(schema)}, ${identifier(`${schema}_audit`)}`
    await execute(trx, sql`ALTER ROLE ${identifier(role)} SET search_path = ${path}`)
    await execute(trx, sql`CREATE SCHEMA IF NOT EXISTS ${identifier(schema)} AUTHORIZATION ${identifier(role)}`)
  })
}

/**
 * Migrates the tables of one service, as that service's role. Each migration and its record are one transaction, so a
 * kill never leaves half a migration. Concurrent runs wait for each other.
 * @throws UnusableDatabase when a newer Krater wrote the database
 */
export async function migrate(database: Database, { schema, migrations }: ServiceSchema): Promise<void> {
  const lock = (trx: Knex) => execute(trx, sql`SELECT pg_advisory_xact_lock(hashtext(${`krater migrate ${schema}`}))`)
  await inTransaction(database, async trx => {
    await lock(trx)
    await execute(
      trx,
      sql`CREATE TABLE IF NOT EXISTS migration (name text PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now())`,
    )
  })
  const known = new Set(migrations.map(migration => migration.name))
  const applied = await many(database, sql<{ name: string }>`SELECT name FROM migration`)
  const unknown = applied
    .map(({ name }) => name)
    .filter(name => !known.has(name))
    .sort()
  if (unknown.length > 0) {
    throw new UnusableDatabase(
      `The ${schema} tables were written by a newer Krater (${unknown.join(', ')}). Start that version, or restore a backup made before it.`,
    )
  }
  for (const migration of migrations) {
    await inTransaction(database, async trx => {
      await lock(trx)
      const done = await maybeOne(trx, sql`SELECT name FROM migration WHERE name = ${migration.name}`)
      if (done !== undefined) return
      await execute(trx, sql`SELECT set_config('statement_timeout', ${MIGRATION_TIMEOUT}, true)`)
      await migration.up(trx)
      await execute(trx, sql`INSERT INTO migration (name) VALUES (${migration.name})`)
    })
  }
}
