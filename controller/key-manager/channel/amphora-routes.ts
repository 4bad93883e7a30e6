import { type Answer, jsonAnswer } from '../../api/answer.js'
import type { ApiError } from '../../http/errors.js'
import { recordAudit } from '../audit/record.js'
import { partsOf } from '../bindings/stored-reader.js'
import { isId, missing } from '../ids.js'
import { payloadContext } from '../secrets/secret.js'
import { amphoraActor, type ChannelCall, type ChannelService, route } from './dialect.js'
import { readableContainer, readableSecret } from './readable.js'

/** What an amphora may read: only what its load balancer uses. In the shapes of the key manager's API. */
export const amphoraRoutes = [
  route({
    group: 'material',
    method: 'GET',
    path: '/v1/secrets/:id/payload',
    right: 'amphora',
    summary: 'Read a secret that the load balancer of this amphora uses',
    status: 200,
    answer: { type: 'string' },
    answerType: 'application/octet-stream',
    handle: readPayload,
  }),
  route({
    group: 'material',
    method: 'GET',
    path: '/v1/containers/:id',
    right: 'amphora',
    summary: 'Show a container that the load balancer of this amphora uses',
    status: 200,
    answer: { type: 'object' },
    handle: showContainer,
  }),
]

async function readPayload(service: ChannelService, call: ChannelCall): Promise<Answer> {
  const { database, keyring } = service
  const [amphoraId, id] = [call.caller.subject, call.params.id ?? '']
  const secret = isId(id) ? await readableSecret(database, amphoraId, id) : null
  if (secret === null) return refuse(service, call, 'secret')
  const payload = await keyring.open(secret.sealed, payloadContext(secret.id))
  await recordAudit(database, amphoraActor(call, secret.projectId), {
    action: 'secret.payload.read',
    outcome: 'success',
    targetType: 'secret',
    targetId: secret.id,
    detail: { amphora_id: amphoraId, load_balancer_id: secret.loadBalancerId },
  })
  return { status: 200, bytes: payload, headers: { 'Content-Type': 'application/octet-stream' } }
}

async function showContainer(service: ChannelService, call: ChannelCall): Promise<Answer> {
  const [amphoraId, id] = [call.caller.subject, call.params.id ?? '']
  const container = isId(id) ? await readableContainer(service.database, amphoraId, id) : null
  if (container === null) return refuse(service, call, 'container')
  const parts = await partsOf(service.database, id)
  return jsonAnswer(200, {
    type: container.type,
    secret_refs: parts.map(({ name, secretId }) => ({ name, secret_ref: `${call.base}/v1/secrets/${secretId}` })),
  })
}

/** A missing object and a forbidden one look the same. */
async function refuse(
  { recordRefusal }: ChannelService,
  call: ChannelCall,
  targetType: 'secret' | 'container',
): Promise<never> {
  const id = call.params.id ?? ''
  await recordRefusal(amphoraActor(call, null), {
    action: targetType === 'secret' ? 'secret.payload.read' : 'container.read',
    outcome: 'denied',
    targetType,
    targetId: isId(id) ? id : null,
    detail: { status: 404, amphora_id: call.caller.subject },
  })
  const error: ApiError = missing(targetType === 'secret' ? 'Secret' : 'Container')
  throw error
}
