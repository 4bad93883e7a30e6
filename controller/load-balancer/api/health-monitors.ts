import type * as z from 'zod'
import { execute } from '../../database/query.js'
import { sql } from '../../database/sql.js'
import type { Transaction } from '../../database/transaction.js'
import { changeLoadBalancer, markDeleted, touchPool, updateObject } from '../change/change.js'
import { requestDetail } from '../change/events.js'
import { storeMonitors } from '../change/store.js'
import { healthMonitor } from '../objects/health-monitors/resource.js'
import { completeMonitorUpdate, type StoredMonitor } from '../objects/health-monitors/rules.js'
import { pool } from '../objects/pools/resource.js'
import { enabledProvider, refuseUnsupported } from '../schema/capabilities.js'
import { type Found, findObject, findParent, isBeingDeleted } from '../schema/find.js'
import { wrappedBody } from '../schema/input.js'
import { parseArguments } from '../schema/list-query.js'
import { columnsOf, createSchema, updateSchema } from '../schema/resource.js'
import { authorise, type Right } from '../schema/rights.js'
import type { Service } from '../schema/service.js'
import { selectWithinCapacity, turnsOn } from '../tree/check-capacity.js'
import { planMonitor, refuseUnsupportedMonitor } from '../tree/new-objects.js'
import type { Call } from './dialect.js'
import { objectAnswer, objectRoutes } from './object-routes.js'

const createBody = wrappedBody(healthMonitor.singular, createSchema(healthMonitor))
const updateBody = wrappedBody(healthMonitor.singular, updateSchema(healthMonitor))

export const healthMonitorRoutes = [
  ...objectRoutes(healthMonitor, {
    path: '/lbaas/healthmonitors',
    rights: { read: 'read', write: 'write' },
    create: { request: createBody, handle: create },
    update: { request: updateBody, handle: update },
    remove: { handle: remove },
  }),
]

async function create(service: Service, call: Call<z.output<typeof createBody>>, right: Right) {
  const { caller, queryString } = call
  const { database, providers, config } = service
  parseArguments(queryString)
  const { pool_id, ...body } = await call.body()
  const above: Found<{ protocol: string }> = await findParent(database, pool, pool_id, caller, right)
  const monitor = planMonitor(body, above.protocol, config)
  const object = await changeLoadBalancer(
    service,
    requestDetail(call, 'create', healthMonitor, monitor.id),
    above.load_balancer_id,
    async (trx, changed) => {
      refuseUnsupportedMonitor(enabledProvider(providers, changed.provider), above.protocol, monitor)
      await touchPool(trx, changed, above.id)
      await storeMonitors(trx, changed, [{ poolId: above.id, monitor }])
      return selectWithinCapacity(
        trx,
        enabledProvider(providers, changed.provider),
        changed.id,
        healthMonitor,
        monitor.id,
      )
    },
  )
  return objectAnswer(201, healthMonitor, object)
}

async function update(service: Service, call: Call<z.output<typeof updateBody>>, right: Right) {
  const { caller, params, queryString } = call
  const { database, providers, config } = service
  parseArguments(queryString)
  const body = await call.body()
  const found: Found<{ pool_id: string }> = await findObject(database, healthMonitor, params.id ?? '')
  authorise(caller, right, found.project_id)
  const object = await changeLoadBalancer(
    service,
    requestDetail(call, 'update', healthMonitor, found.id),
    found.load_balancer_id,
    async (trx, changed) => {
      const stored = await storedMonitor(trx, found.id)
      const values = completeMonitorUpdate(config, stored, body)
      refuseUnsupported(enabledProvider(providers, changed.provider), healthMonitor, values)
      await touchPool(trx, changed, found.pool_id)
      await updateObject(trx, changed, healthMonitor, found.id, columnsOf(healthMonitor, values))
      return selectWithinCapacity(
        trx,
        enabledProvider(providers, changed.provider),
        changed.id,
        healthMonitor,
        found.id,
        turnsOn(stored, body),
      )
    },
  )
  return objectAnswer(200, healthMonitor, object)
}

/**
 * Reads the stored values under the load balancer's lock, so that the check uses the values that the update
 * changes.
 */
async function storedMonitor(trx: Transaction, id: string): Promise<StoredMonitor> {
  const stored: Found<Omit<StoredMonitor, 'http_version'> & { http_version: string | null }> = await findObject(
    trx,
    healthMonitor,
    id,
  )
  // pg returns numeric values as text.
  return { ...stored, http_version: stored.http_version === null ? null : Number(stored.http_version) }
}

/** Without a health monitor, members are NO_MONITOR. */
async function remove(service: Service, call: Call, right: Right) {
  const { caller, params, queryString } = call
  const { database } = service
  parseArguments(queryString)
  const found: Found<{ pool_id: string }> = await findObject(database, healthMonitor, params.id ?? '')
  authorise(caller, right, found.project_id)
  if (!isBeingDeleted(found)) {
    await changeLoadBalancer(
      service,
      requestDetail(call, 'delete', healthMonitor, found.id),
      found.load_balancer_id,
      async (trx, changed) => {
        await touchPool(trx, changed, found.pool_id)
        await markDeleted(trx, changed, healthMonitor, [found.id])
        await execute(
          trx,
          sql`UPDATE member SET operating_status = 'NO_MONITOR', operating_reason = NULL, operating_since = now()
               WHERE pool_id = ${found.pool_id}`,
        )
      },
    )
  }
  return { status: 204 }
}
