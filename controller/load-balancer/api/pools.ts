import type * as z from 'zod'
import { many, maybeOne } from '../../database/query.js'
import { sql } from '../../database/sql.js'
import type { Transaction } from '../../database/transaction.js'
import { conflict } from '../../http/errors.js'
import { changeLoadBalancer, markDeleted, touchListenersOf, updateObject } from '../change/change.js'
import { checkCertificates, checkReferences } from '../change/check-references.js'
import { requestDetail } from '../change/events.js'
import { storePools } from '../change/store.js'
import { listener } from '../objects/listeners/resource.js'
import { checkPoolUse, type UsedPool } from '../objects/listeners/rules.js'
import { loadBalancer } from '../objects/load-balancers/resource.js'
import { pool } from '../objects/pools/resource.js'
import { completePoolUpdate, type StoredPool } from '../objects/pools/rules.js'
import { enabledProvider, refuseUnsupported } from '../schema/capabilities.js'
import { immutable, invalid, missing } from '../schema/faults.js'
import { type Found, findObject, findParent, isBeingDeleted } from '../schema/find.js'
import { wrappedBody, wrappedBodyWithLists } from '../schema/input.js'
import { parseArguments } from '../schema/list-query.js'
import { columnsOf, updateSchema } from '../schema/resource.js'
import { authorise, type Right } from '../schema/rights.js'
import type { Service } from '../schema/service.js'
import { changedPoolReferences, type PoolReferences } from '../tree/certificate-references.js'
import { selectWithinCapacity, turnsOn } from '../tree/check-capacity.js'
import { checkCompatibility, constraintsOf } from '../tree/compatibility.js'
import { requireSubnetsBelow } from '../tree/member-subnets.js'
import { poolCreateSchema } from '../tree/nested.js'
import { membersOf, planPool, refuseUnsupportedObjects } from '../tree/new-objects.js'
import { apiCaller, type Call, MAX_TREE_BYTES } from './dialect.js'
import { objectAnswer, objectRoutes } from './object-routes.js'
import { poolStatistics } from './observed/statistics.js'

const createBody = wrappedBodyWithLists(pool.singular, poolCreateSchema)
const updateBody = wrappedBody(pool.singular, updateSchema(pool))

export const poolRoutes = [
  ...objectRoutes(pool, {
    path: '/lbaas/pools',
    rights: { read: 'read', write: 'write' },
    create: { request: createBody, handle: create, maxBytes: MAX_TREE_BYTES },
    update: { request: updateBody, handle: update },
    remove: { handle: remove },
  }),
  poolStatistics,
]

async function create(service: Service, call: Call<z.output<typeof createBody>>, right: Right) {
  const { caller, queryString } = call
  const { database, providers, config } = service
  parseArguments(queryString)
  const body = await call.body()
  const { loadbalancer_id: loadBalancerId, listener_id: listenerId, ...values } = body
  if (loadBalancerId === null && listenerId === null) {
    throw invalid('Must provide at least one of: loadbalancer_id, listener_id')
  }
  const above =
    loadBalancerId !== null
      ? await findParent(database, loadBalancer, loadBalancerId, caller, right)
      : await findParent(database, listener, listenerId ?? '', caller, right)
  const planned = planPool(values, config)
  const objects = { pools: [planned], listeners: [] }
  // Cheap checks first: unsupported objects need no look-ups.
  const known = enabledProvider(providers, above.provider)
  refuseUnsupportedObjects(known, objects)
  await checkReferences(service, apiCaller(call), above.load_balancer_id, objects)
  await requireSubnetsBelow(service, known, above.load_balancer_id, membersOf(objects))
  const object = await changeLoadBalancer(
    service,
    requestDetail(call, 'create', pool, planned.id),
    above.load_balancer_id,
    async (trx, changed) => {
      const user =
        listenerId === null
          ? null
          : await maybeOne(
              trx,
              sql<{ id: string; protocol: string; change: string; default_pool_id: string | null }>`
              SELECT id, protocol, change, default_pool_id FROM listener
               WHERE id = ${listenerId} AND load_balancer_id = ${changed.id}`,
            )
      if (user === undefined) throw missing('Listener', listenerId ?? '')
      if (user?.change === 'delete') throw immutable('Listener', user.id)
      if (user !== null) checkPoolUse(user.protocol, planned.values)
      const provider = enabledProvider(providers, changed.provider)
      await checkCompatibility(trx, changed.id, provider, constraintsOf(objects))
      await storePools(trx, changed, [planned])
      if (user !== null && user.default_pool_id !== null) throw conflict('This listener already has a default pool')
      if (user !== null) await updateObject(trx, changed, listener, user.id, { default_pool_id: planned.id })
      return selectWithinCapacity(trx, provider, changed.id, pool, planned.id)
    },
  )
  return objectAnswer(201, pool, object)
}

