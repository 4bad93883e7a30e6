import { createHash } from 'node:crypto'
import type { Knex } from 'knex'
import type { Fragment } from './sql.js'

/**
 * The verbs that run a statement, on the pool or in a transaction that is under way. Each connection parses a statement once, by name.
 *
 * They use knex's documented way only: raw() with options(), which go to pg as they are (name, values). Processor time of one lookup by
 * primary key, measured over 18,000 runs on one connection (µs, in this process and in PostgreSQL's):
 *
 *     knex('t').where({ id }).first('id', ...)      182   153
 *     raw(text, bindings)                           143   132
 *     raw(text).options({ name, values })           149    78   this one
 *     client.acquireConnection(), pg's query()      128    72   knex's private parts
 *
 * The last is 20 µs cheaper, which is little in requests of some milliseconds, and breaks with any release of knex. A statement that takes
 * long to plan, such as the tree of a load balancer, gains ten times what it takes to run.
 */

/** More different texts than this program holds: beyond it texts vary with requests, and connections keep no more plans. */
const MOST_PREPARED = 1_000

const names = new Map<string, string>()

/** @returns all rows */
export async function many<Row>(database: Knex, statement: Fragment<Row>): Promise<Row[]> {
  return (await run(database, statement)).rows
}

/** @returns the only row. @throws Error when there is another number of rows */
export async function one<Row>(database: Knex, statement: Fragment<Row>): Promise<Row> {
  const { rows } = await run(database, statement)
  const [row] = rows
  if (row === undefined || rows.length > 1) throw new Error(`${rows.length} rows instead of one: ${statement.text}`)
  return row
}

/** @returns the first row, or undefined when there is none */
export async function maybeOne<Row>(database: Knex, statement: Fragment<Row>): Promise<Row | undefined> {
  return (await run(database, statement)).rows[0]
}

/** @returns how many rows were inserted, updated, deleted or selected */
export async function execute(database: Knex, statement: Fragment): Promise<number> {
  return (await run(database, statement)).rowCount ?? 0
}

/**
 * Whether the database answers.
 * @param limit milliseconds, counted from when the pool gives a connection: one that waits for its turn is busy, not away
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
  // pg would write NULL
  if (values.includes(undefined)) throw new TypeError(`a value to bind is undefined: ${text}`)
  const name = prepared ? nameOf(text) : undefined
  // The text goes along, for in raw()'s own a question mark is a binding.
  return await database.raw(text).options({ name, text, values })
}

function nameOf(text: string): string | undefined {
  const known = names.get(text)
  if (known !== undefined || names.size >= MOST_PREPARED) return known
  const name = createHash('sha256').update(text).digest('base64url').slice(0, 24)
  names.set(text, name)
  return name
}
