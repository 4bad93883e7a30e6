import type * as z from 'zod'
import { maybeOne } from '../../database/query.js'
import { identifiers, sql } from '../../database/sql.js'
import type { Transaction } from '../../database/transaction.js'
import { badRequest } from '../../http/errors.js'
import {
  type ChangedLoadBalancer,
  changeLoadBalancer,
  markDeleted,
  type TouchedListener,
  touchListener,
  updateObject,
} from '../change/change.js'
import { requestDetail } from '../change/events.js'
import { storePolicies } from '../change/store.js'
import { renumber } from '../objects/l7-policies/positions.js'
import { l7Policy } from '../objects/l7-policies/resource.js'
import { checkPolicyListener, completePolicyUpdate, type Redirection } from '../objects/l7-policies/rules.js'
import { listener } from '../objects/listeners/resource.js'
import { checkPoolUse } from '../objects/listeners/rules.js'
import { usablePool } from '../objects/pools/usable-pool.js'
import { enabledProvider, refuseUnsupported } from '../schema/capabilities.js'
import { immutable, missing } from '../schema/faults.js'
import { type Found, findObject, findParent, isBeingDeleted } from '../schema/find.js'
import { wrappedBody, wrappedBodyWithLists } from '../schema/input.js'
import { parseArguments } from '../schema/list-query.js'
import { columnNames, columnsOf, updateSchema } from '../schema/resource.js'
import { authorise, type Right } from '../schema/rights.js'
import type { Service } from '../schema/service.js'
import { changesPool, selectWithinCapacity, turnsOn } from '../tree/check-capacity.js'
import { policyCreateSchema } from '../tree/nested.js'
import { planPolicy, refuseUnsupportedPolicy } from '../tree/new-objects.js'
import type { Call } from './dialect.js'
import { objectAnswer, objectRoutes } from './object-routes.js'

const createBody = wrappedBodyWithLists(l7Policy.singular, policyCreateSchema)
const updateBody = wrappedBody(l7Policy.singular, updateSchema(l7Policy))

export const l7PolicyRoutes = [
  ...objectRoutes(l7Policy, {
    path: '/lbaas/l7policies',
    rights: { read: 'read', write: 'write' },
    create: { request: createBody, handle: create },
    update: { request: updateBody, handle: update },
    remove: { handle: remove },
  }),
]

async function create(service: Service, call: Call<z.output<typeof createBody>>, right: Right) {
  const { caller, queryString } = call
  const { database, providers } = service
  parseArguments(queryString)
  const { listener_id, rules, ...body } = await call.body()
  const above: Found<{ protocol: string }> = await findParent(database, listener, listener_id, caller, right)
  checkPolicyListener(above.protocol)
  const planned = planPolicy(body, rules)
  const object = await changeLoadBalancer(
    service,
    requestDetail(call, 'create', l7Policy, planned.id),
    above.load_balancer_id,
    async (trx, changed) => {
      const touched = await touchListener(trx, changed, above.id)
      await checkRedirectPool(trx, changed, touched, planned.values.redirect_pool_id)
      refuseUnsupportedPolicy(enabledProvider(providers, changed.provider), touched.protocol, planned)
      await storePolicies(trx, changed, [{ listenerId: above.id, policy: planned }])
      await renumber(trx, above.id, { id: planned.id, position: planned.values.position })
      return selectWithinCapacity(trx, enabledProvider(providers, changed.provider), changed.id, l7Policy, planned.id)
    },
  )
  return objectAnswer(201, l7Policy, object)
}

async function update(service: Service, call: Call<z.output<typeof updateBody>>, right: Right) {
  const { caller, params, queryString } = call
  const { database, providers } = service
  parseArguments(queryString)
  const body = await call.body()
  if (Object.keys(body).length === 0) throw badRequest('Invalid L7 Policy arguments: nothing to update.')
  const found: Found<{ listener_id: string }> = await findObject(database, l7Policy, params.id ?? '')
  authorise(caller, right, found.project_id)
  const object = await changeLoadBalancer(
    service,
    requestDetail(call, 'update', l7Policy, found.id),
    found.load_balancer_id,
    async (trx, changed) => {
      const touched = await touchListener(trx, changed, found.listener_id)
      const stored = await storedPolicy(trx, found.id)
      const { position, ...values } = completePolicyUpdate(stored, body)
      if (typeof body.redirect_pool_id === 'string') {
        await checkRedirectPool(trx, changed, touched, values.redirect_pool_id)
      }
      refuseUnsupported(enabledProvider(providers, changed.provider), l7Policy, {
        ...values,
        listener_protocol: touched.protocol,
      })
      await updateObject(trx, changed, l7Policy, found.id, columnsOf(l7Policy, values))
      if (position !== undefined) await renumber(trx, found.listener_id, { id: found.id, position })
      const asksForMore = turnsOn(stored, body) || changesPool(stored.redirect_pool_id, body.redirect_pool_id)
      return selectWithinCapacity(
        trx,
        enabledProvider(providers, changed.provider),
        changed.id,
        l7Policy,
        found.id,
        asksForMore,
      )
    },
  )
  return objectAnswer(200, l7Policy, object)
}

/** Also deletes the policy's rules; later policies move up at once. */
async function remove(service: Service, call: Call, right: Right) {
  const { caller, params, queryString } = call
  const { database } = service
  parseArguments(queryString)
  const found: Found<{ listener_id: string }> = await findObject(database, l7Policy, params.id ?? '')
  authorise(caller, right, found.project_id)
  if (!isBeingDeleted(found)) {
    await changeLoadBalancer(
      service,
      requestDetail(call, 'delete', l7Policy, found.id),
      found.load_balancer_id,
      async (trx, changed) => {
        await touchListener(trx, changed, found.listener_id)
        await markDeleted(trx, changed, l7Policy, [found.id])
        await renumber(trx, found.listener_id)
      },
    )
  }
  return { status: 204 }
}

type StoredPolicy = Redirection & { admin_state_up: boolean; redirect_pool_id: string | null }

/**
 * Reads the stored values under the load balancer's lock, so that the check uses the values that the update
 * changes.
 */
async function storedPolicy(trx: Transaction, id: string): Promise<StoredPolicy> {
  const stored = await maybeOne(
    trx,
    sql<StoredPolicy & { change: string }>`
      SELECT ${identifiers(columnNames(l7Policy))}, change FROM l7_policy WHERE id = ${id}`,
  )
  if (stored === undefined) throw missing(l7Policy.label, id)
  if (stored.change === 'delete') throw immutable(l7Policy.label, id)
  return stored
}

/** @throws ApiError 404, 409 or 400 when policies of this listener cannot use the pool */
async function checkRedirectPool(
  trx: Transaction,
  { id }: ChangedLoadBalancer,
  { protocol }: TouchedListener,
  poolId: string | null,
): Promise<void> {
  if (poolId !== null) checkPoolUse(protocol, await usablePool(trx, id, poolId))
}
