import type * as z from 'zod'
import { maybeOne } from '../../database/query.js'
import { sql } from '../../database/sql.js'
import type { Transaction } from '../../database/transaction.js'
import { changeLoadBalancer, markDeleted, touchPolicy, updateObject } from '../change/change.js'
import { requestDetail } from '../change/events.js'
import { storeRules } from '../change/store.js'
import { l7Policy } from '../objects/l7-policies/resource.js'
import { l7Rule } from '../objects/l7-rules/resource.js'
import { type Comparison, checkRuleCount, completeRule } from '../objects/l7-rules/rules.js'
import { enabledProvider, refuseUnsupported } from '../schema/capabilities.js'
import { missing, missingParent } from '../schema/faults.js'
import { type Found, isBeingDeleted, lookUp } from '../schema/find.js'
import { wrappedBody } from '../schema/input.js'
import { listPage } from '../schema/list.js'
import { parseArguments, parseListQuery, parseShowQuery } from '../schema/list-query.js'
import { columnsOf, createSchema, updateSchema } from '../schema/resource.js'
import { authorise, type Right } from '../schema/rights.js'
import { selectObject } from '../schema/select.js'
import type { Service } from '../schema/service.js'
import { canonicalUuid } from '../schema/values.js'
import { selectWithinCapacity, turnsOn } from '../tree/check-capacity.js'
import { planRule } from '../tree/new-objects.js'
import type { Call } from './dialect.js'
import { objectAnswer, objectRoutes, pageAnswer } from './object-routes.js'

const createBody = wrappedBody(l7Rule.singular, createSchema(l7Rule))
const updateBody = wrappedBody(l7Rule.singular, updateSchema(l7Rule))

export const l7RuleRoutes = [
  ...objectRoutes(l7Rule, {
    path: '/lbaas/l7policies/:policy/rules',
    rights: { read: 'read', write: 'write' },
    list,
    show,
    create: { request: createBody, handle: create },
    update: { request: updateBody, handle: update },
    remove: { handle: remove },
  }),
]

/** Rules have the project of their policy, so the policy is looked up only if the page has no rules. */
async function list({ database, config }: Service, { caller, params, queryString, url }: Call, right: Right) {
  const query = parseListQuery(l7Rule, queryString, config)
  const policyId = canonicalUuid(params.policy)
  if (policyId === null) throw missingParent(l7Policy.label, params.policy ?? '')
  const page = await listPage(database, l7Rule, { query, scope: sql`o.l7_policy_id = ${policyId}`, url })
  authorise(caller, right, page.objects[0]?.projectId ?? (await findPolicy(database, policyId)).project_id)
  return pageAnswer(l7Rule, page)
}

async function show({ database, config }: Service, { caller, params, queryString }: Call, right: Right) {
  const fields = parseShowQuery(queryString, config, { argument: 'l7policy_id', id: params.policy ?? '' })
  const [policyId, id] = [canonicalUuid(params.policy), canonicalUuid(params.id)]
  const object =
    policyId === null || id === null
      ? undefined
      : await selectObject(database, l7Rule, sql`o.id = ${id} AND o.l7_policy_id = ${policyId}`, fields)
  if (object === undefined) {
    await findPolicy(database, params.policy ?? '')
    throw missing(l7Rule.label, params.id ?? '')
  }
  authorise(caller, right, object.projectId)
  return objectAnswer(200, l7Rule, object)
}

async function create(service: Service, call: Call<z.output<typeof createBody>>, right: Right) {
  const { caller, params, queryString } = call
  const { database, providers } = service
  parseArguments(queryString)
  const body = await call.body()
  const above = await findPolicy(database, params.policy ?? '')
  authorise(caller, right, above.project_id)
  const rule = planRule(body)
  const object = await changeLoadBalancer(
    service,
    requestDetail(call, 'create', l7Rule, rule.id),
    above.load_balancer_id,
    async (trx, changed) => {
      refuseUnsupported(enabledProvider(providers, changed.provider), l7Rule, rule.values)
      const { rules } = await touchPolicy(trx, changed, above.id)
      checkRuleCount(rules + 1)
      await storeRules(trx, changed, [{ policyId: above.id, rule }])
      return selectWithinCapacity(trx, enabledProvider(providers, changed.provider), changed.id, l7Rule, rule.id)
    },
  )
  return objectAnswer(201, l7Rule, object)
}

async function update(service: Service, call: Call<z.output<typeof updateBody>>, right: Right) {
  const { caller, params, queryString } = call
  const { database, providers } = service
  parseArguments(queryString)
  const body = await call.body()
  const found = await findRule(database, params)
  authorise(caller, right, found.project_id)
  const object = await changeLoadBalancer(
    service,
    requestDetail(call, 'update', l7Rule, found.id),
    found.load_balancer_id,
    async (trx, changed) => {
      await touchPolicy(trx, changed, found.l7_policy_id)
      const stored = await storedRule(trx, found.id)
      const { type, compare_type, key, value } = { ...stored, ...given(body) }
      const values = { ...body, ...completeRule({ type, compare_type, key, value }) }
      refuseUnsupported(enabledProvider(providers, changed.provider), l7Rule, values)
      await updateObject(trx, changed, l7Rule, found.id, columnsOf(l7Rule, values))
      return selectWithinCapacity(
        trx,
        enabledProvider(providers, changed.provider),
        changed.id,
        l7Rule,
        found.id,
        turnsOn(stored, body),
      )
    },
  )
  return objectAnswer(200, l7Rule, object)
}

async function remove(service: Service, call: Call, right: Right) {
  const { caller, params, queryString } = call
  const { database } = service
  parseArguments(queryString)
  const found = await findRule(database, params)
  authorise(caller, right, found.project_id)
  if (!isBeingDeleted(found)) {
    await changeLoadBalancer(
      service,
      requestDetail(call, 'delete', l7Rule, found.id),
      found.load_balancer_id,
      async (trx, changed) => {
        await touchPolicy(trx, changed, found.l7_policy_id)
        await markDeleted(trx, changed, l7Rule, [found.id])
      },
    )
  }
  return { status: 204 }
}

/** A null key clears the stored one; a missing key keeps it. */
function given(body: Partial<Comparison>): Partial<Comparison> {
  return Object.fromEntries(Object.entries(body).filter(([, value]) => value !== undefined))
}

type StoredRule = Comparison & { admin_state_up: boolean }

/**
 * Reads the stored values under the load balancer's lock, so that the check uses the values that the update
 * changes.
 */
async function storedRule(trx: Transaction, id: string): Promise<StoredRule> {
  const stored = await maybeOne(
    trx,
    sql<StoredRule>`SELECT type, compare_type, key, value, admin_state_up FROM l7_rule WHERE id = ${id}`,
  )
  if (stored === undefined) throw missing(l7Rule.label, id)
  return stored
}

/** @throws RoutingFault 404, because the policy is part of the path */
async function findPolicy(database: Service['database'], id: string): Promise<Found> {
  const found = await lookUp(database, l7Policy, id)
  if (found === undefined) throw missingParent(l7Policy.label, id)
  return found
}

/** @throws ApiError 404, also for a rule of another policy */
async function findRule(
  database: Service['database'],
  params: Call['params'],
): Promise<Found<{ l7_policy_id: string }>> {
  const found = await lookUp<{ l7_policy_id: string }>(database, l7Rule, params.id ?? '')
  if (found !== undefined && found.l7_policy_id === canonicalUuid(params.policy)) return found
  await findPolicy(database, params.policy ?? '')
  throw missing(l7Rule.label, params.id ?? '')
}
