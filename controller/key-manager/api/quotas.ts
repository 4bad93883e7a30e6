import * as z from 'zod'
import type { Answer } from '../../api/answer.js'
import { objectOf, ref } from '../../api/schema.js'
import { execute, maybeOne, one } from '../../database/query.js'
import { identifier, insertion, join, sql, trusted } from '../../database/sql.js'
import { badRequest } from '../../http/errors.js'
import { missing } from '../ids.js'
import { wholeNumber } from '../input.js'
import { type ApiService, type Call, route } from './dialect.js'
import { PAGE_PARAMETERS, pageJson, parsePage, readPage } from './paging.js'

/** The kinds of objects with quotas, in the order of the answers. */
const KINDS = ['secrets', 'orders', 'containers', 'consumers', 'cas'] as const

/** Maximum of PostgreSQL's integer. */
const MAX_LIMIT = 2_147_483_647
const MAX_PROJECT_ID_LENGTH = 255

/** Null counts as missing; a negative number means no limit. */
const limit = wholeNumber(-MAX_LIMIT, MAX_LIMIT).nullish()

const projectQuotasBody = z
  .strictObject({
    project_quotas: z.strictObject({
      secrets: limit,
      orders: limit,
      containers: limit,
      consumers: limit,
      cas: limit,
    }),
  })
  .meta({ title: 'quota' })

const LIMITS_JSON = trusted(`json_build_object(${KINDS.map(kind => `'${kind}', q.${kind}`).join(', ')})`)

const base = { group: 'quotas', status: 200 } as const

export const quotaRoutes = [
  route({
    ...base,
    method: 'GET',
    path: '/v1/quotas',
    right: 'quotas read',
    summary: 'Show the quotas of the project',
    answer: objectOf({ quotas: ref('limits') }),
    handle: showEffective,
  }),
  route({
    ...base,
    method: 'GET',
    path: '/v1/project-quotas',
    right: 'project quotas',
    summary: 'List the projects with their own quotas',
    parameters: PAGE_PARAMETERS,
    answer: ref('project_quotas'),
    handle: listProjectQuotas,
  }),
  route({
    ...base,
    method: 'GET',
    path: '/v1/project-quotas/:project',
    right: 'project quotas',
    summary: 'Show the quotas set for a project',
    answer: objectOf({ project_quotas: ref('limits') }),
    handle: showProjectQuotas,
  }),
  route({
    ...base,
    method: 'PUT',
    path: '/v1/project-quotas/:project',
    right: 'project quotas',
    summary: 'Set quotas of a project; kinds that are not given stay as they are',
    status: 204,
    request: projectQuotasBody,
    handle: setProjectQuotas,
  }),
  route({
    ...base,
    method: 'DELETE',
    path: '/v1/project-quotas/:project',
    right: 'project quotas',
    summary: 'Reset a project to the default quotas',
    status: 204,
    handle: deleteProjectQuotas,
  }),
]

async function showEffective({ database, config }: ApiService, call: Call): Promise<Answer> {
  const limits = KINDS.map(
    kind => sql`${trusted(`'${kind}'`)}, coalesce(${identifier('q', kind)}, ${config.quota[kind]}::integer)`,
  )
  const { json } = await one(
    database,
    sql<{ json: string }>`
      SELECT json_build_object('quotas', json_build_object(${join(limits)}))::text AS json
        FROM (SELECT 1) one LEFT JOIN project_quota q ON q.project_id = ${call.caller.projectId}`,
  )
  return { status: 200, json }
}

async function listProjectQuotas({ database, config }: ApiService, call: Call): Promise<Answer> {
  const page = parsePage(call.query, config)
  const selection = {
    table: '(SELECT project_id AS id, * FROM project_quota) q',
    where: sql`true`,
    order: sql`q.created_at, q.id`,
    json: sql`json_build_object('project_id', q.id, 'project_quotas', ${LIMITS_JSON})::text`,
  }
  const { items, total } = await readPage(database, selection, page, call.base)
  const url = `${call.base}/v1/project-quotas`
  return { status: 200, json: pageJson('project_quotas', items, total, { page, query: call.query, url }) }
}

const missingQuota = () => missing('Project quota')

async function showProjectQuotas({ database }: ApiService, call: Call): Promise<Answer> {
  const found = await maybeOne(
    database,
    sql<{ json: string }>`
      SELECT json_build_object('project_quotas', ${LIMITS_JSON})::text AS json FROM project_quota q
       WHERE q.project_id = ${call.params.project ?? ''}`,
  )
  if (found === undefined) throw missingQuota()
  return { status: 200, json: found.json }
}

/** Kinds that the body omits keep their quota. The project need not be known. */
async function setProjectQuotas(
  { database }: ApiService,
  call: Call<z.output<typeof projectQuotasBody>>,
): Promise<Answer> {
  const project = call.params.project ?? ''
  if (project.length > MAX_PROJECT_ID_LENGTH) {
    throw badRequest(`A project id may have at most ${MAX_PROJECT_ID_LENGTH} characters.`)
  }
  const { project_quotas: given } = await call.body()
  const limits = Object.fromEntries(KINDS.map(kind => [kind, given[kind] ?? null]))
  await execute(
    database,
    sql`INSERT INTO project_quota AS q ${insertion([{ project_id: project, ...limits }])}
        ON CONFLICT (project_id) DO UPDATE SET updated_at = now(),
          ${trusted(KINDS.map(kind => `${kind} = coalesce(EXCLUDED.${kind}, q.${kind})`).join(', '))}`,
  )
  return { status: 204 }
}

async function deleteProjectQuotas({ database }: ApiService, call: Call): Promise<Answer> {
  const gone = await execute(database, sql`DELETE FROM project_quota WHERE project_id = ${call.params.project ?? ''}`)
  if (gone === 0) throw missingQuota()
  return { status: 204 }
}
