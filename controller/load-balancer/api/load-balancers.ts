import { randomUUID } from 'node:crypto'
import type * as z from 'zod'
import { execute, maybeOne, one } from '../../database/query.js'
import { assignments, boundColumns, insertion, json, prepared, sql, trusted } from '../../database/sql.js'
import { inTransaction } from '../../database/transaction.js'
import { changeLoadBalancer, deleteLoadBalancer, inTransactionOn } from '../change/change.js'
import { checkReferences } from '../change/check-references.js'
import { requestDetail, requestedEvent } from '../change/events.js'
import { replaceAll } from '../change/replace-amphorae.js'
import { resetSchema, resetStatus } from '../change/reset.js'
import { storeObjects } from '../change/store.js'
import { WAKE_CHANNEL } from '../change/wake-channel.js'
import { flag } from '../description/parameters.js'
import {
  checkPlacedVip,
  type Placement,
  placeLoadBalancer,
  refuseUnsupportedPlacement,
} from '../objects/load-balancers/placement.js'
import { loadBalancer } from '../objects/load-balancers/resource.js'
import { claimVip, planVip, releaseVip, requireVip, type Vip, type VipPlan } from '../objects/load-balancers/vip.js'
import { checkSecurityGroups, checkVipOptions } from '../objects/load-balancers/vip-options.js'
import {
  chargeQuota,
  effectiveLimits,
  refuseIfQuotaMet,
  type StoredLimits,
  storedLimits,
} from '../objects/quotas/limits.js'
import { enabledProvider, refuseFailover, refuseUnsupported, refuseVipPlace } from '../schema/capabilities.js'
import { invalid } from '../schema/faults.js'
import { findObject, isBeingDeleted } from '../schema/find.js'
import { wrappedBody, wrappedBodyWithLists } from '../schema/input.js'
import { parseArguments, parseBoolean } from '../schema/list-query.js'
import { columnsOf, updateSchema } from '../schema/resource.js'
import { ATTRIBUTE_RIGHTS, authorise, type Right } from '../schema/rights.js'
import { insertedBody, selectOne, wrapped } from '../schema/select.js'
import type { Service } from '../schema/service.js'
import { isObject } from '../schema/values.js'
import { checkCapacity } from '../tree/check-capacity.js'
import { checkCompatibility, constraintsOf } from '../tree/compatibility.js'
import { requireMemberSubnets } from '../tree/member-subnets.js'
import { type LoadBalancerBody, loadBalancerCreateSchema } from '../tree/nested.js'
import { membersOf, type NewObjects, planObjects, refuseUnsupportedObjects } from '../tree/new-objects.js'
import { presentTree } from '../tree/present-tree.js'
import { isForeignKeyViolation } from './administration/shared-objects.js'
import { apiCaller, type Call, MAX_TREE_BYTES, route } from './dialect.js'
import { objectAnswer, objectRoutes } from './object-routes.js'
import { loadBalancerStatistics } from './observed/statistics.js'
import { statusTrees } from './observed/status-tree.js'

const createBody = wrappedBodyWithLists(loadBalancer.singular, loadBalancerCreateSchema)
const updateBody = wrappedBody(loadBalancer.singular, updateSchema(loadBalancer))
const resetBody = wrappedBody(loadBalancer.singular, resetSchema)
const INSERTED_BODY = trusted(insertedBody(loadBalancer))

export const loadBalancerRoutes = [
  ...objectRoutes(loadBalancer, {
    path: '/lbaas/loadbalancers',
    rights: { read: 'read', write: 'write' },
    create: { request: createBody, handle: create, maxBytes: MAX_TREE_BYTES },
    update: { request: updateBody, handle: update },
    remove: { handle: remove, parameters: [flag('cascade', 'Whether to delete all child objects too.')] },
  }),
  loadBalancerStatistics,
  ...statusTrees,
  route({
    method: 'PUT',
    path: '/lbaas/loadbalancers/:id/failover',
    group: 'loadbalancers',
    right: 'admin',
    summary: 'Replace every amphora of a load balancer',
    status: 202,
    handle: failOver,
  }),
]

