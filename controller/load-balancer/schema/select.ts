import type { Knex } from 'knex'
import { type Resource, sqlOf } from './resource.js'

/** Trusted SQL with bind parameters. */
export type Condition = { sql: string; bindings: readonly Knex.RawBinding[] }

export const condition = (sql: string, ...bindings: Knex.RawBinding[]): Condition => ({ sql, bindings })

export const allOf = (conditions: readonly Condition[]): Condition =>
  conditions.length === 0
    ? condition('true')
    : condition(
        conditions.map(({ sql }) => `(${sql})`).join(' AND '),
        ...conditions.flatMap(({ bindings }) => bindings),
      )

/** One object ready for the wire: its key, its project (null for what belongs to nobody), and its JSON text, which PostgreSQL wrote. */
export type Presented = { id: string; projectId: string | null; body: string }

export type Selection = {
  where: Condition
  /** Trusted SQL after ORDER BY. */
  order?: string
  limit?: number | null
  /** Response keys desired; null: all of them. */
  fields?: ReadonlySet<string> | null
  /** One more value of each, for its reader. */
  beside?: Condition | undefined
}

/** Reads objects in their response form: one statement, whatever hangs below them. */
export async function selectObjects<Beside = never>(
  database: Knex,
  resource: Resource,
  selection: Selection,
): Promise<(Presented & { beside?: Beside })[]> {
  const { where, order, limit = null, fields = null, beside } = selection
  const { keys, omittable } = keysOf(resource, fields)
  const { rows } = await database.raw(
    `SELECT o.${resource.key.column} AS id, ${resource.project ?? 'NULL'} AS "projectId", row_to_json(object)::text AS body
            ${omittable.map(({ key, sql }) => `, to_json(${sql})::text AS "${key}"`).join('')}
            ${beside === undefined ? '' : `, ${beside.sql} AS beside`}
       FROM ${resource.source} CROSS JOIN LATERAL (SELECT ${keys.join(', ')}) object
      WHERE ${where.sql}
      ${order === undefined ? '' : `ORDER BY ${order}`}
      ${limit === null ? '' : 'LIMIT ?'}`,
    [...(beside?.bindings ?? []), ...where.bindings, ...(limit === null ? [] : [limit])],
  )
  return (rows as (Presented & { beside?: Beside } & Record<string, string | null>)[]).map(row => ({
    id: row.id,
    projectId: row.projectId,
    ...(row.beside === undefined ? {} : { beside: row.beside }),
    body: omittable.reduce((body, { key }) => {
      const value = row[key]
      return value === null || value === undefined ? body : withKey(body, key, value)
    }, row.body),
  }))
}

function keysOf(resource: Resource, fields: ReadonlySet<string> | null) {
  const keys: string[] = []
  const omittable: { key: string; sql: string }[] = []
  for (const [key, attribute] of Object.entries(resource.attributes)) {
    const sql = sqlOf(key, attribute)
    if (sql === null || (fields !== null && !fields.has(key))) continue
    if (attribute.omittedWhenNull) omittable.push({ key, sql })
    else keys.push(`${sql} AS "${key}"`)
  }
  return { keys, omittable }
}

/** SQL of the response form of a row that is just inserted under the alias `o`, without the keys that are omitted when they are null. */
export function bodyOfInserted(resource: Resource): string {
  return `(SELECT row_to_json(object)::text FROM (SELECT ${keysOf(resource, null).keys.join(', ')}) object)`
}

/** One object in its response form, or undefined. */
export async function selectObject(
  database: Knex,
  resource: Resource,
  where: Condition,
  fields: ReadonlySet<string> | null = null,
): Promise<Presented | undefined> {
  return (await selectObjects(database, resource, { where, fields }))[0]
}

/** The same for an object that this transaction has just written. */
export async function selectOne(database: Knex, resource: Resource, where: Condition): Promise<Presented> {
  const object = await selectObject(database, resource, where)
  if (object === undefined) throw new Error(`A ${resource.label} vanished while its load balancer was held`)
  return object
}

/** The text of a JSON object with one more key. */
export const withKey = (body: string, key: string, json: string): string =>
  `${body.slice(0, -1)}${body === '{}' ? '' : ','}${JSON.stringify(key)}:${json}}`

/** SQL of a list of child references, in the order in which the children were made. */
export function idList(table: string, alias: string, on: string, order = `${alias}.created_at, ${alias}.id`): string {
  return `(SELECT coalesce(json_agg(json_build_object('id', ${alias}.id) ORDER BY ${order}), '[]'::json) FROM ${table} ${alias} WHERE ${on})`
}

/** SQL of the one-element list that names a parent. */
export const idOf = (column: string): string => `json_build_array(json_build_object('id', ${column}))`
