import { conflict } from '../../http/errors.js'
import { enabledProvider, refuseUnsupported } from '../capabilities.js'
import { changeLoadBalancer, markDeleted, touchListenersOf, updateObject } from '../change.js'
import { immutable, invalid, missing } from '../faults.js'
import { findObject, isBeingDeleted } from '../find.js'
import { readWrapped } from '../input.js'
import { parseArguments } from '../list-query.js'
import { listener } from '../listeners/resource.js'
import { checkPoolProtocol } from '../listeners/rules.js'
import { loadBalancer } from '../load-balancers/resource.js'
import { checkSubnets } from '../members/rules.js'
import { poolCreateSchema } from '../nested.js'
import { planPool, refuseUnsupportedObjects } from '../new-objects.js'
import { listHandler, objectAnswer, showHandler } from '../read-routes.js'
import { columnsOf, updateSchema } from '../resource.js'
import { authorise } from '../rights.js'
import type { Call, Routes, Service } from '../routes.js'
import { condition, selectOne } from '../select.js'
import { poolStatistics } from '../statistics.js'
import { storePools } from '../store.js'
import { pool } from './resource.js'

const bodyOfUpdate = updateSchema(pool)

export function poolRoutes(service: Service): Routes {
  return {
    'GET /lbaas/pools': listHandler(service, pool),
    'POST /lbaas/pools': call => create(service, call),
    'GET /lbaas/pools/:id': showHandler(service, pool),
    'PUT /lbaas/pools/:id': call => update(service, call),
    'DELETE /lbaas/pools/:id': call => remove(service, call),
    'GET /lbaas/pools/:id/stats': call => poolStatistics(service, call),
  }
}

async function create({ database, network, providers }: Service, { caller, right, queryString, readBody }: Call) {
  parseArguments(queryString)
  const body = readWrapped(await readBody(), 'pool', poolCreateSchema)
  const { loadbalancer_id: loadBalancerId, listener_id: listenerId, ...values } = body
  if (loadBalancerId === null && listenerId === null) {
    throw invalid('Must provide at least one of: loadbalancer_id, listener_id')
  }
  const above =
    loadBalancerId !== null
      ? await findObject(database, loadBalancer, loadBalancerId)
      : await findObject(database, listener, listenerId ?? '')
  authorise(caller, right, above.project_id)
  const planned = planPool(values)
  await checkSubnets(
    network,
    caller,
    planned.members.map(member => member.values),
  )
  const object = await changeLoadBalancer(database, above.load_balancer_id, async (trx, changed) => {
    const user =
      listenerId === null ? null : await trx('listener').where({ id: listenerId, load_balancer_id: changed.id }).first()
    if (user === undefined) throw missing('Listener', listenerId ?? '')
    if (user?.change === 'delete') throw immutable('Listener', user.id)
    if (user !== null) checkPoolProtocol(user.protocol, planned.values.protocol)
    refuseUnsupportedObjects(enabledProvider(providers, changed.provider), { pools: [planned], listeners: [] })
    if (user !== null && user.default_pool_id !== null) throw conflict('This listener already has a default pool')
    await storePools(trx, changed, [planned])
    if (user !== null) await updateObject(trx, changed, listener, user.id, { default_pool_id: planned.id })
    return selectOne(trx, pool, condition('o.id = ?', planned.id))
  })
  return objectAnswer(201, pool, object)
}

async function update({ database, providers }: Service, { caller, right, params, queryString, readBody }: Call) {
  parseArguments(queryString)
  const values = readWrapped(await readBody(), 'pool', bodyOfUpdate)
  const found = await findObject(database, pool, params.id ?? '')
  authorise(caller, right, found.project_id)
  const object = await changeLoadBalancer(database, found.load_balancer_id, async (trx, changed) => {
    refuseUnsupported(enabledProvider(providers, changed.provider), pool, values)
    await updateObject(trx, changed, pool, found.id, columnsOf(pool, values))
    await touchListenersOf(trx, changed, found.id)
    return selectOne(trx, pool, condition('o.id = ?', found.id))
  })
  return objectAnswer(200, pool, object)
}

/** Listeners stop using the pool at once, so that they can be given another one; its members and monitor go with it. */
async function remove({ database }: Service, { caller, right, params, queryString }: Call) {
  parseArguments(queryString)
  const found = await findObject(database, pool, params.id ?? '')
  authorise(caller, right, found.project_id)
  if (!isBeingDeleted(found)) {
    await changeLoadBalancer(database, found.load_balancer_id, async (trx, changed) => {
      await touchListenersOf(trx, changed, found.id, ', default_pool_id = NULL')
      await markDeleted(trx, changed, pool, [found.id])
    })
  }
  return { status: 204 }
}
