import { ApiError, badRequest } from '../../http/errors.js'
import { auditInsert, recordAudit } from '../audit/record.js'
import { parseBody } from '../input.js'
import { pageJson, pageOf } from '../paging.js'
import type { Answer, Call, Routes, Service } from '../routes.js'
import { contentTypeOf, decodePayload, servedType } from './content-types.js'
import { parseExpiration } from './expiration.js'
import { findPayload, findSecret, LIVE, newSecret, payloadContext, secretJson } from './secret.js'
import { storeSecret } from './store.js'

export const secretRoutes = (service: Service): Routes => ({
  'GET /v1/secrets': call => listSecrets(service, call),
  'POST /v1/secrets': call => createSecret(service, call),
  'GET /v1/secrets/:id': call => showSecret(service, call),
  'DELETE /v1/secrets/:id': call => deleteSecret(service, call),
  'GET /v1/secrets/:id/payload': call => readPayload(service, call),
})

async function createSecret(service: Service, call: Call): Promise<Answer> {
  const body = parseBody(newSecret, await call.readJson(), 'secret')
  const { payload, payload_content_type: type, payload_content_encoding: encoding } = body
  if (payload === undefined && type !== undefined) {
    throw badRequest('payload_content_type must not be given without a payload.')
  }
  const id = await storeSecret(
    service,
    {
      projectId: call.who.projectId,
      creatorId: call.who.userId,
      name: body.name,
      secretType: body.secret_type,
      algorithm: body.algorithm ?? null,
      bitLength: body.bit_length ?? null,
      mode: body.mode ?? null,
      expiration: parseExpiration(body.expiration),
      payload:
        payload === undefined ? null : payloadOf(payload, type, encoding, service.config.max_allowed_secret_in_bytes),
    },
    call.actor,
  )
  const secretRef = `${call.base}/v1/secrets/${id}`
  return { status: 201, json: JSON.stringify({ secret_ref: secretRef }), headers: { Location: secretRef } }
}

function payloadOf(payload: string, type: string | undefined, encoding: string | undefined, limit: number) {
  if (type === undefined) throw badRequest('A payload needs a payload_content_type.')
  const contentType = contentTypeOf(type)
  if (contentType === null) throw badRequest(`The payload_content_type "${type}" is not supported.`)
  if (Buffer.byteLength(payload) > limit) throw new ApiError(413, `The payload is longer than ${limit} bytes.`)
  return { bytes: decodePayload(payload, contentType, encoding), contentType }
}

async function showSecret({ database }: Service, call: Call): Promise<Answer> {
  const columns = `${secretJson(call.minor >= 1)} AS json`
  const secret = await findSecret<{ json: string }>(database, call.params.id, { columns, base: call.base })
  call.allowOn(secret)
  return { status: 200, json: secret.json }
}

async function readPayload({ database, keyring }: Service, call: Call): Promise<Answer> {
  const secret = await findPayload(database, call.params.id)
  call.allowOn(secret)
  if (secret.sealed === null || secret.contentType === null) throw new ApiError(404, 'The secret has no payload.')
  const payload = await keyring.open(secret.sealed, payloadContext(secret.id))
  const type = servedType(call.hasHeader('Accept') ? call.header('Accept') : null, secret.contentType, payload)
  await recordAudit(database, call.actor, {
    action: 'secret.payload.read',
    outcome: 'success',
    targetType: 'secret',
    targetId: secret.id,
  })
  return { status: 200, bytes: payload, headers: { 'Content-Type': type } }
}

async function deleteSecret({ database }: Service, call: Call): Promise<Answer> {
  const secret = await findSecret(database, call.params.id)
  call.allowOn(secret)
  const audit = auditInsert(
    call.actor,
    { action: 'secret.delete', outcome: 'success', targetType: 'secret', targetId: secret.id },
    'gone',
  )
  await database.raw(
    `WITH gone AS (
       UPDATE secret SET deleted_at = now(), ciphertext = NULL, project_key_id = NULL, metadata = '{}', acl_users = '{}'
        WHERE id = ? AND deleted_at IS NULL RETURNING id),
     logged AS (${audit.sql}) SELECT 1`,
    [secret.id, ...audit.bindings],
  )
  return { status: 204 }
}

async function listSecrets({ database, config }: Service, call: Call): Promise<Answer> {
  const page = pageOf(call.query, config)
  const { rows } = await database.raw(
    `WITH base AS (SELECT ?::text AS url), found AS (SELECT s.* FROM secret s WHERE s.project_id = ? AND ${LIVE})
     SELECT (SELECT count(*) FROM found) AS total,
            (SELECT coalesce('[' || string_agg(json, ',') || ']', '[]')
               FROM (SELECT ${secretJson(call.minor >= 1)} AS json FROM found s, base
                      ORDER BY s.created_at, s.id LIMIT ? OFFSET ?) page) AS items`,
    [call.base, call.who.projectId, page.limit, page.offset],
  )
  const [{ total, items }] = rows as [{ total: number; items: string }]
  return {
    status: 200,
    json: pageJson('secrets', items, total, { page, query: call.query, url: `${call.base}/v1/secrets` }),
  }
}
