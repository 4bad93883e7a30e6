import * as z from 'zod'
import type { Answer } from '../../../api/answer.js'
import { objectOf, ref } from '../../../api/schema.js'
import { execute } from '../../../database/query.js'
import { type Fragment, sql } from '../../../database/sql.js'
import { badRequest, conflict } from '../../../http/errors.js'
import { missing } from '../../ids.js'
import { filledText, parseBody, textUpTo } from '../../input.js'
import { findSecret, LIVE } from '../../secrets/secret.js'
import { type AllowOn, type ApiService, type Call, route } from '../dialect.js'

const keyText = filledText(255)
  .regex(/^[A-Za-z0-9_-]*$/, 'may contain only letters, digits, underscores and hyphens')
  .transform(key => key.toLowerCase())
const valueText = textUpTo(255)

const pair = z.strictObject({ key: keyText, value: valueText }).meta({ title: 'metadata' })
const metadataBody = z
  .object({
    // z.record would ignore the key __proto__.
    metadata: z
      .custom<object>(
        value => typeof value === 'object' && value !== null && !Array.isArray(value),
        'must be an object',
      )
      .meta({ type: 'object', additionalProperties: { type: 'string', maxLength: 255 } })
      .transform(metadata => Object.entries(metadata)),
  })
  .meta({ title: 'metadata' })

const base = { group: 'metadata', path: '/v1/secrets/:id/metadata' } as const
const keyBase = { group: 'metadata', path: '/v1/secrets/:id/metadata/:key' } as const

/** The user metadata of secrets: keys and values without a meaning to the service. */
export const metadataRoutes = [
  route({
    ...base,
    method: 'GET',
    right: 'secret metadata read',
    summary: 'Show the metadata of a secret',
    status: 200,
    answer: objectOf({ metadata: { type: 'object', additionalProperties: { type: 'string' } } }),
    handle: readAll,
  }),
  route({
    ...base,
    method: 'PUT',
    right: 'secret metadata write',
    summary: 'Replace the metadata of a secret',
    status: 201,
    request: metadataBody,
    answer: objectOf({ metadata_ref: ref('reference') }),
    handle: replaceAll,
  }),
  route({
    ...base,
    method: 'POST',
    right: 'secret metadata write',
    summary: 'Add a key and its value to the metadata of a secret',
    status: 201,
    request: pair,
    answer: ref('metadata_pair'),
    handle: addPair,
  }),
  route({
    ...keyBase,
    method: 'GET',
    right: 'secret metadata read',
    summary: 'Show the value of a key',
    status: 200,
    answer: ref('metadata_pair'),
    handle: readPair,
  }),
  route({
    ...keyBase,
    method: 'PUT',
    right: 'secret metadata write',
    summary: 'Change the value of a key',
    status: 200,
    request: pair,
    answer: ref('metadata_pair'),
    handle: changePair,
  }),
  route({
    ...keyBase,
    method: 'DELETE',
    right: 'secret metadata write',
    summary: 'Delete a key',
    status: 204,
    handle: removePair,
  }),
]

const metadataUrl = (call: Call, id: string) => `${call.base}/v1/secrets/${id}/metadata`
const pathKey = (call: Call) => (call.params.key ?? '').toLowerCase()
const missingKey = () => missing('Metadata key')

type Change = { set: Fragment; where?: Fragment }

/** Changes the metadata of a live secret in one statement. @returns whether a secret matched `where` */
async function change({ database }: ApiService, id: string, { set, where = sql`true` }: Change): Promise<boolean> {
  const changed = await execute(
    database,
    sql`UPDATE secret s SET metadata = ${set} WHERE s.id = ${id} AND ${LIVE} AND ${where}`,
  )
  return changed === 1
}

/** Finds the secret and checks the route's right. @throws ApiError 404, 403 */
async function allowedSecret({ database }: ApiService, call: Call, allowOn: AllowOn): Promise<{ id: string }> {
  const secret = await findSecret(database, call.params.id)
  allowOn(secret)
  return secret
}

async function readAll({ database }: ApiService, call: Call, allowOn: AllowOn): Promise<Answer> {
  const columns = sql`s.metadata::text AS json`
  const secret = await findSecret<{ json: string }>(database, call.params.id, { columns })
  allowOn(secret)
  return { status: 200, json: `{"metadata":${secret.json}}` }
}

async function replaceAll(
  service: ApiService,
  call: Call<z.output<typeof metadataBody>>,
  allowOn: AllowOn,
): Promise<Answer> {
  const { id } = await allowedSecret(service, call, allowOn)
  const { metadata } = await call.body()
  const pairs = metadata.map(([key, value]) => parseBody(pair, { key, value }, 'metadata'))
  const text = JSON.stringify(Object.fromEntries(pairs.map(({ key, value }) => [key, value])))
  if (!(await change(service, id, { set: sql`${text}::jsonb` }))) throw missing('Secret')
  return { status: 201, json: JSON.stringify({ metadata_ref: metadataUrl(call, id) }) }
}

/** Adding pairs one by one allows about as much metadata as one request can set. */
async function addPair(service: ApiService, call: Call<z.output<typeof pair>>, allowOn: AllowOn): Promise<Answer> {
  const columns = sql`octet_length(s.metadata::text) AS bytes`
  const secret = await findSecret<{ bytes: number }>(service.database, call.params.id, { columns })
  allowOn(secret)
  const { id, bytes } = secret
  const { key, value } = await call.body()
  const maxBytes = service.config.max_allowed_request_size_in_bytes
  if (bytes + key.length + Buffer.byteLength(value) > maxBytes) {
    throw badRequest(`The metadata of a secret may have at most ${maxBytes} bytes.`)
  }
  const isAdded = await change(service, id, {
    set: sql`metadata || jsonb_build_object(${key}::text, ${value}::text)`,
    where: sql`NOT jsonb_exists(metadata, ${key})`,
  })
  if (!isAdded) throw conflict(`The secret already has metadata with the key "${key}".`)
  return { status: 201, json: JSON.stringify({ key, value }), headers: { Location: `${metadataUrl(call, id)}/${key}` } }
}

async function readPair({ database }: ApiService, call: Call, allowOn: AllowOn): Promise<Answer> {
  const columns = sql`s.metadata`
  const secret = await findSecret<{ metadata: Record<string, string> }>(database, call.params.id, { columns })
  allowOn(secret)
  const key = pathKey(call)
  if (!Object.hasOwn(secret.metadata, key)) throw missingKey()
  return { status: 200, json: JSON.stringify({ key, value: secret.metadata[key] }) }
}

async function changePair(service: ApiService, call: Call<z.output<typeof pair>>, allowOn: AllowOn): Promise<Answer> {
  const { id } = await allowedSecret(service, call, allowOn)
  const { key, value } = await call.body()
  if (key !== pathKey(call)) throw conflict('The key in the body differs from the one in the path.')
  const isChanged = await change(service, id, {
    set: sql`metadata || jsonb_build_object(${key}::text, ${value}::text)`,
    where: sql`jsonb_exists(metadata, ${key})`,
  })
  if (!isChanged) throw missingKey()
  return { status: 200, json: JSON.stringify({ key, value }) }
}

async function removePair(service: ApiService, call: Call, allowOn: AllowOn): Promise<Answer> {
  const { id } = await allowedSecret(service, call, allowOn)
  await change(service, id, { set: sql`metadata - ${pathKey(call)}::text` })
  return { status: 204 }
}
