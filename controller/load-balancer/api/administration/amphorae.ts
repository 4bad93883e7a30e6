import { execute, maybeOne } from '../../../database/query.js'
import { sql } from '../../../database/sql.js'
import { changeLoadBalancer, inTransactionOn } from '../../change/change.js'
import { requestDetail } from '../../change/events.js'
import { replaceOne } from '../../change/replace-amphorae.js'
import { WAKE_CHANNEL } from '../../change/wake-channel.js'
import { amphora } from '../../objects/amphorae/resource.js'
import { immutable, missing } from '../../schema/faults.js'
import { parseArguments } from '../../schema/list-query.js'
import { authorise, type Right } from '../../schema/rights.js'
import type { Service } from '../../schema/service.js'
import { canonicalUuid } from '../../schema/values.js'
import { type Call, type Handler, route } from '../dialect.js'
import { objectRoutes } from '../object-routes.js'
import { amphoraStatistics } from '../observed/statistics.js'

const action = (name: string, summary: string, handle: Handler) =>
  route({
    method: 'PUT',
    path: `/octavia/amphorae/:id/${name}`,
    group: 'amphorae',
    right: 'admin',
    summary,
    status: 202,
    handle,
  })

export const amphoraRoutes = [
  ...objectRoutes(amphora, {
    path: '/octavia/amphorae',
    rights: { read: 'admin', write: 'admin' },
    remove: { handle: remove },
  }),
  amphoraStatistics,
  action('failover', 'Replace an amphora', failOver),
  action('config', 'Configure an amphora again', configure),
]

/** Replaces an amphora. One without a load balancer has no role to replace. */
async function failOver(service: Service, call: Call, right: Right) {
  const { id, load_balancer_id: loadBalancerId } = await findAmphora(service, call, right)
  if (loadBalancerId === null) throw immutable(amphora.label, id)
  await changeLoadBalancer(
    service,
    requestDetail(call, 'failover', amphora, id),
    loadBalancerId,
    async (trx, changed) => {
      if (!(await replaceOne(trx, changed, id))) throw immutable(amphora.label, id)
    },
  )
  return { status: 202 }
}

/**
 * Pushes the configuration to an amphora again, regardless of what it reports. The desired state does not
 * change, so neither does the load balancer's status.
 */
async function configure(service: Service, call: Call, right: Right) {
  const { id, load_balancer_id: loadBalancerId } = await findAmphora(service, call, right)
  if (loadBalancerId === null) throw immutable(amphora.label, id)
  await inTransactionOn(service.database, loadBalancerId, async trx => {
    const marked = await execute(
      trx,
      sql`UPDATE load_balancer SET recheck_at = now() WHERE id = ${loadBalancerId} AND change <> 'delete'
          RETURNING pg_notify(${WAKE_CHANNEL}, id::text)`,
    )
    if (marked === 0) throw immutable('Load Balancer', loadBalancerId)
    await execute(trx, sql`UPDATE amphora SET applied_generation = 0 WHERE id = ${id}`)
  })
  return { status: 202 }
}

/** Deletes an amphora in ERROR only. Others serve traffic, or are being created or deleted. */
async function remove(service: Service, call: Call, right: Right) {
  const { id, load_balancer_id: loadBalancerId } = await findAmphora(service, call, right)
  const { database } = service
  const marked = (trx: typeof database) =>
    execute(
      trx,
      sql`UPDATE amphora SET status = 'PENDING_DELETE', updated_at = now() WHERE id = ${id} AND status = 'ERROR'`,
    )
  if (loadBalancerId === null) {
    if ((await marked(database)) === 0) throw immutable(amphora.label, id)
  } else {
    await changeLoadBalancer(service, requestDetail(call, 'delete', amphora, id), loadBalancerId, async trx => {
      if ((await marked(trx)) === 0) throw immutable(amphora.label, id)
    })
  }
  return { status: 204 }
}

/** @throws ApiError 403, 404 */
async function findAmphora({ database }: Service, { caller, params, queryString }: Call, right: Right) {
  parseArguments(queryString)
  const uuid = canonicalUuid(params.id ?? '')
  const found =
    uuid === null
      ? undefined
      : await maybeOne(
          database,
          sql<{ id: string; load_balancer_id: string | null }>`
            SELECT id, load_balancer_id FROM amphora WHERE id = ${uuid}`,
        )
  if (found === undefined) throw missing(amphora.label, params.id ?? '')
  authorise(caller, right, null)
  return found
}
