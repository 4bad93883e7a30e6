import type { Knex } from 'knex'
import { many } from '../../database/query.js'
import { type Fragment, sql, trusted, unprepared } from '../../database/sql.js'
import { type Resource, sqlOf } from './resource.js'

/**
 * One object in its response form: key, project (null if it has no owner), and JSON text as written by
 * PostgreSQL.
 */
export type Presented = { id: string; projectId: string | null; body: string }

export type Selection = {
  where: Fragment
  /** SQL of ORDER BY. */
  order?: Fragment
  limit?: number | null
  /** Response keys to select; null for all. */
  fields?: ReadonlySet<string> | null
  /** SQL of one more value per object. */
  extra?: Fragment | undefined
}

/** Reads objects in their response form, in one statement regardless of their children. */
export async function selectObjects<Extra = never>(
  database: Knex,
  resource: Resource,
  selection: Selection,
): Promise<(Presented & { extra?: Extra })[]> {
  const { where, order, limit = null, fields = null, extra } = selection
  const { keys, omittable } = selectedKeys(resource, fields)
  type Row = Presented & { extra?: Extra; omittable: Readonly<Record<string, string | null>> | null }
  const statement = sql<Row>`
      SELECT ${trusted(`o.${resource.key.column} AS id, ${resource.project ?? 'NULL'} AS "projectId"`)},
             row_to_json(object)::text AS body, ${omittableTexts(omittable)} AS omittable
             ${extra === undefined ? sql`` : sql`, ${extra} AS extra`}
        FROM ${trusted(`${resource.source} CROSS JOIN LATERAL (SELECT ${keys.join(', ')}) object`)}
       WHERE ${where}
       ${order === undefined ? sql`` : sql`ORDER BY ${order}`}
       ${limit === null ? sql`` : sql`LIMIT ${limit}`}`
  const rows = await many(database, fields === null ? statement : unprepared(statement))
  return rows.map(({ id, projectId, extra, omittable, body }) => ({
    id,
    projectId,
    ...(extra === undefined ? {} : { extra }),
    body: Object.entries(omittable ?? {}).reduce(
      (text, [key, value]) => (value === null ? text : withKey(text, key, value)),
      body,
    ),
  }))
}

function selectedKeys(resource: Resource, fields: ReadonlySet<string> | null) {
  const keys: string[] = []
  const omittable: { key: string; sql: string }[] = []
  for (const [key, attribute] of Object.entries(resource.attributes)) {
    const value = sqlOf(key, attribute)
    if (value === null || (fields !== null && !fields.has(key))) continue
    if (attribute.omittedWhenNull) omittable.push({ key, sql: value })
    else keys.push(`${value} AS "${key}"`)
  }
  return { keys, omittable }
}

/** SQL of the JSON texts of omittable values by key, or null if there are none. */
function omittableTexts(omittable: readonly { key: string; sql: string }[]): Fragment {
  if (omittable.length === 0) return sql`NULL::json`
  const pairs = omittable.map(({ key, sql: value }) => `'${key}', to_json(${value})::text`)
  return trusted(`json_build_object(${pairs.join(', ')})`)
}

/** SQL of the response form of a row that an INSERT with the alias `o` returns, without omittable keys. */
export function insertedBody(resource: Resource): string {
  return `(SELECT row_to_json(object)::text FROM (SELECT ${selectedKeys(resource, null).keys.join(', ')}) object)`
}

/** One object in its response form, or undefined. */
export async function selectObject(
  database: Knex,
  resource: Resource,
  where: Fragment,
  fields: ReadonlySet<string> | null = null,
): Promise<Presented | undefined> {
  return (await selectObjects(database, resource, { where, fields }))[0]
}

/** The same, for an object that this transaction has just written. */
export async function selectOne(database: Knex, resource: Resource, where: Fragment): Promise<Presented> {
  const object = await selectObject(database, resource, where)
  if (object === undefined) throw new Error(`A ${resource.label} vanished while its load balancer was locked`)
  return object
}

/** Appends a key to the text of a JSON object. */
export const withKey = (body: string, key: string, json: string): string =>
  `${body.slice(0, -1)}${body === '{}' ? '' : ','}${JSON.stringify(key)}:${json}}`

/** SQL of a list of child references, by default in order of creation. */
export function idList(table: string, alias: string, on: string, order = `${alias}.created_at, ${alias}.id`): string {
  return `(SELECT coalesce(json_agg(json_build_object('id', ${alias}.id) ORDER BY ${order}), '[]'::json) FROM ${table} ${alias} WHERE ${on})`
}

/** SQL of the one-element list with the id of a parent. */
export const idReference = (column: string): string => `json_build_array(json_build_object('id', ${column}))`

/** `{"<key>": <object>}` around the JSON text of an object. */
export const wrapped = (key: string, json: string): string => `{${JSON.stringify(key)}:${json}}`
