import { z } from 'zod'
import { type Answer, jsonAnswer, NO_CONTENT } from '../../../api/answer.js'
import type { Call } from '../../../api/call.js'
import { formOf, objectOf, ref } from '../../../api/schema.js'
import type { Caller } from '../../../identity/caller.js'
import { COUNTED_RESOURCES, effectiveLimits } from '../../quota.js'
import { isAdmin } from '../../visibility.js'
import { attribute, parseAttributes, unwrap } from '../body.js'
import { route, type Service } from '../dialect.js'
import { disallowed, NeutronError } from '../neutron-error.js'

const BODY_LIMIT = 64 * 1024

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

const group = 'quotas'
const collection = '/v2.0/quotas'
const one = `${collection}/:project`
const answer = objectOf({ quota: ref('quota') })

/** Limits of projects: everybody may read the own ones, administrators read and set all. */
export const quotaRoutes = [
  route({
    ...{ method: 'GET', path: collection, right: 'administer', group, status: 200 },
    summary: 'List the limits that were set',
    answer: objectOf({ quotas: { type: 'array', items: ref('project_quota') } }),
    handle: async ({ quotas, defaultLimits }, { caller }) => {
      if (!isAdmin(caller)) throw disallowed('get_quota')
      const rows = await quotas.list()
      return jsonAnswer(200, {
        quotas: rows.map(({ project_id, ...stored }) => ({
          project_id,
          tenant_id: project_id,
          ...effectiveLimits(stored, defaultLimits),
        })),
      })
    },
  }),
  route({
    ...{ method: 'GET', path: one, right: 'read quota', group, status: 200 },
    summary: 'Show the limits of a project',
    answer,
    handle: async ({ quotas, defaultLimits }, call) => {
      const stored = await quotas.find(allowedProject(call, 'get'))
      return jsonAnswer(200, { quota: effectiveLimits(stored, defaultLimits) })
    },
  }),
  route({
    ...{ method: 'GET', path: `${one}/default`, right: 'read quota', group, status: 200 },
    summary: 'Show the limits that a project has by default',
    answer,
    handle: async ({ defaultLimits }, call) => {
      allowedProject(call, 'get')
      return jsonAnswer(200, { quota: defaultLimits })
    },
  }),
  // openstacksdk asks with ".json" at the end.
  ...['details', 'details.json'].map(word =>
    route({
      ...{ method: 'GET', path: `${one}/${word}`, right: 'read quota', group, status: 200 },
      summary: 'Show the limits of a project and how much of each is used',
      answer: objectOf({ quota: ref('quota_details') }),
      handle: showDetails,
    }),
  ),
  route({
    ...{ method: 'PUT', path: one, right: 'administer', group, status: 200 },
    summary: 'Set limits of a project; what is not given stays',
    requestForm: objectOf({ quota: formOf(updateSchema) }),
    answer,
    mostBytes: BODY_LIMIT,
    handle: async ({ quotas, defaultLimits }, call) => {
      const project = allowedProject(call, 'update')
      const [attributes] = unwrap(await call.json(), 'quota').items
      const { check_limit = false, force: _force, ...limits } = parseAttributes(updateSchema, attributes)
      return jsonAnswer(200, { quota: effectiveLimits(await quotas.set(project, limits, check_limit), defaultLimits) })
    },
  }),
  route({
    ...{ method: 'DELETE', path: one, right: 'administer', group, status: 204 },
    summary: 'Reset the limits of a project to the defaults',
    handle: async ({ quotas }, call) => {
      const project = allowedProject(call, 'delete')
      if (await quotas.reset(project)) return NO_CONTENT
      throw new NeutronError(404, 'TenantQuotaNotFound', `Quota for tenant ${project} could not be found.`)
    },
  }),
]

async function showDetails({ quotas, defaultLimits }: Service, call: Call<Caller>): Promise<Answer> {
  const project = allowedProject(call, 'get')
  const limits = effectiveLimits(await quotas.find(project), defaultLimits)
  const details = COUNTED_RESOURCES.map(
    async name => [name, { limit: limits[name], used: await quotas.used(project, name), reserved: 0 }] as const,
  )
  return jsonAnswer(200, { quota: Object.fromEntries(await Promise.all(details)) })
}

/** The project that the path names. @throws NeutronError 403 when the caller may not do this to it */
function allowedProject({ caller, params }: Call<Caller>, verb: 'get' | 'update' | 'delete'): string {
  const project = parseAttributes(attribute.projectId, params.project)
  if (!isAdmin(caller) && (verb !== 'get' || project !== caller.project?.id)) throw disallowed(`${verb}_quota`)
  return project
}