async function update(service: Service, call: Call<z.output<typeof updateBody>>, right: Right) {
  const { caller, params, queryString } = call
  const { database, providers, config } = service
  parseArguments(queryString)
  const given = await call.body()
  const found: Found<StoredPool & PoolReferences> = await findObject(database, pool, params.id ?? '')
  authorise(caller, right, found.project_id)
  const desired = changedPoolReferences(found, given)
  if (desired !== null) {
    const values = completePoolUpdate(config, found, given)
    refuseUnsupported(enabledProvider(providers, found.provider), pool, values)
    await checkCertificates(service, apiCaller(call), found.load_balancer_id, desired)
  }
  const object = await changeLoadBalancer(
    service,
    requestDetail(call, 'update', pool, found.id),
    found.load_balancer_id,
    async (trx, changed) => {
      const stored: Found<StoredPool> = await findObject(trx, pool, found.id)
      const values = completePoolUpdate(config, stored, given)
      refuseUnsupported(enabledProvider(providers, changed.provider), pool, values)
      if (values.session_persistence) await checkUsers(trx, found.id, { ...stored, ...values })
      await updateObject(trx, changed, pool, found.id, columnsOf(pool, values))
      await touchListenersOf(trx, changed, found.id)
      return selectWithinCapacity(
        trx,
        enabledProvider(providers, changed.provider),
        changed.id,
        pool,
        found.id,
        turnsOn(stored, given),
      )
    },
  )
  return objectAnswer(200, pool, object)
}

/**
 * Detaches listeners at once, so that they can get another pool. Also deletes the pool's members and health
 * monitor.
 */
async function remove(service: Service, call: Call, right: Right) {
  const { caller, params, queryString } = call
  const { database } = service
  parseArguments(queryString)
  const found = await findObject(database, pool, params.id ?? '')
  authorise(caller, right, found.project_id)
  if (!isBeingDeleted(found)) {
    await changeLoadBalancer(
      service,
      requestDetail(call, 'delete', pool, found.id),
      found.load_balancer_id,
      async (trx, changed) => {
        await refuseIfReferenced(trx, found.id)
        await touchListenersOf(trx, changed, found.id, { default_pool_id: null })
        await markDeleted(trx, changed, pool, [found.id])
      },
    )
  }
  return { status: 204 }
}

/** @throws ApiError 400 when a listener that uses the pool could not use it with its new values */
async function checkUsers(trx: Transaction, id: string, values: UsedPool): Promise<void> {
  const users = await many(
    trx,
    sql<{ protocol: string }>`
      SELECT DISTINCT protocol FROM listener WHERE default_pool_id = ${id} AND change <> 'delete'`,
  )
  for (const { protocol } of users) checkPoolUse(protocol, values)
}

/** @throws ApiError 409 when an L7 policy refers to the pool */
async function refuseIfReferenced(trx: Transaction, id: string): Promise<void> {
  const policy = await maybeOne(
    trx,
    sql<{ id: string }>`
      SELECT y.id FROM l7_policy y JOIN listener l ON l.id = y.listener_id
       WHERE y.redirect_pool_id = ${id} AND y.change <> 'delete' AND l.change <> 'delete' LIMIT 1`,
  )
  if (policy !== undefined) throw conflict(`Pool ${id} is in use by L7 policy ${policy.id} and cannot be deleted.`)
}
