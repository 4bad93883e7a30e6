import type { Answer } from '../../../api/answer.js'
import { execute, maybeOne } from '../../../database/query.js'
import { sql } from '../../../database/sql.js'
import { changeLoadBalancer, inTransactionOn } from '../../change/change.js'
import { replaceOne } from '../../change/replace-amphorae.js'
import { WAKE_CHANNEL } from '../../change/wake-channel.js'
import { amphora } from '../../objects/amphorae/resource.js'
import { immutable, missing } from '../../schema/faults.js'
import { parseArguments } from '../../schema/list-query.js'
import { authorise } from '../../schema/rights.js'
import type { Service } from '../../schema/service.js'
import { canonicalUuid } from '../../schema/values.js'
import { listHandler, showHandler } from '../read-routes.js'
import type { Call, Routes } from '../routes.js'
import { amphoraStatistics } from '../statistics.js'

export function amphoraRoutes(service: Service): Routes {
  return {
    'GET /octavia/amphorae': listHandler(service, amphora),
    'GET /octavia/amphorae/:id': showHandler(service, amphora),
    'DELETE /octavia/amphorae/:id': call => remove(service, call),
    'GET /octavia/amphorae/:id/stats': call => amphoraStatistics(service, call),
    'PUT /octavia/amphorae/:id/failover': call => failOver(service, call),
    'PUT /octavia/amphorae/:id/config': call => configure(service, call),
  }
}

/** Another amphora takes its place. One that carries nothing has no place that another could take. */
async function failOver(service: Service, call: Call): Promise<Answer> {
  const { id, load_balancer_id: loadBalancerId } = await findAmphora(service, call)
  if (loadBalancerId === null) throw immutable(amphora.label, id)
  await changeLoadBalancer(service, call.asked(), loadBalancerId, async (trx, changed) => {
    if (!(await replaceOne(trx, changed, id))) throw immutable(amphora.label, id)
  })
  return { status: 202 }
}

/**
 * Has its configuration pushed to it anew, whatever it says that it has. Nothing that is desired changes by this, so the load balancer's status
 * does not either.
 */
async function configure(service: Service, call: Call): Promise<Answer> {
  const { id, load_balancer_id: loadBalancerId } = await findAmphora(service, call)
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

/** Only one in ERROR: the others serve, or are being made or removed by those who know of them. */
async function remove(service: Service, call: Call): Promise<Answer> {
  const { id, load_balancer_id: loadBalancerId } = await findAmphora(service, call)
  const { database } = service
  const marked = (trx: typeof database) =>
    execute(
      trx,
      sql`UPDATE amphora SET status = 'PENDING_DELETE', updated_at = now() WHERE id = ${id} AND status = 'ERROR'`,
    )
  if (loadBalancerId === null) {
    if ((await marked(database)) === 0) throw immutable(amphora.label, id)
  } else {
    await changeLoadBalancer(service, call.asked(), loadBalancerId, async trx => {
      if ((await marked(trx)) === 0) throw immutable(amphora.label, id)
    })
  }
  return { status: 204 }
}

/** @throws ApiError 403, 404 */
async function findAmphora({ database }: Service, { caller, right, params, queryString }: Call) {
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
