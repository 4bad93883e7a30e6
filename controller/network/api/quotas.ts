import type Router from '@koa/router'
import type { Knex } from 'knex'
import type { Context } from 'koa'
import { z } from 'zod'
import type { Database } from '../../database/connection.js'
import { inTransaction } from '../../database/transaction.js'
import { readJson } from '../../http/body.js'
import { callerOf } from '../../identity/authenticate.js'
import {
  COUNTED_RESOURCES,
  type Counted,
  effectiveLimits,
  hasRoom,
  holdQuota,
  inUse,
  type Limits,
  type StoredLimits,
} from '../quota.js'
import { isAdmin } from '../visibility.js'
import { attribute, parseAttributes, unwrap } from './body.js'
import { clash, disallowed, invalidRequest, NeutronError } from './neutron-error.js'

const BODY_LIMIT = 64 * 1024

/** Where the limits of projects are kept. */
export type Quotas = {
  /** Undefined when none was set. */
  find: (projectId: string) => Promise<StoredLimits | undefined>
  list: () => Promise<(StoredLimits & { project_id: string })[]>
  used: (projectId: string, resource: Counted) => Promise<number>
  /** @param check refuses a limit below the use @throws NeutronError 400 */
  set: (projectId: string, limits: Partial<Limits>, check: boolean) => Promise<StoredLimits>
  /** @returns false when there was nothing to forget */
  reset: (projectId: string) => Promise<boolean>
}

const NOTHING: StoredLimits = { network: null, subnet: null, port: null }
const columns = ['network', 'subnet', 'port'] as const
const wasSet = 'coalesce(network, subnet, port) IS NOT NULL'

/** Limits of our own tables. */
export function createQuotas(database: Database): Quotas {
  return {
    find: async projectId =>
      database('quota').where({ project_id: projectId }).whereRaw(wasSet).first<StoredLimits | undefined>(columns),
    list: async () =>
      database('quota')
        .whereRaw(wasSet)
        .orderBy('project_id')
        .select('project_id', ...columns),
    used: (projectId, resource) => inUse(database, projectId, resource),
    set: (projectId, limits, check) =>
      inTransaction(database, async trx => {
        const held = await holdQuota(trx, projectId)
        if (check) await refuseBelowUse(trx, projectId, limits)
        if (Object.keys(limits).length > 0) await trx('quota').where({ project_id: projectId }).update(limits)
        return { ...(held ?? NOTHING), ...limits }
      }),
    // The row stays, as creates of the project may be waiting for it.
    reset: async projectId =>
      (await database('quota').where({ project_id: projectId }).whereRaw(wasSet).update(NOTHING)) > 0,
  }
}

/** As the noop driver sees it: nothing is kept, and nothing is used. */
export const noopQuotas: Quotas = {
  find: async () => undefined,
  list: async () => [],
  used: async () => 0,
  set: async (_projectId, limits) => ({ ...NOTHING, ...limits }),
  reset: async () => true,
}

async function refuseBelowUse(trx: Knex, projectId: string, limits: Partial<Limits>): Promise<void> {
  for (const resource of COUNTED_RESOURCES) {
    const limit = limits[resource]
    if (limit === undefined || limit === -1) continue
    const used = await inUse(trx, projectId, resource)
    if (limit >= used) continue
    throw invalidRequest(
      `Quota limit ${limit} for ${resource} must be greater than or equal to already used and reserved ${used}.`,
    )
  }
}

/** What holds for a project for which nothing else was set. */
export type QuotaSettings = { quota: Limits }

/** Refuses a new object beyond the project's limit, exactly, however many are made at once. @throws NeutronError 409 */
export async function chargeQuota(trx: Knex, projectId: string, resource: Counted, defaults: Limits): Promise<void> {
  if (await hasRoom(trx, projectId, resource, defaults)) return
  throw clash('OverQuota', `Quota exceeded for resources: ['${resource}'].`)
}

const limit = attribute.integer(-1, 2_000_000_000)
const updateSchema = z
  .strictObject({
    network: limit,
    subnet: limit,
    port: limit,
    // What the openstack command adds: whether a limit below the use is refused.
    check_limit: attribute.boolean,
    force: attribute.boolean,
  })
  .partial()

/** Limits of projects: everybody may read the own ones, administrators read and set all. */
export function mountQuotas(router: Router, quotas: Quotas, defaults: Limits): void {
  const projectOf = (ctx: Context, verb: 'get' | 'update' | 'delete'): string => {
    const project = parseAttributes(attribute.projectId, ctx.params.project)
    const caller = callerOf(ctx)
    if (!isAdmin(caller) && (verb !== 'get' || project !== caller.project?.id)) throw disallowed(`${verb}_quota`)
    return project
  }

  router.get('/v2.0/quotas', async ctx => {
    if (!isAdmin(callerOf(ctx))) throw disallowed('get_quota')
    const rows = await quotas.list()
    ctx.body = {
      quotas: rows.map(({ project_id, ...stored }) => ({
        project_id,
        tenant_id: project_id,
        ...effectiveLimits(stored, defaults),
      })),
    }
  })
  router.get('/v2.0/quotas/:project', async ctx => {
    ctx.body = { quota: effectiveLimits(await quotas.find(projectOf(ctx, 'get')), defaults) }
  })
  router.get('/v2.0/quotas/:project/default', async ctx => {
    projectOf(ctx, 'get')
    ctx.body = { quota: defaults }
  })
  // openstacksdk asks with ".json" at the end.
  router.get(['/v2.0/quotas/:project/details', '/v2.0/quotas/:project/details.json'], async ctx => {
    const project = projectOf(ctx, 'get')
    const limits = effectiveLimits(await quotas.find(project), defaults)
    const details = COUNTED_RESOURCES.map(
      async name => [name, { limit: limits[name], used: await quotas.used(project, name), reserved: 0 }] as const,
    )
    ctx.body = { quota: Object.fromEntries(await Promise.all(details)) }
  })
  router.put('/v2.0/quotas/:project', async ctx => {
    const project = projectOf(ctx, 'update')
    const [attributes] = unwrap(await readJson(ctx, BODY_LIMIT), 'quota').items
    const { check_limit = false, force: _force, ...limits } = parseAttributes(updateSchema, attributes)
    ctx.body = { quota: effectiveLimits(await quotas.set(project, limits, check_limit), defaults) }
  })
  router.delete('/v2.0/quotas/:project', async ctx => {
    const project = projectOf(ctx, 'delete')
    if (!(await quotas.reset(project))) {
      throw new NeutronError(404, 'TenantQuotaNotFound', `Quota for tenant ${project} could not be found.`)
    }
    ctx.status = 204
  })
}
