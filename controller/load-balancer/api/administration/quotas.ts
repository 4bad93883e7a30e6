import * as z from 'zod'
import { type Answer, jsonAnswer } from '../../../api/answer.js'
import { objectOf, type Schema } from '../../../api/schema.js'
import type { Database } from '../../../database/connection.js'
import { execute, many, maybeOne, one } from '../../../database/query.js'
import { assignments, identifiers, insertion, sql } from '../../../database/sql.js'
import { inTransaction } from '../../../database/transaction.js'
import { badRequest } from '../../../http/errors.js'
import {
  COUNTED_RESOURCES,
  type Counted,
  effectiveLimits,
  type Limits,
  rethrowBusy,
  type StoredLimits,
} from '../../objects/quotas/limits.js'
import { quota } from '../../objects/quotas/resource.js'
import { invalid, missing } from '../../schema/faults.js'
import { invalidInput, wrappedBody } from '../../schema/input.js'
import { parseArguments } from '../../schema/list-query.js'
import { authorise, type Right } from '../../schema/rights.js'
import type { Service } from '../../schema/service.js'
import { integer, text } from '../../schema/values.js'
import { type Call, route } from '../dialect.js'
import { listRoute } from '../object-routes.js'

/** Older names of two limits. */
const SYNONYMS = { load_balancer: 'loadbalancer', health_monitor: 'healthmonitor' } as const

const limit = integer(-1, 2_000_000_000)
const limitInBody = z
  .unknown()
  .transform((value, context): number | null => {
    if (value === null) return null
    const reading = limit.read(value)
    if (reading.ok) return reading.value
    context.addIssue({ code: 'custom', message: reading.reason })
    return z.NEVER
  })
  .meta(limit.jsonSchema)
  .optional()
const names = [...COUNTED_RESOURCES, ...(Object.keys(SYNONYMS) as (keyof typeof SYNONYMS)[])]
type LimitsInBody = Partial<Record<(typeof names)[number], number | null>>
const limitsInBody: z.ZodType<LimitsInBody> = z.strictObject(Object.fromEntries(names.map(name => [name, limitInBody])))
const updateBody = wrappedBody(quota.singular, limitsInBody)

const STRING: Schema = { type: 'string' }
const forms = (form: Schema) => Object.fromEntries(COUNTED_RESOURCES.map(name => [name, form]))
const formOf = (limits: Record<string, Schema>) => objectOf({ project_id: STRING, tenant_id: STRING, ...limits })
const QUOTA = objectOf({ quota: formOf(forms({ type: 'integer' })) })
const USAGE = objectOf({
  quota_usage: formOf(forms(objectOf({ limit: { type: 'integer' }, in_use: { type: 'integer' } }))),
})
const QUOTA_UPDATE = objectOf({
  quota: {
    ...objectOf(forms({ type: ['integer', 'null'], minimum: -1, maximum: 2_000_000_000 }), []),
    additionalProperties: false,
  },
})

const PATH = '/lbaas/quotas'
const READ = { method: 'GET', group: 'quotas', right: 'read quota', status: 200, answer: QUOTA } as const
const WRITE = { path: `${PATH}/:project`, group: 'quotas', right: 'write quota', status: 202 } as const

/** Routes of project limits: the limits set for a project, otherwise the configured defaults. */
export const quotaRoutes = [
  listRoute(quota, PATH, 'read quota'),
  route({
    ...READ,
    path: `${PATH}/defaults`,
    summary: 'Show the default limits',
    handle: showOwnDefaults,
  }),
  route({ ...READ, path: `${PATH}/:project`, summary: 'Show the limits of a project', handle: show }),
  route({
    ...READ,
    path: `${PATH}/:project/default`,
    summary: 'Show the default limits of a project',
    handle: showDefaults,
  }),
  route({
    ...READ,
    path: `${PATH}/:project/usage`,
    summary: 'Show the limits and the usage of a project',
    answer: USAGE,
    handle: showUsage,
  }),
  route({
    ...WRITE,
    method: 'PUT',
    summary: 'Set limits of a project; null resets a limit to the default',
    request: updateBody,
    requestForm: QUOTA_UPDATE,
    answer: QUOTA,
    handle: update,
  }),
  route({ ...WRITE, method: 'DELETE', summary: 'Reset all limits of a project to the defaults', handle: reset }),
]

async function showOwnDefaults({ config }: Service, { caller, queryString }: Call, right: Right) {
  parseArguments(queryString)
  authorise(caller, right, caller.project?.id ?? null)
  return answer(200, 'defaults', config.quota)
}

