import type { Knex } from 'knex'
import * as z from 'zod'
import { maybeOne } from '../../database/query.js'
import { type Fragment, sql, trusted } from '../../database/sql.js'
import { KEY_COLUMNS, type KeyRow, type SealedWithKey, sealedFrom } from '../crypto/keyring.js'
import { missing, requireId } from '../ids.js'
import { filledText, textUpTo, wholeNumber } from '../input.js'
import type { Target } from '../rights.js'
import type { ContentType } from './content-types.js'

export const SECRET_TYPES = ['symmetric', 'passphrase', 'private', 'public', 'certificate', 'opaque'] as const

const text = textUpTo(255)

/** The body of a POST; ignores unknown members. */
export const newSecret = z
  .object({
    name: text.nullish().transform(name => name ?? null),
    secret_type: z.enum(SECRET_TYPES, `must be one of ${SECRET_TYPES.join(', ')}`).default('opaque'),
    algorithm: text.optional(),
    bit_length: wholeNumber(1, 32767).optional(),
    mode: text.optional(),
    expiration: text.nullish(),
    payload: filledText().optional(),
    payload_content_type: text.optional(),
    payload_content_encoding: z.literal('base64', 'must be "base64"').optional(),
    transport_key_needed: z.enum(['true', 'false'], 'must be "true" or "false"').optional(),
    transport_key_id: z.string().optional(),
  })
  .meta({ title: 'secret' })

/** SQL: the secret with this alias is neither deleted nor expired. */
export const liveSecret = (alias: string): Fragment =>
  trusted(`${alias}.deleted_at IS NULL AND (${alias}.expiration IS NULL OR ${alias}.expiration > now())`)

/** The same for the alias s. */
export const LIVE = liveSecret('s')

const CONSUMERS = sql`(SELECT coalesce(json_agg(json_build_object('service', c.service, 'resource_type', c.resource_type,
    'resource_id', c.resource_id) ORDER BY c.created_at, c.id), '[]') FROM secret_consumer c WHERE c.secret_id = s.id)`

/**
 * SQL for the record of a secret (alias s) as JSON text; `base.url` is the root of the API. Has only members that
 * Python clients know.
 * @param withConsumers true from microversion 1.1 on
 */
export function secretJson(withConsumers: boolean): Fragment {
  return sql`(CASE WHEN s.content_type IS NULL THEN '{' ELSE '{"content_types":{"default":' || to_json(s.content_type) || '},' END
    || substr(json_build_object(
      'created', iso_time(s.created_at), 'updated', iso_time(s.updated_at), 'status', 'ACTIVE', 'name', s.name,
      'secret_type', s.secret_type, 'expiration', iso_time(s.expiration), 'algorithm', s.algorithm, 'bit_length', s.bit_length,
      'mode', s.mode, 'creator_id', s.creator_id, ${withConsumers ? sql`'consumers', ${CONSUMERS}, ` : sql``}
      'secret_ref', base.url || '/v1/secrets/' || s.id)::text, 2))`
}

export const targetColumns = (alias: string): Fragment =>
  trusted(`${alias}.project_id AS "projectId", ${alias}.creator_id AS "creatorId",
   ${alias}.acl_project_access AS "projectAccess", ${alias}.acl_users AS users`)

export type FoundSecret = Target & { id: string }

/**
 * Finds a live secret of any project, with the columns that rules need.
 * @param columns more columns, as SQL over the aliases s and base
 * @param base URL of the root of the API, for references
 * @param lock such as `FOR UPDATE OF s`
 * @throws ApiError 404
 */
export async function findSecret<More = unknown>(
  database: Knex,
  id: string | undefined,
  { columns, base = '', lock = sql`` }: { columns?: Fragment; base?: string; lock?: Fragment } = {},
): Promise<FoundSecret & More> {
  const found = await maybeOne(
    database,
    sql<FoundSecret & More>`
      SELECT s.id, ${targetColumns('s')}${columns === undefined ? sql`` : sql`, ${columns}`}
        FROM secret s CROSS JOIN (SELECT ${base}::text AS url) base
       WHERE s.id = ${requireId(id, 'Secret')} AND ${LIVE} ${lock}`,
  )
  if (found === undefined) throw missing('Secret')
  return found
}

export type SecretWithPayload = FoundSecret & { contentType: ContentType | null; sealed: SealedWithKey | null }

/** Finds a live secret with its ciphertext. @throws ApiError 404 */
export async function findPayload(database: Knex, id: string | undefined): Promise<SecretWithPayload> {
  const found = await maybeOne(
    database,
    sql<FoundSecret & KeyRow & { contentType: ContentType | null; ciphertext: Buffer | null }>`
      SELECT s.id, ${targetColumns('s')}, s.content_type AS "contentType", s.ciphertext, ${KEY_COLUMNS}
        FROM secret s LEFT JOIN project_key k ON k.id = s.project_key_id
       WHERE s.id = ${requireId(id, 'Secret')} AND ${LIVE}`,
  )
  if (found === undefined) throw missing('Secret')
  const { ciphertext } = found
  return { ...found, sealed: ciphertext === null ? null : sealedFrom(ciphertext, found) }
}

/** The associated data of a secret's ciphertext. */
export const payloadContext = (secretId: string): string => `secret ${secretId}`
