import { randomUUID } from 'node:crypto'
import type * as z from 'zod'
import { objectOf, ref } from '../../api/schema.js'
import { execute, many } from '../../database/query.js'
import { json, sql, trusted } from '../../database/sql.js'
import type { Transaction } from '../../database/transaction.js'
import {
  type ChangedLoadBalancer,
  changeLoadBalancer,
  markDeleted,
  stamp,
  touchPool,
  updateObject,
} from '../change/change.js'
import { requestDetail } from '../change/events.js'
import { storeMembers } from '../change/store.js'
import { flag } from '../description/parameters.js'
import { member } from '../objects/members/resource.js'
import { checkMembers, checkSubnets } from '../objects/members/rules.js'
import { pool } from '../objects/pools/resource.js'
import { enabledProvider, type ProviderCapabilities, refuseUnsupported } from '../schema/capabilities.js'
import { missing, missingParent } from '../schema/faults.js'
import { type Found, findObject, isBeingDeleted, lookUp } from '../schema/find.js'
import { listOf, readBody, wrappedBody, wrappedBodyWithLists } from '../schema/input.js'
import { listPage } from '../schema/list.js'
import { parseArguments, parseBoolean, parseListQuery, parseShowQuery } from '../schema/list-query.js'
import { columnNames, columnsOf, createSchema, updateSchema } from '../schema/resource.js'
import { authorise, type Right } from '../schema/rights.js'
import { selectObject, selectOne } from '../schema/select.js'
import type { Service } from '../schema/service.js'
import { canonicalUuid, isObject } from '../schema/values.js'
import { type Capacity, capacityOf, refuseExcess, selectWithinCapacity } from '../tree/check-capacity.js'
import { checkCompatibility } from '../tree/compatibility.js'
import { requireSubnetsBelow } from '../tree/member-subnets.js'
import { type BatchPlan, type ExistingMember, planBatch, type RequestedMember } from '../tree/plan-batch.js'
import { type Call, MAX_TREE_BYTES, route } from './dialect.js'
import { objectAnswer, objectRoutes, pageAnswer } from './object-routes.js'

const createBody = wrappedBody(member.singular, createSchema(member))
const updateBody = wrappedBody(member.singular, updateSchema(member))
const batchBody = wrappedBodyWithLists(member.plural, listOf(createSchema(member)))

export const memberRoutes = [
  ...objectRoutes(member, {
    path: '/lbaas/pools/:pool/members',
    rights: { list: 'read members', read: 'read', write: 'write' },
    list,
    show,
    create: { request: createBody, handle: create },
    update: { request: updateBody, handle: update },
    remove: { handle: remove },
  }),
  route({
    method: 'PUT',
    path: '/lbaas/pools/:pool/members',
    group: 'members',
    right: 'write',
    summary: 'Replace all members of a pool; address and port identify a member',
    status: 202,
    requestForm: objectOf({ members: { type: 'array', items: ref('member_create') } }),
    parameters: [flag('additive_only', 'Whether to keep members that the body does not contain.')],
    maxBytes: MAX_TREE_BYTES,
    handle: replaceAll,
  }),
]

/** Members have the project of their pool, so the pool is looked up only if the page has no members. */
async function list({ database, config }: Service, { caller, params, queryString, url }: Call, right: Right) {
  const query = parseListQuery(member, queryString, config)
  const poolId = canonicalUuid(params.pool)
  if (poolId === null) throw missingParent('Pool', params.pool ?? '')
  const page = await listPage(database, member, { query, scope: sql`o.pool_id = ${poolId}`, url })
  authorise(caller, right, page.objects[0]?.projectId ?? (await findPool(database, poolId)).project_id)
  return pageAnswer(member, page)
}

async function show({ database, config }: Service, { caller, params, queryString }: Call, right: Right) {
  const fields = parseShowQuery(queryString, config, { argument: 'pool_id', id: params.pool ?? '' })
  const [poolId, id] = [canonicalUuid(params.pool), canonicalUuid(params.id)]
  const object =
    poolId === null || id === null
      ? undefined
      : await selectObject(database, member, sql`o.id = ${id} AND o.pool_id = ${poolId}`, fields)
  if (object === undefined) {
    await findPool(database, params.pool ?? '')
    throw missing(member.label, params.id ?? '')
  }
  authorise(caller, right, object.projectId)
  return objectAnswer(200, member, object)
}

