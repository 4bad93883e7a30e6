import { join as joinSql, raw, Sql } from 'sql-template-tag'

/** The values that a statement may bind. Bind objects and lists of objects with json(). */
export type Bound =
  | string
  | number
  | bigint
  | boolean
  | null
  | Date
  | Uint8Array
  | readonly (string | number | boolean | null)[]
  | readonly Uint8Array[]

/**
 * A piece of SQL with its bindings, which can be part of other fragments any number of times. `Row` is the type of a
 * result row. Only the statement determines it, so the two are written together.
 */
export class Fragment<Row = unknown> extends Sql {
  declare readonly row: Row
  /** False for a text that varies with the request; see unprepared(). */
  readonly prepared: boolean

  constructor(strings: readonly string[], values: readonly unknown[], prepared = true) {
    super(strings, values)
    this.prepared = prepared
  }
}

/**
 * The one way to write SQL. Run it with the functions of query.ts:
 *
 *     type Found = { id: string; name: string }
 *     const ofProject = sql`project_id = ${projectId}`              // a value is bound, never written into the text
 *     const names = sql`name = ANY(${names})`                       // a list is one binding
 *     const where = and([ofProject, names])
 *     const found = await many(database, sql<Found>`SELECT id, name FROM pool WHERE ${where} ORDER BY id`)
 *     const pool = await maybeOne(trx, sql<Found>`SELECT id, name FROM pool WHERE id = ${id} FOR UPDATE`)
 *     const changes = assignments({ name, tags: json(tags) })
 *     const changed = await execute(trx, sql`UPDATE pool SET ${changes} WHERE id = ${id}`)
 *     const lock = wait ? sql`` : sql`SKIP LOCKED`                  // nothing is an empty fragment
 *     await execute(trx, sql`INSERT INTO ${identifier(table)} ${insertion([{ id, name }])}`)
 *
 * Name the columns instead of `*`: each connection prepares a statement once, and PostgreSQL rejects it after a newer
 * program's migration has added columns to its result. Give JSON (a jsonb column, a tree) and what an older program
 * stored the type `unknown` in `Row`, and parse it with a zod schema.
 */
export function sql<Row = unknown>(
  strings: TemplateStringsArray,
  ...values: readonly (Bound | Fragment)[]
): Fragment<Row> {
  return new Fragment<Row>(
    strings,
    values,
    values.every(value => !(value instanceof Fragment) || value.prepared),
  )
}

/** Values or fragments with the separator between them. @throws TypeError for an empty list */
export function join(items: readonly (Bound | Fragment)[], separator = ', '): Fragment {
  return fragmentOf(joinSql(items, separator), items)
}

/** Conditions that must all hold; TRUE when there are none. */
export const and = (conditions: readonly Fragment[]): Fragment => combined(conditions, ') AND (', 'TRUE')

/** Conditions of which one must hold; FALSE when there are none. */
export const or = (conditions: readonly Fragment[]): Fragment => combined(conditions, ') OR (', 'FALSE')

/** The quoted name of a table or column. Several parts, such as schema or alias and name, are joined with dots. */
export function identifier(...parts: readonly string[]): Fragment {
  return trusted(parts.map(part => `"${part.replaceAll('"', '""')}"`).join('.'))
}

/** Quoted names of columns, for SELECT or RETURNING. */
export const identifiers = (names: readonly string[]): Fragment =>
  trusted(names.map(name => `"${name.replaceAll('"', '""')}"`).join(', '))

/** SQL text that is a constant of this program, never input from a caller. */
export function trusted(text: string): Fragment {
  const { strings, values } = raw(text)
  return new Fragment(strings, values)
}

/** A value bound as JSON text: for a json or jsonb column. */
export const json = (value: unknown): string => JSON.stringify(value)

/**
 * Converts values of columns to bindings when their types are unknown: an object becomes JSON for a jsonb
 * column, a list becomes an array of texts.
 * @throws TypeError for a value that no column can hold
 */
export function boundColumns(columns: Readonly<Record<string, unknown>>): Record<string, Bound> {
  return Object.fromEntries(Object.entries(columns).map(([name, value]) => [name, boundValue(value)]))
}

function boundValue(value: unknown): Bound {
  if (value === null || typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean')
    return value
  if (Array.isArray(value)) return value.map(String)
  if (typeof value === 'object') return json(value)
  throw new TypeError(`a column cannot hold a value of type ${typeof value}`)
}

/**
 * `name = value, ...` for SET. A value may be a fragment of SQL, such as now(). Omits columns whose value is undefined.
 * The columns mostly depend on the request, so the statement is not prepared unless wrapped in prepared().
 * @throws TypeError without any column
 */
export function assignments(columns: Readonly<Record<string, Bound | Fragment | undefined>>): Fragment {
  const given = Object.entries(columns).flatMap(([name, value]) =>
    value === undefined ? [] : [sql`${identifier(name)} = ${value}`],
  )
  return unprepared(join(given))
}

/**
 * `(columns) VALUES (...), ...` for INSERT INTO. All rows have the columns of the first. As with assignments(), the
 * statement is not prepared unless wrapped in prepared().
 * @throws TypeError without any row or column
 */
export function insertion(rows: readonly Readonly<Record<string, Bound | Fragment>>[]): Fragment {
  const names = Object.keys(rows[0] ?? {})
  const tuples = rows.map(row => sql`(${join(names.map(name => row[name] ?? null))})`)
  return unprepared(sql`(${identifiers(names)}) VALUES ${join(tuples)}`)
}

/**
 * For a statement whose text varies with the request, such as a filtered list: no connection keeps a plan for it. Every
 * other statement is prepared, which works only as the number of texts is small.
 */
export function unprepared<Row>(statement: Fragment<Row>): Fragment<Row> {
  return new Fragment<Row>(statement.strings, statement.values, false)
}

/** For assignments() and insertion() with few possible combinations of columns and number of rows. */
export function prepared<Row>(statement: Fragment<Row>): Fragment<Row> {
  return new Fragment<Row>(statement.strings, statement.values, true)
}

function combined(conditions: readonly Fragment[], operator: string, none: string): Fragment {
  return conditions.length === 0 ? trusted(none) : sql`(${join(conditions, operator)})`
}

function fragmentOf({ strings, values }: Sql, items: readonly (Bound | Fragment)[]): Fragment {
  return new Fragment(
    strings,
    values,
    items.every(item => !(item instanceof Fragment) || item.prepared),
  )
}
