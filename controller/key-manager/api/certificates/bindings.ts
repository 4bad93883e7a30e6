import * as z from 'zod'
import { type Answer, jsonAnswer } from '../../../api/answer.js'
import { objectOf, type Schema } from '../../../api/schema.js'
import { inTransaction } from '../../../database/transaction.js'
import { badRequest } from '../../../http/errors.js'
import { recordAudit } from '../../audit/record.js'
import { type BoundLoadBalancer, loadBalancerUrl } from '../../bindings/binding.js'
import { type Checked, checkMaterial } from '../../bindings/check.js'
import { bind } from '../../bindings/store.js'
import { missing } from '../../ids.js'
import { filledText } from '../../input.js'
import { isPermitted } from '../../rights.js'
import { type ApiService, actorIn, type Call, route } from '../dialect.js'

const references = z.array(filledText(255)).max(1000).default([])

/** What a load balancer is about to use. */
const request = z
  .strictObject({
    url: loadBalancerUrl,
    certificates: references,
    authorities: references,
    revocation_lists: z
      .array(z.strictObject({ ref: filledText(255), authority: filledText(255) }))
      .max(1000)
      .default([]),
  })
  .meta({ title: 'binding' })

const text: Schema = { type: 'string' }

const answer = objectOf({
  references: {
    type: 'array',
    items: objectOf(
      {
        ref: text,
        kind: { type: 'string', enum: ['certificate', 'authority', 'revocation list'] },
        reason: { type: 'string', description: 'Why it cannot be used.' },
        digest: { type: 'string', description: 'SHA-256 over all certificates or revocation lists, in DER.' },
        facts: { type: ['object', 'null'], description: 'Names, issuer and dates of a certificate.' },
      },
      ['ref', 'kind'],
    ),
  },
})

export const bindingRoutes = [
  route({
    group: 'bindings',
    method: 'POST',
    path: '/v1/bindings/:load_balancer',
    right: 'binding create',
    summary:
      'Check what a load balancer is about to use, and bind it: it can then not be deleted, and the amphorae of the load balancer may read it',
    status: 200,
    request,
    answer,
    handle: bindReferences,
  }),
]

/** Binds all references, or none if one cannot be used. */
async function bindReferences(service: ApiService, call: Call<z.output<typeof request>>): Promise<Answer> {
  const { caller, params } = call
  const id = params.load_balancer ?? ''
  if (!z.uuid().safeParse(id).success) throw missing('Load balancer')
  const { url, certificates, authorities, revocation_lists: revocationLists } = await call.body()
  const loadBalancer: BoundLoadBalancer = { id: id.toLowerCase(), projectId: caller.projectId, url }
  // A container tells its consumers apart by their URLs, so nobody may bind it with the URL of another load balancer.
  if (!url.endsWith(`/${loadBalancer.id}`))
    throw badRequest(`url must end with the load balancer's id, ${loadBalancer.id}.`)
  const { checked, inspected } = await checkMaterial(
    service,
    caller.place,
    { certificates, authorities, revocationLists },
    (kind, target) =>
      isPermitted(service.config.policy, kind === 'secret' ? 'secret payload' : 'container show', caller, target),
  )
  if (!checked.every(isUsable)) return jsonAnswer(200, { references: checked })
  await inTransaction(service.database, async trx => {
    const held = await bind(trx, loadBalancer, caller.userId, inspected)
    for (const { kind, id: targetId } of held) {
      const targetType = kind === 'secrets' ? 'secret' : 'container'
      await recordAudit(trx, actorIn(call), {
        action: `${targetType}.bind`,
        outcome: 'success',
        targetType,
        targetId,
        detail: { load_balancer_id: loadBalancer.id },
      })
    }
  })
  return jsonAnswer(200, { references: checked })
}

const isUsable = (checked: Checked): boolean => 'digest' in checked
