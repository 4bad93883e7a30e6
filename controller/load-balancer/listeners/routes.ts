import type { Transaction } from '../../database/transaction.js'
import { enabledProvider, refuseUnsupported } from '../capabilities.js'
import { changeLoadBalancer, markDeleted, updateObject } from '../change.js'
import { immutable, invalid, missing } from '../faults.js'
import { type Found, findObject, isBeingDeleted } from '../find.js'
import { readWrapped } from '../input.js'
import { parseArguments } from '../list-query.js'
import { loadBalancer } from '../load-balancers/resource.js'
import { checkSubnets } from '../members/rules.js'
import { listenerCreateSchema } from '../nested.js'
import { planListener, planObjects, refuseUnsupportedObjects } from '../new-objects.js'
import { listHandler, objectAnswer, showHandler } from '../read-routes.js'
import { columnsOf, updateSchema } from '../resource.js'
import { authorise } from '../rights.js'
import type { Call, Routes, Service } from '../routes.js'
import { condition, selectOne } from '../select.js'
import { listenerStatistics } from '../statistics.js'
import { storeObjects } from '../store.js'
import { listener } from './resource.js'
import { checkListener, checkPoolProtocol } from './rules.js'

const bodyOfUpdate = updateSchema(listener)

export function listenerRoutes(service: Service): Routes {
  return {
    'GET /lbaas/listeners': listHandler(service, listener),
    'POST /lbaas/listeners': call => create(service, call),
    'GET /lbaas/listeners/:id': showHandler(service, listener),
    'PUT /lbaas/listeners/:id': call => update(service, call),
    'DELETE /lbaas/listeners/:id': call => remove(service, call),
    'GET /lbaas/listeners/:id/stats': call => listenerStatistics(service, call),
  }
}

async function create({ database, network, providers }: Service, { caller, right, queryString, readBody }: Call) {
  parseArguments(queryString)
  const { loadbalancer_id, ...body } = readWrapped(await readBody(), 'listener', listenerCreateSchema)
  const above = await findObject(database, loadBalancer, loadbalancer_id)
  authorise(caller, right, above.project_id)
  if (body.default_pool !== null && body.default_pool_id !== null) {
    throw invalid('default_pool and default_pool_id each name a pool: give one of them.')
  }
  const objects = planObjects([{ ...body, default_pool_id: null }], [])
  const members = objects.pools.flatMap(pool => pool.members)
  await checkSubnets(
    network,
    caller,
    members.map(({ values }) => values),
  )
  const object = await changeLoadBalancer(database, above.id, async (trx, changed) => {
    const { default_pool: _, default_pool_id: poolId, ...values } = body
    if (poolId !== null) objects.listeners = [planListener(values, await usablePool(trx, above.id, poolId))]
    refuseUnsupportedObjects(enabledProvider(providers, changed.provider), objects)
    await storeObjects(trx, changed, objects)
    return selectOne(trx, listener, condition('o.id = ?', objects.listeners[0]?.id ?? ''))
  })
  return objectAnswer(201, listener, object)
}

async function update({ database, providers }: Service, { caller, right, params, queryString, readBody }: Call) {
  parseArguments(queryString)
  const values = readWrapped(await readBody(), 'listener', bodyOfUpdate)
  const found: Found<{ protocol: string }> = await findObject(database, listener, params.id ?? '')
  authorise(caller, right, found.project_id)
  checkListener(found.protocol, values)
  const object = await changeLoadBalancer(database, found.load_balancer_id, async (trx, changed) => {
    if (typeof values.default_pool_id === 'string') {
      checkPoolProtocol(found.protocol, (await usablePool(trx, changed.id, values.default_pool_id)).protocol)
    }
    refuseUnsupported(enabledProvider(providers, changed.provider), listener, values)
    await updateObject(trx, changed, listener, found.id, columnsOf(listener, values))
    return selectOne(trx, listener, condition('o.id = ?', found.id))
  })
  return objectAnswer(200, listener, object)
}

async function remove({ database }: Service, { caller, right, params, queryString }: Call) {
  parseArguments(queryString)
  const found = await findObject(database, listener, params.id ?? '')
  authorise(caller, right, found.project_id)
  if (!isBeingDeleted(found)) {
    await changeLoadBalancer(database, found.load_balancer_id, (trx, changed) =>
      markDeleted(trx, changed, listener, [found.id]),
    )
  }
  return { status: 204 }
}

/**
 * A pool that a listener of this load balancer may refer to; any other is as if it did not exist.
 * @throws ApiError 404, or 409 when it is being deleted
 */
async function usablePool(
  trx: Transaction,
  loadBalancerId: string,
  id: string,
): Promise<{ id: string; protocol: string }> {
  const pool = await trx('pool').where({ id, load_balancer_id: loadBalancerId }).first('id', 'protocol', 'change')
  if (pool === undefined) throw missing('Pool', id)
  if (pool.change === 'delete') throw immutable('Pool', id)
  return pool
}