async function create(service: Service, call: Call<z.output<typeof createBody>>, right: Right) {
  const { caller, queryString } = call
  const { database, network, config } = service
  parseArguments(queryString)
  const body = await call.body()
  const projectId = projectOf(body, caller.project?.id ?? null)
  authorise(caller, right, projectId)
  if (body.vip_sg_ids.length > 0) authorise(caller, ATTRIBUTE_RIGHTS['POST loadbalancer vip_sg_ids'], projectId)
  const id = randomUUID()
  const { vipPlan, ...plan } = await planLoadBalancer(service, call, id, body)
  const vip = await claimVip(network, vipPlan, { loadBalancerId: id, projectId }).catch(async error => {
    // A met quota is the better answer than a taken address.
    await refuseIfQuotaMet(database, projectId, 'loadbalancer', config.quota)
    throw error
  })
  try {
    return { status: 201, json: await storeLoadBalancer(service, call, { ...plan, id, projectId, body, vip }) }
  } catch (error) {
    // The commit may have succeeded although its answer was lost. The VIP then stays; the sweep of unowned
    // ports decides.
    const stored = await maybeOne(database, sql`SELECT id FROM load_balancer WHERE id = ${id}`).then(
      row => row !== undefined,
      () => true,
    )
    if (!stored) await releaseVip(network, vip)
    // The flavor or the availability zone was deleted after its look-up: a second look-up gives the right error.
    if (isForeignKeyViolation(error)) await placeLoadBalancer(service, body)
    throw error
  }
}

type LoadBalancerPlan = { objects: NewObjects; placement: Placement; vipPlan: VipPlan }

/** Checks a create body and looks up everything that it refers to. Changes nothing. @throws ApiError */
async function planLoadBalancer(
  service: Service,
  call: Call,
  id: string,
  body: LoadBalancerBody,
): Promise<LoadBalancerPlan> {
  const { network, config } = service
  const { caller } = call
  requireVip(config, body)
  const objects = planObjects(body.listeners, body.pools, config)
  const placement = await placeLoadBalancer(service, body)
  const { provider } = placement
  const addresses = placement.columns.topology === 'ACTIVE_STANDBY' ? 3 : 2
  const vipPlan = await planVip(service, caller, body, addresses)
  await checkVipOptions(network, caller, body)
  const vipNetwork = vipPlan.kind === 'port' ? vipPlan.port.networkId : vipPlan.networkId
  checkPlacedVip(placement, vipNetwork, body)
  refuseVipPlace(provider, {
    isPhysical: provider.physicalVipProblem !== undefined && ((await network.network(vipNetwork))?.isPhysical ?? false),
    isFiltered: vipPlan.kind === 'port' && vipPlan.port.securityGroups.length > 0,
  })
  refuseUnsupportedPlacement(placement)
  refuseUnsupported(provider, loadBalancer, body)
  refuseUnsupportedObjects(provider, objects)
  await checkReferences(service, apiCaller(call), id, objects)
  await requireMemberSubnets(service, provider, vipNetwork, membersOf(objects))
  return { objects, placement, vipPlan }
}

type NewLoadBalancer = Omit<LoadBalancerPlan, 'vipPlan'> & {
  id: string
  projectId: string
  body: LoadBalancerBody
  vip: Vip
}

/** Stores a load balancer with its tree in one transaction. @returns JSON text of the response */
async function storeLoadBalancer(
  { database, config, hostId = null }: Service,
  call: Call,
  { id, projectId, body, objects, placement, vip }: NewLoadBalancer,
): Promise<string> {
  const { provider } = placement
  return inTransaction(database, async trx => {
    const columns = {
      ...boundColumns({ ...columnsOf(loadBalancer, body), ...placement.columns }),
      id,
      project_id: projectId,
      vip_address: vip.address,
      vip_subnet_id: vip.subnetId,
      vip_network_id: vip.networkId,
      vip_port_id: vip.portId,
      owns_vip_port: vip.ownsPort,
      additional_vips: json(vip.additional),
      host_id: sql`(SELECT id FROM controller_host WHERE id = ${hostId}::uuid AND gone_at IS NULL AND removed_at IS NULL)`,
    }
    const created = sql`(VALUES (${id}::uuid, 1)) AS created (id, generation)`
    const inserted = await one(
      trx,
      sql<{ stored: StoredLimits | null; body: string }>`
        WITH event AS (${requestedEvent(requestDetail(call, 'create', loadBalancer, id), created)}),
             counted AS (INSERT INTO quota (project_id) VALUES (${projectId}) ON CONFLICT DO NOTHING)
        INSERT INTO load_balancer AS o ${prepared(insertion([columns]))}
        RETURNING pg_notify(${WAKE_CHANNEL}, o.id::text), ${storedLimits(sql`o.project_id`)} AS stored,
                  ${INSERTED_BODY} AS body`,
    )
    const limits = effectiveLimits(inserted.stored, config.quota)
    const parent = { id, project_id: projectId, generation: 1, limits }
    await chargeQuota(trx, parent, 'load_balancer', 0)
    await checkSecurityGroups(trx, id, body.vip_sg_ids)
    await checkCompatibility(trx, id, provider, constraintsOf(objects))
    if (objects.listeners.length + objects.pools.length === 0) return wrapped(loadBalancer.singular, inserted.body)
    await storeObjects(trx, parent, objects)
    await checkCapacity(trx, provider, id)
    return presentTree(trx, id)
  })
}

