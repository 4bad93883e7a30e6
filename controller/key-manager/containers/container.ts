import type { Knex } from 'knex'
import * as z from 'zod'
import { maybeOne } from '../../database/query.js'
import { type Fragment, sql, trusted } from '../../database/sql.js'
import { missing, requireId } from '../ids.js'
import { filledText, textUpTo } from '../input.js'
import type { Target } from '../rights.js'
import { targetColumns } from '../secrets/secret.js'

const CONTAINER_TYPES = ['generic', 'rsa', 'certificate'] as const

export type ContainerType = (typeof CONTAINER_TYPES)[number]

const name = textUpTo(255)
  .nullish()
  .transform(text => text ?? null)

/** A secret and its name in the container; also the body that adds or removes one. */
export const namedReference = z.object({ name, secret_ref: filledText() }).meta({ title: 'reference' })

export type NamedReference = z.output<typeof namedReference>

/** Per container. Limits the size of answers, as records and lists show all references. */
export const MAX_REFERENCES = 1000

/** The body of a POST; ignores unknown members. */
export const newContainer = z
  .object({
    type: z.enum(CONTAINER_TYPES, `must be one of ${CONTAINER_TYPES.join(', ')}`),
    name,
    secret_refs: z.array(namedReference).max(MAX_REFERENCES, `must have at most ${MAX_REFERENCES} members`).default([]),
  })
  .meta({ title: 'container' })

/** SQL for the record of a container (alias c) as JSON text; `base.url` is the root of the API. */
export const CONTAINER_JSON = sql`json_build_object(
    'created', iso_time(c.created_at), 'updated', iso_time(c.updated_at), 'status', 'ACTIVE', 'name', c.name,
    'type', c.type, 'creator_id', c.creator_id,
    'secret_refs', (SELECT coalesce(json_agg(json_build_object('name', r.name,
        'secret_ref', base.url || '/v1/secrets/' || r.secret_id) ORDER BY r.position), '[]')
      FROM container_secret r WHERE r.container_id = c.id),
    'consumers', (SELECT coalesce(json_agg(json_build_object('name', u.name, 'URL', u.url) ORDER BY u.name, u.url), '[]')
      FROM container_consumer u WHERE u.container_id = c.id),
    'container_ref', base.url || '/v1/containers/' || c.id)::text`

/** SQL: the container with this alias is not deleted. */
export const liveContainer = (alias: string): Fragment => trusted(`${alias}.deleted_at IS NULL`)

export type FoundContainer = Target & { id: string; type: ContainerType }

/**
 * Finds a live container of any project, with the columns that rules need.
 * @param columns more columns, as SQL over the aliases c and base
 * @param base URL of the root of the API, for references
 * @param lock such as `FOR UPDATE OF c`
 * @throws ApiError 404
 */
export async function findContainer<More = unknown>(
  database: Knex,
  id: string | undefined,
  { columns, base = '', lock = sql`` }: { columns?: Fragment; base?: string; lock?: Fragment } = {},
): Promise<FoundContainer & More> {
  const found = await maybeOne(
    database,
    sql<FoundContainer & More>`
      SELECT c.id, c.type, ${targetColumns('c')}${columns === undefined ? sql`` : sql`, ${columns}`}
        FROM container c CROSS JOIN (SELECT ${base}::text AS url) base
       WHERE c.id = ${requireId(id, 'Container')} AND ${liveContainer('c')} ${lock}`,
  )
  if (found === undefined) throw missing('Container')
  return found
}
