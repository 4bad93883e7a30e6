import { sql } from '../../database/sql.js'
import { ApiError, badRequest } from '../../http/errors.js'
import { recordAudit } from '../audit/record.js'
import { consumerHandlers } from '../consumers/handlers.js'
import { SECRET_CONSUMERS } from '../consumers/secret-consumers.js'
import { parseBody } from '../input.js'
import type { Answer, Call, Routes, Service } from '../routes.js'
import { contentTypeOf, decodeBody, decodePayload, servedType } from './content-types.js'
import { deleteSecret } from './delete.js'
import { parseExpiration } from './expiration.js'
import { listSecrets } from './list.js'
import { metadataRoutes } from './metadata.js'
import { findPayload, findSecret, newSecret, payloadContext, secretJson } from './secret.js'
import { payloadStands, storePayload, storeSecret } from './store.js'

export function secretRoutes(service: Service): Routes {
  const consumers = consumerHandlers(service, SECRET_CONSUMERS)
  return {
    'GET /v1/secrets': call => listSecrets(service, call),
    'POST /v1/secrets': call => createSecret(service, call),
    'GET /v1/secrets/:id': call => showSecret(service, call),
    'PUT /v1/secrets/:id': call => uploadPayload(service, call),
    'DELETE /v1/secrets/:id': call => deleteSecret(service, call),
    'GET /v1/secrets/:id/payload': call => readPayload(service, call),
    'GET /v1/secrets/:id/consumers': consumers.list,
    'POST /v1/secrets/:id/consumers': consumers.register,
    'DELETE /v1/secrets/:id/consumers': consumers.remove,
    'GET /v1/secrets/:id/consumers/:consumer': consumers.show,
    ...metadataRoutes(service),
  }
}

async function createSecret(service: Service, call: Call): Promise<Answer> {
  const body = parseBody(newSecret, await call.readJson(), 'secret')
  const { payload, payload_content_type: type, payload_content_encoding: encoding } = body
  if (payload === undefined && type !== undefined) {
    throw badRequest('payload_content_type must not be given without a payload.')
  }
  refuseTransportKey(body.transport_key_needed === 'true' || body.transport_key_id !== undefined)
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
  const columns = sql`${secretJson(call.minor >= 1)} AS json`
  const secret = await findSecret<{ json: string }>(database, call.params.id, { columns, base: call.base })
  call.allowOn(secret)
  return { status: 200, json: secret.json }
}

/** The second step of storing a secret that was made without its payload. */
async function uploadPayload(service: Service, call: Call): Promise<Answer> {
  const secret = await findSecret<{ hasPayload: boolean }>(service.database, call.params.id, {
    columns: sql`s.content_type IS NOT NULL AS "hasPayload"`,
  })
  call.allowOn(secret)
  const contentType = contentTypeOf(call.header('Content-Type'))
  if (contentType === null) throw new ApiError(415, 'The Content-Type is not one of those that payloads have.')
  refuseTransportKey(call.query.has('transport_key_id'))
  const body = await call.readBytes(service.config.max_allowed_secret_in_bytes)
  if (body.length === 0) throw badRequest('There is no payload.')
  if (secret.hasPayload) throw payloadStands()
  const bytes = decodeBody(body, contentType, call.header('Content-Encoding'))
  await storePayload(service, secret, { bytes, contentType }, call.actor)
  return { status: 204 }
}

async function readPayload({ database, keyring }: Service, call: Call): Promise<Answer> {
  const secret = await findPayload(database, call.params.id)
  call.allowOn(secret)
  if (call.query.has('trans_wrapped_session_key')) {
    if (!call.query.has('transport_key_id')) throw badRequest('trans_wrapped_session_key needs a transport_key_id.')
    refuseTransportKey(true)
  }
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

/** @throws ApiError 400 when a payload is to be wrapped for its way: no secret store takes part in that */
function refuseTransportKey(isAskedFor: boolean): void {
  if (isAskedFor) throw badRequest('No secret store offers transport keys.')
}
