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

type Prepared = { name: string; text: string }

/** What is used here of a connection of pg, and of the pool that knex keeps or the transaction that it runs. */
type Connection = {
  query: (query: Prepared & { values: unknown[] }) => Promise<{ rows: unknown[] }>
}
type Client = {
  acquireConnection: () => Promise<Connection>
  releaseConnection: (connection: Connection) => Promise<void>
  emit: (event: 'query', query: { sql: string; bindings: readonly unknown[] }) => void
}

/** Texts are written in this program, so there are only so many. */
const preparedTexts = new Map<string, Prepared>()

/**
 * Runs one statement as a prepared one: each connection parses it once. A third of the processor time of `raw`, for statements that requests
 * run again and again; its text must be the same each time but for what is bound.
 * @param database the pool, or a transaction that is under way
 * @param sql with `?` for each binding
 * @returns the rows; what they hold is for the caller to know
 */
export async function query<Row>(database: Knex, sql: string, bindings: readonly unknown[]): Promise<Row[]> {
  const prepared = preparedTexts.get(sql) ?? prepare(sql)
  const client: Client = database.client
  const connection = await client.acquireConnection()
  try {
    client.emit('query', { sql: prepared.text, bindings })
    const { rows } = await connection.query({ ...prepared, values: [...bindings] })
    return rows as Row[]
  } finally {
    await client.releaseConnection(connection)
  }
}

function prepare(sql: string): Prepared {
  let count = 0
  const text = sql.replace(/\\\?|\?/g, mark => (mark === '?' ? `$${++count}` : '?'))
  const prepared = { name: createHash('sha256').update(text).digest('base64url').slice(0, 24), text }
  preparedTexts.set(sql, prepared)
  return prepared
}
