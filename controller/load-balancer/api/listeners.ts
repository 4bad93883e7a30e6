import type * as z from 'zod'
import { changeLoadBalancer, markDeleted, updateObject } from '../change/change.js'
import { checkCertificates, checkReferences } from '../change/check-references.js'
import { requestDetail } from '../change/events.js'
import { storeObjects } from '../change/store.js'
import { listener } from '../objects/listeners/resource.js'
import { checkPoolUse, completeListenerUpdate, type StoredListener } from '../objects/listeners/rules.js'
import { loadBalancer } from '../objects/load-balancers/resource.js'
import { usablePool } from '../objects/pools/usable-pool.js'
import { enabledProvider, refuseUnsupported } from '../schema/capabilities.js'
import { invalid } from '../schema/faults.js'
import { type Found, findObject, findParent, isBeingDeleted } from '../schema/find.js'
import { wrappedBody, wrappedBodyWithLists } from '../schema/input.js'
import { parseArguments } from '../schema/list-query.js'
import { columnsOf, updateSchema } from '../schema/resource.js'
import { authorise, type Right } from '../schema/rights.js'
import type { Service } from '../schema/service.js'
import { changedListenerReferences, type ListenerReferences } from '../tree/certificate-references.js'
import { changesPool, selectWithinCapacity, turnsOn } from '../tree/check-capacity.js'
import { checkCompatibility, constraintsOf } from '../tree/compatibility.js'
import { requireSubnetsBelow } from '../tree/member-subnets.js'
import { listenerCreateSchema } from '../tree/nested.js'
import { membersOf, planObjects, refuseUnsupportedObjects, withDefaultPool } from '../tree/new-objects.js'
import { apiCaller, type Call, MAX_TREE_BYTES } from './dialect.js'
import { objectAnswer, objectRoutes } from './object-routes.js'
import { listenerStatistics } from './observed/statistics.js'

/**
 * Whether an update may increase the demand on machines. A limit of -1 takes a share of the rest, so any other
 * limit may be more.
 */
const raisesDemand = (stored: Record<string, unknown>, values: Record<string, unknown>): boolean => {
  const { connection_limit: limit = stored.connection_limit, default_pool_id } = values
  const before = Number(stored.connection_limit)
  const raisesLimit = limit !== before && (before < 0 || Number(limit) < 0 || Number(limit) > before)
  return raisesLimit || turnsOn(stored, values) || changesPool(stored.default_pool_id, default_pool_id)
}

const createBody = wrappedBodyWithLists(listener.singular, listenerCreateSchema)
const updateBody = wrappedBody(listener.singular, updateSchema(listener))

export const listenerRoutes = [
  ...objectRoutes(listener, {
    path: '/lbaas/listeners',
    rights: { read: 'read', write: 'write' },
    create: { request: createBody, handle: create, maxBytes: MAX_TREE_BYTES },
    update: { request: updateBody, handle: update },
    remove: { handle: remove },
  }),
  listenerStatistics,
]

async function create(service: Service, call: Call<z.output<typeof createBody>>, right: Right) {
  const { caller, queryString } = call
  const { database, providers, config } = service
  parseArguments(queryString)
  const { loadbalancer_id, ...body } = await call.body()
  const above = await findParent(database, loadBalancer, loadbalancer_id, caller, right)
  if (body.default_pool !== null && body.default_pool_id !== null) {
    throw invalid('default_pool and default_pool_id are mutually exclusive.')
  }
  const objects = planObjects([{ ...body, default_pool_id: null }], [], config)
  const id = objects.listeners[0]?.id ?? ''
  // Cheap checks first: unsupported objects need no look-ups.
  const known = enabledProvider(providers, above.provider)
  refuseUnsupportedObjects(known, objects)
  await checkReferences(service, apiCaller(call), above.id, objects)
  await requireSubnetsBelow(service, known, above.id, membersOf(objects))
  const object = await changeLoadBalancer(
    service,
    requestDetail(call, 'create', listener, id),
    above.id,
    async (trx, changed) => {
      if (body.default_pool_id !== null) {
        const usable = await usablePool(trx, above.id, body.default_pool_id)
        objects.listeners = objects.listeners.map(planned => withDefaultPool(planned, usable))
      }
      const provider = enabledProvider(providers, changed.provider)
      await checkCompatibility(trx, changed.id, provider, constraintsOf(objects))
      await storeObjects(trx, changed, objects)
      return selectWithinCapacity(trx, provider, changed.id, listener, id)
    },
  )
  return objectAnswer(201, listener, object)
}

async function update(service: Service, call: Call<z.output<typeof updateBody>>, right: Right) {
  const { caller, params, queryString } = call
  const { database, providers, config } = service
  parseArguments(queryString)
  const given = await call.body()
  const found: Found<StoredListener & ListenerReferences> = await findObject(database, listener, params.id ?? '')
  authorise(caller, right, found.project_id)
  const desired = changedListenerReferences(found, given)
  if (desired !== null) {
    const values = completeListenerUpdate(config, found, given)
    refuseUnsupported(enabledProvider(providers, found.provider), listener, values)
    await checkCertificates(service, apiCaller(call), found.load_balancer_id, desired)
  }
  const object = await changeLoadBalancer(
    service,
    requestDetail(call, 'update', listener, found.id),
    found.load_balancer_id,
    async (trx, changed) => {
      const stored: Found<StoredListener> = await findObject(trx, listener, found.id)
      const values = completeListenerUpdate(config, stored, given)
      if (typeof values.default_pool_id === 'string') {
        checkPoolUse(stored.protocol, await usablePool(trx, changed.id, values.default_pool_id))
      }
      const provider = enabledProvider(providers, changed.provider)
      const { allowed_cidrs = null } = values
      await checkCompatibility(trx, changed.id, provider, { listeners: [{ allowed_cidrs }], pools: [] })
      refuseUnsupported(provider, listener, values)
      await updateObject(trx, changed, listener, found.id, columnsOf(listener, values))
      return selectWithinCapacity(trx, provider, changed.id, listener, found.id, raisesDemand(stored, values))
    },
  )
  return objectAnswer(200, listener, object)
}

async function remove(service: Service, call: Call, right: Right) {
  const { caller, params, queryString } = call
  const { database } = service
  parseArguments(queryString)
  const found = await findObject(database, listener, params.id ?? '')
  authorise(caller, right, found.project_id)
  if (!isBeingDeleted(found)) {
    await changeLoadBalancer(
      service,
      requestDetail(call, 'delete', listener, found.id),
      found.load_balancer_id,
      (trx, changed) => markDeleted(trx, changed, listener, [found.id]),
    )
  }
  return { status: 204 }
}