async function showDefaults({ config }: Service, call: Call, right: Right) {
  return answer(200, projectOf(call, right), config.quota)
}

/** Shows the limits of any project, even an unknown one. */
async function show({ database, config }: Service, call: Call, right: Right) {
  const projectId = projectOf(call, right)
  return answer(200, projectId, effectiveLimits(await storedFor(database, projectId), config.quota))
}

/** Shows each limit with the number of objects in use. */
async function showUsage({ database, config }: Service, call: Call, right: Right) {
  const projectId = projectOf(call, right)
  const limits = effectiveLimits(await storedFor(database, projectId), config.quota)
  const rows = await many(
    database,
    sql<{ resource: Counted; inUse: number }>`
      SELECT resource, quota_in_use(${projectId}, resource) AS "inUse" FROM unnest(${COUNTED_RESOURCES}::text[]) resource`,
  )
  const used = new Map(rows.map(row => [row.resource, row.inUse]))
  const figures = COUNTED_RESOURCES.map(name => [name, { limit: limits[name], in_use: used.get(name) ?? 0 }] as const)
  const usage = { project_id: projectId, tenant_id: projectId, ...Object.fromEntries(figures) }
  return jsonAnswer(200, { quota_usage: usage })
}

async function update({ database, config }: Service, call: Call<LimitsInBody>, right: Right) {
  const values = mergeSynonyms(await call.body())
  const projectId = projectOf(call, right)
  const columns = { project_id: projectId, ...values }
  const stored = await writing(database, projectId, trx =>
    one(
      trx,
      sql<StoredLimits>`
        INSERT INTO quota ${insertion([columns])}
        ON CONFLICT (project_id) DO UPDATE SET ${assignments(columns)}
        RETURNING ${identifiers(COUNTED_RESOURCES)}`,
    ),
  )
  return answer(202, projectId, effectiveLimits(stored, config.quota))
}

/** Keeps the row, because creates of the project may be waiting for its lock. 404 if the project has no row. */
async function reset({ database }: Service, call: Call, right: Right) {
  const projectId = projectOf(call, right)
  const defaults = Object.fromEntries(COUNTED_RESOURCES.map(name => [name, null]))
  const found = await writing(database, projectId, trx =>
    execute(trx, sql`UPDATE quota SET ${assignments(defaults)} WHERE project_id = ${projectId}`),
  )
  if (found === 0) throw missing(quota.label, projectId)
  return { status: 202 }
}

/** Waits for the creates that hold the project's row, but not for long. @throws ApiError 503 */
async function writing<T>(database: Database, projectId: string, body: (trx: Database) => Promise<T>): Promise<T> {
  return inTransaction(database, async trx => {
    await execute(trx, sql`SET LOCAL lock_timeout = '5s'`)
    return body(trx)
  }).catch(error => rethrowBusy(error, projectId))
}

const projectName = text(36, { minimum: 1 })

/** @throws ApiError 400 for an invalid project id, 403 */
function projectOf({ caller, params, queryString }: Call, right: Right): string {
  parseArguments(queryString)
  const given = params.project ?? ''
  const reading = projectName.read(given)
  if (!reading.ok) throw badRequest(invalidInput('project_id', given, reading.reason))
  authorise(caller, right, reading.value)
  return reading.value
}

async function storedFor(database: Database, projectId: string): Promise<StoredLimits | null> {
  const stored = await maybeOne(
    database,
    sql<StoredLimits>`SELECT ${identifiers(COUNTED_RESOURCES)} FROM quota WHERE project_id = ${projectId}`,
  )
  return stored ?? null
}

/** Null resets a limit to the default. @throws ApiError 400 */
function mergeSynonyms({ load_balancer, health_monitor, ...limits }: LimitsInBody): Partial<StoredLimits> {
  const merged = (name: Counted, synonym: keyof typeof SYNONYMS, other: number | null | undefined) => {
    const own = limits[name]
    if (own !== undefined && other !== undefined && own !== other) {
      throw invalid(`${name} and ${synonym} are the same limit and must not differ.`)
    }
    const value = own === undefined ? other : own
    return value === undefined ? {} : { [name]: value }
  }
  return {
    ...limits,
    ...merged('loadbalancer', 'load_balancer', load_balancer),
    ...merged('healthmonitor', 'health_monitor', health_monitor),
  }
}

function answer(status: number, projectId: string, limits: Limits): Answer {
  const { loadbalancer, healthmonitor } = limits
  const withSynonyms = { ...limits, load_balancer: loadbalancer, health_monitor: healthmonitor }
  return jsonAnswer(status, { quota: { project_id: projectId, tenant_id: projectId, ...withSynonyms } })
}
