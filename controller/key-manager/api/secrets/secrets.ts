import type * as z from 'zod'
import type { Answer } from '../../../api/answer.js'
import { objectOf, ref } from '../../../api/schema.js'
import { sql } from '../../../database/sql.js'
import { ApiError, badRequest } from '../../../http/errors.js'
import { recordAudit } from '../../audit/record.js'
import { SECRET_CONSUMERS } from '../../consumers/secret-consumers.js'
import {
  CONTENT_TYPES,
  decodeBody,
  decodePayload,
  parseContentType,
  servedType,
  unsupportedType,
} from '../../secrets/content-types.js'
import { parseExpiration } from '../../secrets/expiration.js'
import { findPayload, findSecret, newSecret, payloadContext, secretJson } from '../../secrets/secret.js'
import { payloadExists, storePayload, storeSecret } from '../../secrets/store.js'
import { consumerRoutes } from '../consumers.js'
import { type AllowOn, type ApiService, actorIn, type Call, route } from '../dialect.js'
import { PAGE_PARAMETERS } from '../paging.js'
import { deleteSecret, FORCE } from './delete.js'
import { LIST_PARAMETERS, listSecrets } from './list.js'
import { metadataRoutes } from './metadata.js'

const base = { group: 'secrets', status: 200 } as const

export const secretRoutes = [
  route({
    ...base,
    method: 'GET',
    path: '/v1/secrets',
    right: 'secrets list',
    summary: 'List the secrets of the project',
    parameters: [...PAGE_PARAMETERS, ...LIST_PARAMETERS],
    answer: ref('secrets'),
    handle: listSecrets,
  }),
  route({
    ...base,
    method: 'POST',
    path: '/v1/secrets',
    right: 'secret create',
    summary: 'Store a secret',
    status: 201,
    request: newSecret,
    answer: objectOf({ secret_ref: ref('reference') }),
    handle: createSecret,
  }),
  route({
    ...base,
    method: 'GET',
    path: '/v1/secrets/:id',
    right: 'secret show',
    summary: 'Show the record of a secret; with an Accept header other than JSON, its payload',
    answer: ref('secret'),
    handle: showSecret,
  }),
  route({
    ...base,
    method: 'PUT',
    path: '/v1/secrets/:id',
    right: 'secret payload store',
    summary: 'Store the payload of a secret without one; the body is the payload in its own type',
    status: 204,
    handle: uploadPayload,
  }),
  route({
    ...base,
    method: 'DELETE',
    path: '/v1/secrets/:id',
    right: 'secret delete',
    summary: 'Delete a secret',
    status: 204,
    parameters: [FORCE],
    handle: deleteSecret,
  }),
  route({
    ...base,
    method: 'GET',
    path: '/v1/secrets/:id/payload',
    right: 'secret payload',
    summary: 'Read the payload of a secret, in its own type',
    answer: { type: 'string' },
    answerType: 'application/octet-stream',
    handle: readPayload,
  }),
  ...consumerRoutes(SECRET_CONSUMERS),
  ...metadataRoutes,
]

async function createSecret(service: ApiService, call: Call<z.output<typeof newSecret>>): Promise<Answer> {
  const body = await call.body()
  const { payload, payload_content_type: type, payload_content_encoding: encoding } = body
  if (payload === undefined && type !== undefined) {
    throw badRequest('payload_content_type must not be given without a payload.')
  }
  refuseTransportKey(body.transport_key_needed === 'true' || body.transport_key_id !== undefined)
  const id = await storeSecret(
    service,
    {
      projectId: call.caller.projectId,
      creatorId: call.caller.userId,
      name: body.name,
      secretType: body.secret_type,
      algorithm: body.algorithm ?? null,
      bitLength: body.bit_length ?? null,
      mode: body.mode ?? null,
      expiration: parseExpiration(body.expiration),
      payload:
        payload === undefined
          ? null
          : parsePayload(payload, type, encoding, service.config.max_allowed_secret_in_bytes),
    },
    actorIn(call),
  )
  const secretRef = `${call.base}/v1/secrets/${id}`
  return { status: 201, json: JSON.stringify({ secret_ref: secretRef }), headers: { Location: secretRef } }
}

function parsePayload(payload: string, type: string | undefined, encoding: string | undefined, limit: number) {
  if (type === undefined) throw badRequest(`A payload needs a payload_content_type: ${CONTENT_TYPES.join(', ')}.`)
  const contentType = parseContentType(type)
  if (contentType === null) throw unsupportedType(type)
  if (Buffer.byteLength(payload) > limit) throw new ApiError(413, `The payload is longer than ${limit} bytes.`)
  return { bytes: decodePayload(payload, contentType, encoding), contentType }
}

async function showSecret({ database }: ApiService, call: Call, allowOn: AllowOn): Promise<Answer> {
  const columns = sql`${secretJson(call.minor >= 1)} AS json`
  const secret = await findSecret<{ json: string }>(database, call.params.id, { columns, base: call.base })
  allowOn(secret)
  return { status: 200, json: secret.json }
}

/** The second step of storing a secret that was created without its payload. */
async function uploadPayload(service: ApiService, call: Call, allowOn: AllowOn): Promise<Answer> {
  const secret = await findSecret<{ hasPayload: boolean }>(service.database, call.params.id, {
    columns: sql`s.content_type IS NOT NULL AS "hasPayload"`,
  })
  allowOn(secret)
  const contentType = parseContentType(call.header('Content-Type'))
  if (contentType === null)
    throw new ApiError(415, `The Content-Type of a payload must be one of ${CONTENT_TYPES.join(', ')}.`)
  refuseTransportKey(call.query.has('transport_key_id'))
  const body = await call.bytes(service.config.max_allowed_secret_in_bytes)
  if (body.length === 0) throw badRequest('The payload is empty.')
  if (secret.hasPayload) throw payloadExists()
  const bytes = decodeBody(body, contentType, call.header('Content-Encoding'))
  await storePayload(service, secret, { bytes, contentType }, actorIn(call))
  return { status: 204 }
}

async function readPayload({ database, keyring }: ApiService, call: Call, allowOn: AllowOn): Promise<Answer> {
  const secret = await findPayload(database, call.params.id)
  allowOn(secret)
  if (call.query.has('trans_wrapped_session_key')) {
    if (!call.query.has('transport_key_id')) throw badRequest('trans_wrapped_session_key needs a transport_key_id.')
    refuseTransportKey(true)
  }
  if (secret.sealed === null || secret.contentType === null)
    throw new ApiError(404, 'The secret has no payload; PUT /v1/secrets/{id} stores one.')
  const payload = await keyring.open(secret.sealed, payloadContext(secret.id))
  const type = servedType(call.hasHeader('Accept') ? call.header('Accept') : null, secret.contentType, payload)
  await recordAudit(database, actorIn(call), {
    action: 'secret.payload.read',
    outcome: 'success',
    targetType: 'secret',
    targetId: secret.id,
  })
  return { status: 200, bytes: payload, headers: { 'Content-Type': type } }
}

/** @throws ApiError 400 for a request with a wrapped payload, as no secret store supports transport keys */
function refuseTransportKey(isRequested: boolean): void {
  if (isRequested) throw badRequest('No secret store supports transport keys.')
}
