import * as z from 'zod'
import type { MaterialKind } from '../../../x509/material/load.js'
import { type RequestedReferences, readReference, type Target } from '../../../x509/material/reference.js'
import { type Answer, jsonAnswer, NO_CONTENT } from '../../api/answer.js'
import { inTransaction } from '../../database/transaction.js'
import { type Bound, loadBalancerUrl } from '../bindings/binding.js'
import { type Checked, checkMaterial, keyOf } from '../bindings/check.js'
import { bind, confirm, dueBindings, readableIds, release, setReaders } from '../bindings/store.js'
import { missing } from '../ids.js'
import { filledText } from '../input.js'
import { type ChannelCall, type ChannelService, route } from './dialect.js'

const MAX_DUE = 1000
/** References that are inspected together. What is found of them is kept before the next ones are looked at. */
const PORTION = 32

const reference = z.strictObject({
  ref: filledText(255),
  kind: z.enum(['certificate', 'authority', 'revocation list']),
  /** Of a revocation list: the CA that must have signed it. */
  authority: filledText(255).nullable().default(null),
})

/** All that a load balancer uses, and the amphorae that serve it. */
const binding = z
  .strictObject({
    project_id: filledText(64),
    url: loadBalancerUrl,
    references: z.array(reference).max(2000),
    amphorae: z.array(z.uuid()).max(100),
  })
  .meta({ title: 'binding' })

type Binding = z.output<typeof binding>

/** What controllers say of load balancers. */
export const controllerRoutes = [
  route({
    group: 'bindings',
    method: 'PUT',
    path: '/v1/bindings/:load_balancer',
    right: 'controller',
    summary: 'Say all that a load balancer uses and which amphorae serve it; the rest is released',
    status: 200,
    request: binding,
    answer: { type: 'object' },
    handle: putBinding,
  }),
  route({
    group: 'bindings',
    method: 'DELETE',
    path: '/v1/bindings/:load_balancer',
    right: 'controller',
    summary: 'Release all that a load balancer used',
    status: 204,
    handle: async ({ database }: ChannelService, call: ChannelCall) => {
      await release(database, loadBalancerIdIn(call))
      return NO_CONTENT
    },
  }),
  route({
    group: 'bindings',
    method: 'GET',
    path: '/v1/bindings',
    right: 'controller',
    summary: 'List load balancers of which the key manager must be told again',
    status: 200,
    answer: { type: 'object' },
    handle: async ({ database }: ChannelService) =>
      jsonAnswer(200, { load_balancers: await dueBindings(database, MAX_DUE) }),
  }),
]

/**
 * Confirms what a load balancer uses. Objects that are not bound yet, or whose material is unknown, are inspected and
 * bound now, if they belong to its project or it has the right to read them already.
 */
async function putBinding(service: ChannelService, call: ChannelCall<Binding>): Promise<Answer> {
  const { database } = service
  const id = loadBalancerIdIn(call)
  const { project_id: projectId, url, references, amphorae } = await call.body()
  const targets = targetsOf(references)
  const confirmed = await inTransaction(database, async trx => {
    await setReaders(trx, id, amphorae)
    return confirm(trx, id, targets)
  })
  const unknown = references.filter(one => materialOf(confirmed, one) === null)
  if (unknown.length === 0) return answerWith(references, confirmed, [])
  const readable = await readableIds(database, confirmed)
  const verdicts: Checked[] = []
  for (let first = 0; first < unknown.length; first += PORTION) {
    const { checked, inspected } = await checkMaterial(
      service,
      [projectId, ''],
      requestOf(unknown.slice(first, first + PORTION)),
      (_, target) => target.projectId === projectId || readable.has(target.id),
    )
    await inTransaction(database, trx => bind(trx, { id, projectId, url }, '', inspected))
    verdicts.push(...checked)
  }
  const complete = await inTransaction(database, trx => confirm(trx, id, targets))
  return answerWith(references, complete, verdicts)
}

function loadBalancerIdIn(call: ChannelCall): string {
  const id = (call.params.load_balancer ?? '').toLowerCase()
  if (!z.uuid().safeParse(id).success) throw missing('Load balancer')
  return id
}

function targetsOf(references: Binding['references']): Target[] {
  const targets = new Map<string, Target>()
  for (const { ref } of references) {
    const target = readReference(ref)
    if (target !== null) targets.set(keyOf(target), target)
  }
  return [...targets.values()]
}

const requestOf = (references: Binding['references']): RequestedReferences => ({
  certificates: references.flatMap(({ ref, kind }) => (kind === 'certificate' ? [ref] : [])),
  authorities: references.flatMap(({ ref, kind }) => (kind === 'authority' ? [ref] : [])),
  revocationLists: references.flatMap(({ ref, kind, authority }) =>
    kind === 'revocation list' ? [{ ref, authority: authority ?? '' }] : [],
  ),
})

function materialOf(bound: readonly Bound[], { ref, kind }: { ref: string; kind: MaterialKind }) {
  const target = readReference(ref)
  const found = target === null ? undefined : bound.find(one => keyOf(one.target) === keyOf(target))
  return found?.material[kind] ?? null
}

/** What each reference leads to, or why it cannot be used. */
function answerWith(references: Binding['references'], bound: readonly Bound[], checked: readonly Checked[]): Answer {
  return jsonAnswer(200, {
    references: references.map(({ ref, kind }): Checked => {
      const material = materialOf(bound, { ref, kind })
      if (material !== null) return { ref, kind, ...material }
      const why = checked.find(one => one.ref === ref && one.kind === kind)
      return why ?? { ref, kind, reason: 'it does not exist any more, or may not be used any more' }
    }),
  })
}
