import { z } from 'zod'
import { execute, maybeOne, one } from '../../database/query.js'
import { identifier, insertion, join, sql, trusted } from '../../database/sql.js'
import { badRequest } from '../../http/errors.js'
import { missing } from '../ids.js'
import { parseBody } from '../input.js'
import { pageJson, pageOf, readPage } from '../paging.js'
import type { Answer, Call, Routes, Service } from '../routes.js'

/** What a project may have so many of, in the order of the answers. */
const KINDS = ['secrets', 'orders', 'containers', 'consumers', 'cas'] as const

/** Most that the database holds in a number. */
const MOST = 2_147_483_647
const LONGEST_PROJECT_ID = 255

/** Null says nothing about a kind, as leaving it out does; a negative number is no limit. */
const limit = z.int('must be a whole number').min(-MOST).max(MOST).nullish()

const projectQuotasBody = z.strictObject({
  project_quotas: z.strictObject({
    secrets: limit,
    orders: limit,
    containers: limit,
    consumers: limit,
    cas: limit,
  }),
})

const LIMITS_JSON = trusted(`json_build_object(${KINDS.map(kind => `'${kind}', q.${kind}`).join(', ')})`)

export const quotaRoutes = (service: Service): Routes => ({
  'GET /v1/quotas': call => showEffective(service, call),
  'GET /v1/project-quotas': call => listProjectQuotas(service, call),
  'GET /v1/project-quotas/:project': call => showProjectQuotas(service, call),
  'PUT /v1/project-quotas/:project': call => setProjectQuotas(service, call),
  'DELETE /v1/project-quotas/:project': call => deleteProjectQuotas(service, call),
})

async function showEffective({ database, config }: Service, call: Call): Promise<Answer> {
  const limits = KINDS.map(
    kind => sql`${trusted(`'${kind}'`)}, coalesce(${identifier('q', kind)}, ${config.quota[kind]}::integer)`,
  )
  const { json } = await one(
    database,
    sql<{ json: string }>`
      SELECT json_build_object('quotas', json_build_object(${join(limits)}))::text AS json
        FROM (SELECT 1) one LEFT JOIN project_quota q ON q.project_id = ${call.who.projectId}`,
  )
  return { status: 200, json }
}

async function listProjectQuotas({ database, config }: Service, call: Call): Promise<Answer> {
  const page = pageOf(call.query, config)
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

const noOverride = () => missing('A limit of the project’s own')

async function showProjectQuotas({ database }: Service, call: Call): Promise<Answer> {
  const found = await maybeOne(
    database,
    sql<{ json: string }>`
      SELECT json_build_object('project_quotas', ${LIMITS_JSON})::text AS json FROM project_quota q
       WHERE q.project_id = ${call.params.project ?? ''}`,
  )
  if (found === undefined) throw noOverride()
  return { status: 200, json: found.json }
}

/** Kinds that the body does not name keep the limit that they have. The project need not be known. */
async function setProjectQuotas({ database }: Service, call: Call): Promise<Answer> {
  const project = call.params.project ?? ''
  if (project.length > LONGEST_PROJECT_ID) {
    throw badRequest(`A project id has at most ${LONGEST_PROJECT_ID} characters.`)
  }
  const { project_quotas: given } = parseBody(projectQuotasBody, await call.readJson(), 'quota')
  const limits = Object.fromEntries(KINDS.map(kind => [kind, given[kind] ?? null]))
  await execute(
    database,
    sql`INSERT INTO project_quota AS q ${insertion([{ project_id: project, ...limits }])}
        ON CONFLICT (project_id) DO UPDATE SET updated_at = now(),
          ${trusted(KINDS.map(kind => `${kind} = coalesce(EXCLUDED.${kind}, q.${kind})`).join(', '))}`,
  )
  return { status: 204 }
}

async function deleteProjectQuotas({ database }: Service, call: Call): Promise<Answer> {
  const gone = await execute(database, sql`DELETE FROM project_quota WHERE project_id = ${call.params.project ?? ''}`)
  if (gone === 0) throw noOverride()
  return { status: 204 }
}