function projectOf({ project_id, tenant_id }: LoadBalancerBody, own: string | null): string {
  if (project_id !== null && tenant_id !== null && project_id !== tenant_id) {
    throw invalid('project_id and tenant_id name different projects.')
  }
  const projectId = project_id ?? tenant_id ?? own
  if (projectId === null) throw invalid('Missing project ID in request where one is required.')
  return projectId
}

async function update(service: Service, call: Call<z.output<typeof updateBody>>, right: Right) {
  const { caller, params, queryString } = call
  const { database, network, providers } = service
  parseArguments(queryString)
  const body = await call.json()
  const given = isObject(body) && isObject(body.loadbalancer) ? body.loadbalancer : {}
  if (Object.hasOwn(given, 'provisioning_status')) {
    await call.read(resetBody)
    const found = await findObject(database, loadBalancer, params.id ?? '')
    authorise(caller, 'admin', found.project_id)
    return objectAnswer(
      200,
      loadBalancer,
      await resetStatus(database, requestDetail(call, 'update', loadBalancer, found.id), found.id),
    )
  }
  const values = await call.body()
  const found = await findObject(database, loadBalancer, params.id ?? '')
  authorise(caller, right, found.project_id)
  if (values.vip_sg_ids !== undefined) {
    authorise(caller, ATTRIBUTE_RIGHTS['PUT loadbalancer vip_sg_ids'], found.project_id)
  }
  await checkVipOptions(network, caller, values)
  refuseUnsupported(enabledProvider(providers, found.provider), loadBalancer, values)
  return objectAnswer(
    200,
    loadBalancer,
    await changeLoadBalancer(service, requestDetail(call, 'update', loadBalancer, found.id), found.id, async trx => {
      const columns = columnsOf(loadBalancer, values)
      if (Object.keys(columns).length > 0) {
        const values = assignments(boundColumns(columns))
        await execute(trx, sql`UPDATE load_balancer SET ${values} WHERE id = ${found.id}`)
      }
      await checkSecurityGroups(trx, found.id, values.vip_sg_ids)
      return selectOne(trx, loadBalancer, sql`o.id = ${found.id}`)
    }),
  )
}

/** Marks only the load balancer, with or without cascade: its row takes the child objects with it. */
async function remove({ database }: Service, call: Call, right: Right) {
  const { caller, params, queryString } = call
  const args = parseArguments(queryString, ['cascade'])
  const cascade = args.has('cascade') && parseBoolean('cascade', args.get('cascade') ?? '')
  const found = await findObject(database, loadBalancer, params.id ?? '')
  authorise(caller, right, found.project_id)
  if (isBeingDeleted(found)) return { status: 204 }
  await inTransactionOn(database, found.id, async trx => {
    await deleteLoadBalancer(trx, requestDetail(call, 'delete', loadBalancer, found.id), found.id)
    if (cascade || found.change === 'delete') return
    // Checked under the row lock, so that no child can be created any more.
    const child = await maybeOne(
      trx,
      sql`SELECT id FROM listener WHERE load_balancer_id = ${found.id} AND change <> 'delete'
           UNION ALL SELECT id FROM pool WHERE load_balancer_id = ${found.id} AND change <> 'delete' LIMIT 1`,
    )
    if (child !== undefined) throw invalid(`Cannot delete Load Balancer ${found.id} - it has children`)
  })
  return { status: 204 }
}

/**
 * Replaces every amphora. Like any change, it is accepted while another is pending, and in ERROR. The load
 * balancer is PENDING_UPDATE until the last old amphora is deleted.
 */
async function failOver(service: Service, call: Call, right: Right) {
  parseArguments(call.queryString)
  const { id, project_id, provider } = await findObject(service.database, loadBalancer, call.params.id ?? '')
  authorise(call.caller, right, project_id)
  refuseFailover(enabledProvider(service.providers, provider))
  await changeLoadBalancer(service, requestDetail(call, 'failover', loadBalancer, id), id, replaceAll)
  return { status: 202 }
}
