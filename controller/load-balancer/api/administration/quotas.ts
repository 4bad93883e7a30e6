import { z } from 'zod'
import type { Answer } from '../../../api/answer.js'
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
import { invalidInput, readWrapped } from '../../schema/input.js'
import { parseArguments } from '../../schema/list-query.js'
import { authorise } from '../../schema/rights.js'
import { wrapped } from '../../schema/select.js'
import type { Service } from '../../schema/service.js'
import { integer, text } from '../../schema/values.js'
import { listHandler } from '../read-routes.js'
import type { Call, Routes } from '../routes.js'

/** Limits of a project: those that were set for it, over the configured defaults. */
export function quotaRoutes(service: Service): Routes {
  return {
    'GET /lbaas/quotas': listHandler(service, quota),
    'GET /lbaas/quotas/defaults': call => showOwnDefaults(service, call),
    'GET /lbaas/quotas/:project': call => show(service, call),
    'GET /lbaas/quotas/:project/default': call => showDefaults(service, call),
    'GET /lbaas/quotas/:project/usage': call => showUsage(service, call),
    'PUT /lbaas/quotas/:project': call => update(service, call),
    'DELETE /lbaas/quotas/:project': call => reset(service, call),
  }
}

async function showOwnDefaults({ config }: Service, { caller, right, queryString }: Call): Promise<Answer> {
  parseArguments(queryString)
  authorise(caller, right, caller.project?.id ?? null)
  return answer(200, 'defaults', config.quota)
}

async function showDefaults({ config }: Service, call: Call): Promise<Answer> {
  return answer(200, projectOf(call), config.quota)
}

/** Any project's, known or not. */
async function show({ database, config }: Service, call: Call): Promise<Answer> {
  const projectId = projectOf(call)
  return answer(200, projectId, effectiveLimits(await storedFor(database, projectId), config.quota))
}

/** Each limit beside how many objects count against it. */
async function showUsage({ database, config }: Service, call: Call): Promise<Answer> {
  const projectId = projectOf(call)
  const limits = effectiveLimits(await storedFor(database, projectId), config.quota)
  const rows = await many(
    database,
    sql<{ resource: Counted; inUse: number }>`
      SELECT resource, quota_in_use(${projectId}, resource) AS "inUse" FROM unnest(${COUNTED_RESOURCES}::text[]) resource`,
  )
  const used = new Map(rows.map(row => [row.resource, row.inUse]))
  const figures = COUNTED_RESOURCES.map(name => [name, { limit: limits[name], in_use: used.get(name) ?? 0 }] as const)
  const usage = { project_id: projectId, tenant_id: projectId, ...Object.fromEntries(figures) }
  return { status: 200, json: wrapped('quota_usage', JSON.stringify(usage)) }
}

async function update({ database, config }: Service, call: Call): Promise<Answer> {
  const values = readLimits(await call.readBody())
  const projectId = projectOf(call)
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

/** The row stays, as the project's creates may be waiting for it. A project that has never had one has nothing to reset. */
async function reset({ database }: Service, call: Call): Promise<Answer> {
  const projectId = projectOf(call)
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

/** @throws ApiError 400 for what cannot be a project's id, 403 */
function projectOf({ caller, right, params, queryString }: Call): string {
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

/** Older spellings of two of the limits. */
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
const bodyOfUpdate: z.ZodType<Partial<Record<(typeof names)[number], number | null>>> = z.strictObject(
  Object.fromEntries(names.map(name => [name, limitInBody])),
)

/** Null puts a limit back to the default. @throws ApiError 400 */
function readLimits(body: unknown): Partial<StoredLimits> {
  const { load_balancer, health_monitor, ...limits } = readWrapped(body, 'quota', bodyOfUpdate)
  const merged = (name: Counted, synonym: keyof typeof SYNONYMS, other: number | null | undefined) => {
    const own = limits[name]
    if (own !== undefined && other !== undefined && own !== other) {
      throw invalid(`${name} and ${synonym} are the same limit: give one of them.`)
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
  const spelt = { ...limits, load_balancer: loadbalancer, health_monitor: healthmonitor }
  return { status, json: wrapped('quota', JSON.stringify({ project_id: projectId, tenant_id: projectId, ...spelt })) }
}
