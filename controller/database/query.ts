import { createHash } from 'node:crypto'
import type { Knex } from 'knex'
import type { Fragment } from './sql.js'

/**
 * The functions that run a statement, on the pool or in an open transaction. Each connection parses a statement
 * once, by name.
 *
 * They use only knex's documented interface: raw() with options(), which knex passes to pg unchanged (name, values).
 * Processor time of one lookup by primary key, measured over 18,000 runs on one connection (µs, in this process and in
 * PostgreSQL's):
 *
 *     knex('t').where({ id }).first('id', ...)      182   153
 *     raw(text, bindings)                           143   132
 *     raw(text).options({ name, values })           149    78   this one
 *     client.acquireConnection(), pg's query()      128    72   knex's private parts
 *
 * The last saves 20 µs more, little in a request of some milliseconds, and could break with any release of knex. For a
 * statement that is slow to plan, such as the tree of a load balancer, preparing saves ten times its execution time.
 */

/** More texts than this program holds. Beyond it, texts vary with requests, and connections keep no further plans. */
const MAX_PREPARED = 1_000

const names = new Map<string, string>()

/** @returns all rows */
export async function many<Row>(database: Knex, statement: Fragment<Row>): Promise<Row[]> {
  return (await run(database, statement)).rows
}

/** @returns the only row. @throws Error unless there is exactly one */
export async function one<Row>(database: Knex, statement: Fragment<Row>): Promise<Row> {
  const { rows } = await run(database, statement)
  const [row] = rows
  if (row === undefined || rows.length > 1) throw new Error(`${rows.length} rows instead of one: ${statement.text}`)
  return row
}

/** @returns the first row; undefined without rows */
export async function maybeOne<Row>(database: Knex, statement: Fragment<Row>): Promise<Row | undefined> {
  return (await run(database, statement)).rows[0]
}

/** @returns the number of rows inserted, updated, deleted or selected */
export async function execute(database: Knex, statement: Fragment): Promise<number> {
  return (await run(database, statement)).rowCount ?? 0
}

/**
 * Whether the database answers.
 * @param limit milliseconds, counted from when the pool provides a connection: waiting for one means busy, not
 *   unreachable
 */
export async function answersWithin(database: Knex, limit: number): Promise<boolean> {
  try {
    await database.raw('SELECT 1').timeout(limit)
    return true
  } catch {
    return false
  }
}

async function run<Row>(
  database: Knex,
  { text, values, prepared }: Fragment<Row>,
): Promise<{ rows: Row[]; rowCount: number | null }> {
  // pg would bind NULL.
  if (values.includes(undefined)) throw new TypeError(`a value to bind is undefined: ${text}`)
  const name = prepared ? nameOf(text) : undefined
  // Repeat the text as an option: in raw()'s argument a question mark is a binding.
  return await database.raw(text).options({ name, text, values })
}

function nameOf(text: string): string | undefined {
  const known = names.get(text)
  if (known !== undefined || names.size >= MAX_PREPARED) return known
  const name = createHash('sha256').update(text).digest('base64url').slice(0, 24)
  names.set(text, name)
  return name
}
