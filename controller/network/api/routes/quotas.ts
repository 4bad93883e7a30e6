import * as z from 'zod'
import { type Answer, jsonAnswer, NO_CONTENT } from '../../../api/answer.js'
import type { Call } from '../../../api/call.js'
import { formOf, objectOf, ref } from '../../../api/schema.js'
import type { Caller } from '../../../identity/caller.js'
import { COUNTED_RESOURCES, effectiveLimits, forEachCounted } from '../../quota.js'
import { isAdmin } from '../../visibility.js'
import { attribute, parseAttributes, unwrap } from '../body.js'
import { route, type Service } from '../dialect.js'
import { NeutronError, notAuthorized } from '../neutron-error.js'

const MAX_BODY_BYTES = 64 * 1024

const limit = attribute.integer(-1, 2_000_000_000)
const updateSchema = z
  .strictObject({
    ...forEachCounted(() => limit),
    // The openstack command adds these: check_limit refuses a limit below the current usage.
    check_limit: attribute.boolean,
    force: attribute.boolean,
  })
  .partial()

const group = 'quotas'
const collection = '/v2.0/quotas'
const one = `${collection}/:project`
const answer = objectOf({ quota: ref('quota') })

/** Quotas of projects. Users may read their own project's; administrators may read and set all. */
export const quotaRoutes = [
  route({
    ...{ method: 'GET', path: collection, right: 'administer', group, status: 200 },
    summary: 'List the quotas of all projects with limits of their own',
    answer: objectOf({ quotas: { type: 'array', items: ref('project_quota') } }),
    handle: async ({ quotas, defaultLimits }, { caller }) => {
      if (!isAdmin(caller)) throw notAuthorized('get_quota')
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
    summary: 'Show the quota of a project',
    answer,
    handle: async ({ quotas, defaultLimits }, call) => {
      const stored = await quotas.find(allowedProject(call, 'get'))
      return jsonAnswer(200, { quota: effectiveLimits(stored, defaultLimits) })
    },
  }),
  route({
    ...{ method: 'GET', path: `${one}/default`, right: 'read quota', group, status: 200 },
    summary: 'Show the default quota of a project',
    answer,
    handle: async ({ defaultLimits }, call) => {
      allowedProject(call, 'get')
      return jsonAnswer(200, { quota: defaultLimits })
    },
  }),
  // openstacksdk appends ".json".
  ...['details', 'details.json'].map(word =>
    route({
      ...{ method: 'GET', path: `${one}/${word}`, right: 'read quota', group, status: 200 },
      summary: 'Show the quota and the usage of a project',
      answer: objectOf({ quota: ref('quota_details') }),
      handle: showDetails,
    }),
  ),
  route({
    ...{ method: 'PUT', path: one, right: 'administer', group, status: 200 },
    summary: 'Set the quota of a project; limits not given stay unchanged',
    requestForm: objectOf({ quota: formOf(updateSchema) }),
    answer,
    maxBytes: MAX_BODY_BYTES,
    handle: async ({ quotas, defaultLimits }, call) => {
      const project = allowedProject(call, 'update')
      const [attributes] = unwrap(await call.json(), 'quota').items
      const { check_limit = false, force: _force, ...limits } = parseAttributes(updateSchema, attributes)
      return jsonAnswer(200, { quota: effectiveLimits(await quotas.set(project, limits, check_limit), defaultLimits) })
    },
  }),
  route({
    ...{ method: 'DELETE', path: one, right: 'administer', group, status: 204 },
    summary: 'Reset the quota of a project to the defaults',
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

/** The project in the path. @throws NeutronError 403 if the caller may not do this to its quota */
function allowedProject({ caller, params }: Call<Caller>, verb: 'get' | 'update' | 'delete'): string {
  const project = parseAttributes(attribute.projectId, params.project)
  if (!isAdmin(caller) && (verb !== 'get' || project !== caller.project?.id)) throw notAuthorized(`${verb}_quota`)
  return project
}
