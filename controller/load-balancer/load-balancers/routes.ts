import { randomUUID } from 'node:crypto'
import { inTransaction } from '../../database/transaction.js'
import { enabledProvider, refuseUnsupported } from '../capabilities.js'
import { raised, updateLoadBalancer } from '../change.js'
import { invalid } from '../faults.js'
import { findObject, isBeingDeleted } from '../find.js'
import { readWrapped } from '../input.js'
import { booleanOf, parseArguments } from '../list-query.js'
import { checkSubnets } from '../members/rules.js'
import { type LoadBalancerBody, loadBalancerCreateSchema } from '../nested.js'
import { planObjects, refuseUnsupportedObjects } from '../new-objects.js'
import { presentTree } from '../present-tree.js'
import { listHandler, objectAnswer, showHandler } from '../read-routes.js'
import { columnsOf, updateSchema } from '../resource.js'
import { authorise } from '../rights.js'
import type { Call, Routes, Service } from '../routes.js'
import { condition, selectOne } from '../select.js'
import { loadBalancerStatistics } from '../statistics.js'
import { statusTree } from '../status-tree.js'
import { storeObjects } from '../store.js'
import { isObject } from '../values.js'
import { WAKE_CHANNEL } from '../wake-channel.js'
import { failOver } from './failover.js'
import { resetSchema, resetStatus } from './reset.js'
import { loadBalancer } from './resource.js'
import { claimVip, planVip, releaseVip, requireVip } from './vip.js'

const bodyOfUpdate = updateSchema(loadBalancer)

export function loadBalancerRoutes(service: Service): Routes {
  return {
    'GET /lbaas/loadbalancers': listHandler(service, loadBalancer),
    'POST /lbaas/loadbalancers': call => create(service, call),
    'GET /lbaas/loadbalancers/:id': showHandler(service, loadBalancer),
    'PUT /lbaas/loadbalancers/:id': call => update(service, call),
    'DELETE /lbaas/loadbalancers/:id': call => remove(service, call),
    'GET /lbaas/loadbalancers/:id/stats': call => loadBalancerStatistics(service, call),
    'GET /lbaas/loadbalancers/:id/status': call => statusTree(service, call),
    'GET /lbaas/loadbalancers/:id/statuses': call => statusTree(service, call),
    'PUT /lbaas/loadbalancers/:id/failover': call => failOver(service, call),
  }
}

async function create(
  { database, network, providers, config }: Service,
  { caller, right, queryString, readBody }: Call,
) {
  parseArguments(queryString)
  const body = readWrapped(await readBody(), 'loadbalancer', loadBalancerCreateSchema)
  const projectId = projectOf(body, caller.project?.id ?? null)
  authorise(caller, right, projectId)
  requireVip(body)
  const objects = planObjects(body.listeners, body.pools)
  const provider = enabledProvider(providers, body.provider ?? config.default_provider)
  const vipPlan = await planVip(network, caller, body)
  const members = objects.pools.flatMap(pool => pool.members)
  await checkSubnets(
    network,
    caller,
    members.map(({ values }) => values),
  )
  refuseUnsupported(provider, loadBalancer, body)
  refuseUnsupportedObjects(provider, objects)

  const id = randomUUID()
  const vip = await claimVip(network, vipPlan, { loadBalancerId: id, projectId })
  try {
    const json = await inTransaction(database, async trx => {
      await trx('load_balancer')
        .insert({
          ...columnsOf(loadBalancer, body),
          id,
          project_id: projectId,
          provider: provider.name,
          topology: config.topology,
          vip_address: vip.address,
          vip_subnet_id: vip.subnetId,
          vip_network_id: vip.networkId,
          vip_port_id: vip.portId,
          owns_vip_port: vip.ownsPort,
        })
        .returning(trx.raw('pg_notify(?, id::text)', [WAKE_CHANNEL]))
      await storeObjects(trx, { id, project_id: projectId, generation: 1 }, objects)
      return presentTree(trx, id)
    })
    return { status: 201, json }
  } catch (error) {
    // A commit whose answer was lost may have happened: then the VIP stays, and the sweep of ownerless ports decides.
    const stored = await database('load_balancer')
      .where({ id })
      .first('id')
      .then(
        row => row !== undefined,
        () => true,
      )
    if (!stored) await releaseVip(network, vip)
    throw error
  }
}

function projectOf({ project_id, tenant_id }: LoadBalancerBody, own: string | null): string {
  if (project_id !== null && tenant_id !== null && project_id !== tenant_id) {
    throw invalid('project_id and tenant_id name different projects.')
  }
  const projectId = project_id ?? tenant_id ?? own
  if (projectId === null) throw invalid('Missing project ID in request where one is required.')
  return projectId
}

async function update({ database, providers }: Service, { caller, right, params, queryString, readBody }: Call) {
  parseArguments(queryString)
  const body = await readBody()
  const asked = isObject(body) && isObject(body.loadbalancer) ? body.loadbalancer : {}
  if (Object.hasOwn(asked, 'provisioning_status')) {
    readWrapped(body, 'loadbalancer', resetSchema)
    const found = await findObject(database, loadBalancer, params.id ?? '')
    authorise(caller, 'admin', found.project_id)
    return objectAnswer(200, loadBalancer, await resetStatus(database, found.id))
  }
  const values = readWrapped(body, 'loadbalancer', bodyOfUpdate)
  const found = await findObject(database, loadBalancer, params.id ?? '')
  authorise(caller, right, found.project_id)
  refuseUnsupported(enabledProvider(providers, found.provider), loadBalancer, values)
  return objectAnswer(
    200,
    loadBalancer,
    await inTransaction(database, async trx => {
      await updateLoadBalancer(trx, found.id, columnsOf(loadBalancer, values))
      return selectOne(trx, loadBalancer, condition('o.id = ?', found.id))
    }),
  )
}

/** Cascade or not, only the load balancer itself is marked: what hangs below it goes with it. */
async function remove({ database }: Service, { caller, right, params, queryString }: Call) {
  const args = parseArguments(queryString, ['cascade'])
  const cascade = args.has('cascade') && booleanOf('cascade', args.get('cascade') ?? '')
  const found = await findObject(database, loadBalancer, params.id ?? '')
  authorise(caller, right, found.project_id)
  if (isBeingDeleted(found)) return { status: 204 }
  await inTransaction(database, async trx => {
    await trx.raw(`UPDATE load_balancer SET ${raised('delete')} WHERE id = ? RETURNING pg_notify(?, id::text)`, [
      found.id,
      WAKE_CHANNEL,
    ])
    if (cascade || found.change === 'delete') return
    // Asked once the row is held: only then can no child come into being any more.
    const { rows } = await trx.raw(
      `SELECT FROM listener WHERE load_balancer_id = :id AND change <> 'delete'
        UNION ALL SELECT FROM pool WHERE load_balancer_id = :id AND change <> 'delete' LIMIT 1`,
      { id: found.id },
    )
    if (rows.length > 0) throw invalid(`Cannot delete Load Balancer ${found.id} - it has children`)
  })
  return { status: 204 }
}