async function create(service: Service, call: Call<z.output<typeof createBody>>, right: Right) {
  const { caller, params, queryString } = call
  const { database, network, providers } = service
  parseArguments(queryString)
  const values = await call.body()
  const above = await findPool(database, params.pool ?? '')
  authorise(caller, right, above.project_id)
  await checkMembers(service, [values])
  await checkSubnets(network, caller, [values])
  const known = enabledProvider(providers, above.provider)
  refuseUnsupported(known, member, values)
  await requireSubnetsBelow(service, known, above.load_balancer_id, [values])
  const id = randomUUID()
  const object = await changeLoadBalancer(
    service,
    requestDetail(call, 'create', member, id),
    above.load_balancer_id,
    async (trx, changed) => {
      const provider = enabledProvider(providers, changed.provider)
      await checkCompatibility(trx, changed.id, provider, {
        listeners: [],
        pools: [{ protocol: above.protocol, members: [values] }],
      })
      const { last_server_number, monitored } = await touchPool(trx, changed, above.id, 1)
      const placed = { poolId: above.id, member: { id, values }, serverNumber: last_server_number, monitored }
      await storeMembers(trx, changed, [placed])
      return selectWithinCapacity(trx, provider, changed.id, member, id)
    },
  )
  return objectAnswer(201, member, object)
}

async function update(service: Service, call: Call<z.output<typeof updateBody>>, right: Right) {
  const { caller, params, queryString } = call
  const { database, providers } = service
  parseArguments(queryString)
  const values = await call.body()
  const found = await findMember(database, params)
  authorise(caller, right, found.project_id)
  await checkMembers(service, [values])
  const object = await changeLoadBalancer(
    service,
    requestDetail(call, 'update', member, found.id),
    found.load_balancer_id,
    async (trx, changed) => {
      refuseUnsupported(enabledProvider(providers, changed.provider), member, values)
      await touchPool(trx, changed, found.pool_id)
      await updateObject(trx, changed, member, found.id, columnsOf(member, values))
      return selectOne(trx, member, sql`o.id = ${found.id}`)
    },
  )
  return objectAnswer(200, member, object)
}

async function remove(service: Service, call: Call, right: Right) {
  const { caller, params, queryString } = call
  const { database } = service
  parseArguments(queryString)
  const found = await findMember(database, params)
  authorise(caller, right, found.project_id)
  if (!isBeingDeleted(found)) {
    await changeLoadBalancer(
      service,
      requestDetail(call, 'delete', member, found.id),
      found.load_balancer_id,
      async (trx, changed) => {
        await touchPool(trx, changed, found.pool_id)
        await markDeleted(trx, changed, member, [found.id])
      },
    )
  }
  return { status: 204 }
}

/** Thrown to roll back a batch that changes nothing. */
const NOTHING_TO_DO = Symbol('nothing to do')

async function replaceAll(service: Service, call: Call, right: Right) {
  const { caller, params, queryString } = call
  const { database, network, providers } = service
  const args = parseArguments(queryString, ['additive_only'])
  const additiveOnly = args.has('additive_only') && parseBoolean('additive_only', args.get('additive_only') ?? '')
  const desired = await readBatch(await call.json())
  const above = await findPool(database, params.pool ?? '')
  authorise(caller, right, above.project_id)
  const bodies = desired.map(({ values }) => values)
  await checkMembers(service, bodies)
  await checkSubnets(network, caller, bodies)
  const known = enabledProvider(providers, above.provider)
  if (known.needsMemberSubnets === true) {
    const added = planBatch(await many(database, existingMembers(above.id)), desired, additiveOnly).create
    const values = added.map(one => one.values)
    await requireSubnetsBelow(service, known, above.load_balancer_id, values)
  }
  try {
    await changeLoadBalancer(
      service,
      requestDetail(call, 'update members', pool, above.id),
      above.load_balancer_id,
      async (trx, changed) => {
        const provider = enabledProvider(providers, changed.provider)
        for (const { values } of desired) refuseUnsupported(provider, member, values)
        const plan = planBatch(await many(trx, existingMembers(above.id)), desired, additiveOnly)
        if (plan.create.length + plan.update.length + plan.remove.length === 0) throw NOTHING_TO_DO
        const members = plan.create.map(({ values }) => values)
        await checkCompatibility(trx, changed.id, provider, {
          listeners: [],
          pools: [{ protocol: above.protocol, members }],
        })
        await storeBatch(trx, changed, provider, above.id, plan)
      },
    )
  } catch (error) {
    if (error !== NOTHING_TO_DO) throw error
  }
  return { status: 202 }
}

