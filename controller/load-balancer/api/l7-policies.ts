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
import { storePolicies } from '../change/store.js'
import { renumber } from '../objects/l7-policies/positions.js'
import { l7Policy } from '../objects/l7-policies/resource.js'
import { checkPolicyListener, completePolicyUpdate, type Redirection } from '../objects/l7-policies/rules.js'
import { listener } from '../objects/listeners/resource.js'
import { checkPoolProtocol } from '../objects/listeners/rules.js'
import { usablePool } from '../objects/pools/usable-pool.js'
import { enabledProvider, refuseUnsupported } from '../schema/capabilities.js'
import { immutable, missing } from '../schema/faults.js'
import { type Found, findObject, findReferenced, isBeingDeleted } from '../schema/find.js'
import { readWrapped, readWrappedLists } from '../schema/input.js'
import { parseArguments } from '../schema/list-query.js'
import { columnNames, columnsOf, updateSchema } from '../schema/resource.js'
import { authorise } from '../schema/rights.js'
import type { Service } from '../schema/service.js'
import { comesUp, selectWithinCapacity, takesPool } from '../tree/check-capacity.js'
import { policyCreateSchema } from '../tree/nested.js'
import { planPolicy, refuseUnsupportedPolicy } from '../tree/new-objects.js'
import { listHandler, objectAnswer, showHandler } from './read-routes.js'
import type { Call, Routes } from './routes.js'

const bodyOfUpdate = updateSchema(l7Policy)

export function l7PolicyRoutes(service: Service): Routes {
  return {
    'GET /lbaas/l7policies': listHandler(service, l7Policy),
    'POST /lbaas/l7policies': call => create(service, call),
    'GET /lbaas/l7policies/:id': showHandler(service, l7Policy),
    'PUT /lbaas/l7policies/:id': call => update(service, call),
    'DELETE /lbaas/l7policies/:id': call => remove(service, call),
  }
}

async function create(service: Service, { caller, right, queryString, readBody, asked }: Call) {
  const { database, providers } = service
  parseArguments(queryString)
  const { listener_id, rules, ...body } = await readWrappedLists(await readBody(), 'l7policy', policyCreateSchema)
  const above: Found<{ protocol: string }> = await findReferenced(database, listener, listener_id, caller, right)
  checkPolicyListener(above.protocol)
  const planned = planPolicy(body, rules)
  const object = await changeLoadBalancer(service, asked(planned.id), above.load_balancer_id, async (trx, changed) => {
    const touched = await touchListener(trx, changed, above.id)
    await checkRedirectPool(trx, changed, touched, planned.values.redirect_pool_id)
    refuseUnsupportedPolicy(enabledProvider(providers, changed.provider), touched.protocol, planned)
    await storePolicies(trx, changed, [{ listenerId: above.id, policy: planned }])
    await renumber(trx, above.id, { id: planned.id, position: planned.values.position })
    return selectWithinCapacity(trx, enabledProvider(providers, changed.provider), changed.id, l7Policy, planned.id)
  })
  return objectAnswer(201, l7Policy, object)
}

async function update(service: Service, { caller, right, params, queryString, readBody, asked }: Call) {
  const { database, providers } = service
  parseArguments(queryString)
  const body = readWrapped(await readBody(), 'l7policy', bodyOfUpdate)
  if (Object.keys(body).length === 0) throw badRequest('Invalid L7 Policy arguments: nothing to update is given.')
  const found: Found<{ listener_id: string }> = await findObject(database, l7Policy, params.id ?? '')
  authorise(caller, right, found.project_id)
  const object = await changeLoadBalancer(service, asked(), found.load_balancer_id, async (trx, changed) => {
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
    const asksForMore = comesUp(stored, body) || takesPool(stored.redirect_pool_id, body.redirect_pool_id)
    return selectWithinCapacity(
      trx,
      enabledProvider(providers, changed.provider),
      changed.id,
      l7Policy,
      found.id,
      asksForMore,
    )
  })
  return objectAnswer(200, l7Policy, object)
}

/** The policy's rules go with it; the policies behind it move up at once. */
async function remove(service: Service, { caller, right, params, queryString, asked }: Call) {
  const { database } = service
  parseArguments(queryString)
  const found: Found<{ listener_id: string }> = await findObject(database, l7Policy, params.id ?? '')
  authorise(caller, right, found.project_id)
  if (!isBeingDeleted(found)) {
    await changeLoadBalancer(service, asked(), found.load_balancer_id, async (trx, changed) => {
      await touchListener(trx, changed, found.listener_id)
      await markDeleted(trx, changed, l7Policy, [found.id])
      await renumber(trx, found.listener_id)
    })
  }
  return { status: 204 }
}

type StoredPolicy = Redirection & { admin_state_up: boolean; redirect_pool_id: string | null }

/** Read while the load balancer is held, so that what is checked against it is what is stored. */
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

/** @throws ApiError 404, 409 or 400 when policies of this listener cannot refer to the pool */
async function checkRedirectPool(
  trx: Transaction,
  { id }: ChangedLoadBalancer,
  { protocol }: TouchedListener,
  poolId: string | null,
): Promise<void> {
  if (poolId !== null) checkPoolProtocol(protocol, (await usablePool(trx, id, poolId)).protocol)
}
