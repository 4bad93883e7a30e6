import { z } from 'zod'
import { execute } from '../../database/query.js'
import { type Fragment, sql } from '../../database/sql.js'
import { badRequest, conflict } from '../../http/errors.js'
import { missing } from '../ids.js'
import { filledText, parseBody, textUpTo } from '../input.js'
import type { Answer, Call, Routes, Service } from '../routes.js'
import { findSecret, LIVE } from './secret.js'

const keyText = filledText(255)
  .regex(/^[A-Za-z0-9_-]*$/, 'may hold only letters, digits, underscores and hyphens')
  .transform(key => key.toLowerCase())
const valueText = textUpTo(255)

const pair = z.strictObject({ key: keyText, value: valueText })
const wholeSet = z.object({
  // A record would pass over the key __proto__.
  metadata: z
    .custom<object>(value => typeof value === 'object' && value !== null && !Array.isArray(value), 'must be an object')
    .transform(metadata => Object.entries(metadata)),
})

/** The user metadata of secrets: keys and values that say nothing to the service. */
export const metadataRoutes = (service: Service): Routes => ({
  'GET /v1/secrets/:id/metadata': call => readAll(service, call),
  'PUT /v1/secrets/:id/metadata': call => replaceAll(service, call),
  'POST /v1/secrets/:id/metadata': call => addPair(service, call),
  'GET /v1/secrets/:id/metadata/:key': call => readPair(service, call),
  'PUT /v1/secrets/:id/metadata/:key': call => changePair(service, call),
  'DELETE /v1/secrets/:id/metadata/:key': call => removePair(service, call),
})

const urlOf = (call: Call, id: string) => `${call.base}/v1/secrets/${id}/metadata`
const keyOf = (call: Call) => (call.params.key ?? '').toLowerCase()
const noSuchKey = () => missing('Metadata key')

type Change = { set: Fragment; where?: Fragment }

/** Changes the metadata of a live secret in one statement. @returns whether there was a secret that fits `where` */
async function change({ database }: Service, id: string, { set, where = sql`true` }: Change): Promise<boolean> {
  const changed = await execute(
    database,
    sql`UPDATE secret s SET metadata = ${set} WHERE s.id = ${id} AND ${LIVE} AND ${where}`,
  )
  return changed === 1
}

/** A secret on which the caller may do what the route does. */
async function allowedSecret({ database }: Service, call: Call): Promise<{ id: string }> {
  const secret = await findSecret(database, call.params.id)
  call.allowOn(secret)
  return secret
}

async function readAll({ database }: Service, call: Call): Promise<Answer> {
  const columns = sql`s.metadata::text AS json`
  const secret = await findSecret<{ json: string }>(database, call.params.id, { columns })
  call.allowOn(secret)
  return { status: 200, json: `{"metadata":${secret.json}}` }
}

async function replaceAll(service: Service, call: Call): Promise<Answer> {
  const { id } = await allowedSecret(service, call)
  const { metadata } = parseBody(wholeSet, await call.readJson(), 'metadata')
  const pairs = metadata.map(([key, value]) => parseBody(pair, { key, value }, 'metadata'))
  const text = JSON.stringify(Object.fromEntries(pairs.map(({ key, value }) => [key, value])))
  if (!(await change(service, id, { set: sql`${text}::jsonb` }))) throw missing('Secret')
  return { status: 201, json: JSON.stringify({ metadata_ref: urlOf(call, id) }) }
}

/** Pair by pair there can be about as much as one request could bring. */
async function addPair(service: Service, call: Call): Promise<Answer> {
  const columns = sql`octet_length(s.metadata::text) AS bytes`
  const secret = await findSecret<{ bytes: number }>(service.database, call.params.id, { columns })
  call.allowOn(secret)
  const { id, bytes } = secret
  const { key, value } = parseBody(pair, await call.readJson(), 'metadata')
  const most = service.config.max_allowed_request_size_in_bytes
  if (bytes + key.length + Buffer.byteLength(value) > most) {
    throw badRequest(`A secret has at most ${most} bytes of metadata.`)
  }
  const isAdded = await change(service, id, {
    set: sql`metadata || jsonb_build_object(${key}::text, ${value}::text)`,
    where: sql`NOT jsonb_exists(metadata, ${key})`,
  })
  if (!isAdded) throw conflict(`The secret has metadata of the key "${key}" already.`)
  return { status: 201, json: JSON.stringify({ key, value }), headers: { Location: `${urlOf(call, id)}/${key}` } }
}

async function readPair({ database }: Service, call: Call): Promise<Answer> {
  const columns = sql`s.metadata`
  const secret = await findSecret<{ metadata: Record<string, string> }>(database, call.params.id, { columns })
  call.allowOn(secret)
  const key = keyOf(call)
  if (!Object.hasOwn(secret.metadata, key)) throw noSuchKey()
  return { status: 200, json: JSON.stringify({ key, value: secret.metadata[key] }) }
}

async function changePair(service: Service, call: Call): Promise<Answer> {
  const { id } = await allowedSecret(service, call)
  const { key, value } = parseBody(pair, await call.readJson(), 'metadata')
  if (key !== keyOf(call)) throw conflict('The key in the body is not the one in the path.')
  const isChanged = await change(service, id, {
    set: sql`metadata || jsonb_build_object(${key}::text, ${value}::text)`,
    where: sql`jsonb_exists(metadata, ${key})`,
  })
  if (!isChanged) throw noSuchKey()
  return { status: 200, json: JSON.stringify({ key, value }) }
}

async function removePair(service: Service, call: Call): Promise<Answer> {
  const { id } = await allowedSecret(service, call)
  await change(service, id, { set: sql`metadata - ${keyOf(call)}::text` })
  return { status: 204 }
}