const existingMembers = (poolId: string) =>
  sql<ExistingMember>`SELECT id, address, protocol_port FROM member WHERE pool_id = ${poolId} AND change <> 'delete'`

/** Parses `{"members": [...]}` or the bare list. */
async function readBatch(body: unknown): Promise<RequestedMember[]> {
  const values = await readBody(batchBody, Array.isArray(body) ? { members: body } : body)
  const raw: unknown[] = Array.isArray(body) ? body : isObject(body) && Array.isArray(body.members) ? body.members : []
  return values.map((value, index) => {
    const element = raw[index]
    const given = isObject(element) ? Object.keys(element).filter(key => element[key] !== null) : []
    return { values: value, given: new Set(given) }
  })
}

/** Uses a few statements, regardless of the size of the batch. */
async function storeBatch(
  trx: Transaction,
  changed: ChangedLoadBalancer,
  provider: ProviderCapabilities,
  poolId: string,
  { create, update, remove }: BatchPlan,
) {
  const touchedPool = await touchPool<Capacity | null>(
    trx,
    changed,
    poolId,
    create.length,
    capacityOf(provider, changed.id),
  )
  const { last_server_number, monitored, listeners, extra } = touchedPool
  const more = create.length - remove.length
  if (monitored && more > 0) refuseExcess(extra, more * listeners)
  const firstNumber = last_server_number - create.length + 1
  await storeMembers(
    trx,
    changed,
    create.map((newMember, index) => ({ poolId, member: newMember, serverNumber: firstNumber + index, monitored })),
    remove.length,
  )
  if (remove.length > 0) await markDeleted(trx, changed, member, remove)
  if (update.length > 0) await updateMany(trx, changed, update)
}

/** Attributes that keep their value if a batch omits them; all others return to their defaults. */
const PRESERVED: ReadonlySet<string> = new Set(['name', 'subnet_id', 'tags'])
/** Attributes that identify a member. */
const IDENTIFYING: ReadonlySet<string> = new Set(['address', 'protocol_port'])

const UPDATED_COLUMNS = columnNames({ ...member, parent: null }).filter(name => !IDENTIFYING.has(name))

const UPDATED = trusted(
  UPDATED_COLUMNS.map(name =>
    PRESERVED.has(name) ? `${name} = coalesce(w.${name}, o.${name})` : `${name} = w.${name}`,
  ).join(', '),
)

async function updateMany(trx: Transaction, changed: ChangedLoadBalancer, updates: BatchPlan['update']) {
  const rows = updates.map(({ id, desired: { values, given } }) => {
    const columns = Object.entries(columnsOf(member, values)).filter(
      ([name]) => !PRESERVED.has(name) || given.has(name),
    )
    return { id, ...Object.fromEntries(columns) }
  })
  await execute(
    trx,
    sql`UPDATE member o SET ${UPDATED}, ${stamp(changed, sql`o.`)}
          FROM json_populate_recordset(NULL::member, ${json(rows)}) w
         WHERE o.id = w.id`,
  )
}

/** @throws RoutingFault 404, because the pool is part of the path */
async function findPool(database: Service['database'], id: string): Promise<Found<{ protocol: string }>> {
  const found = await lookUp<{ protocol: string }>(database, pool, id)
  if (found === undefined) throw missingParent('Pool', id)
  return found
}

/** @throws ApiError 404, also for a member of another pool */
async function findMember(database: Service['database'], params: Call['params']): Promise<Found<{ pool_id: string }>> {
  const found: Found<{ pool_id: string }> = await findObject(database, member, params.id ?? '')
  if (found.pool_id !== canonicalUuid(params.pool)) throw missing(member.label, params.id ?? '')
  return found
}
