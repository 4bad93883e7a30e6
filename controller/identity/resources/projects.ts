import type { Knex } from 'knex'
import * as z from 'zod'
import type { Answer } from '../../api/answer.js'
import type { Database } from '../../database/connection.js'
import { maybeOne } from '../../database/query.js'
import { and, type Fragment, sql } from '../../database/sql.js'
import { badRequest, forbidden } from '../../http/errors.js'
import { type IdentityCall, type IdentityRoute, listAnswer, listForm, route, type Service } from '../dialect.js'
import { readersAndProject, readersAndUser } from '../policy.js'
import { revokeTokensOnProject } from '../tokens/revocation.js'
import { type Collection, collectionRoutes, type Fields, findRows, presentRow, type Row } from './collection.js'
import * as fields from './fields.js'
import { type Filters, filterConditions } from './filters.js'
import { domainOfToken, mustExist } from './references.js'

const create = z.looseObject({
  name: fields.name(64),
  domain_id: fields.id.nullable().optional(),
  parent_id: fields.id.nullable().optional(),
  is_domain: z
    .boolean()
    .refine(isDomain => !isDomain, 'must be false: create domains under /v3/domains')
    .optional(),
  description: fields.description
    .nullable()
    .transform(text => text ?? '')
    .optional(),
  enabled: fields.enabled.optional(),
  options: fields.options.optional(),
  tags: fields.tags.optional(),
})

const update = create.partial()

const tagsIn = (value: string): Fragment => sql`${value.split(',')}::text[]`

const FILTERS: Filters = { name: 'text', domain_id: 'text', enabled: 'boolean' }

export const projects: Collection<typeof create, typeof update> = {
  singular: 'project',
  plural: 'projects',
  table: 'project',
  create,
  update,
  filters: {
    ...FILTERS,
    parent_id: { text: sql`coalesce(parent_id, domain_id)` },
    // In this service, domains are not projects.
    is_domain: value => (/^(1|true)$/i.test(value) ? sql`false` : sql`true`),
    tags: value => sql`tags @> ${tagsIn(value)}`,
    'tags-any': value => sql`tags && ${tagsIn(value)}`,
    'not-tags': value => sql`NOT tags @> ${tagsIn(value)}`,
    'not-tags-any': value => sql`NOT tags && ${tagsIn(value)}`,
  },
  shown: ['id', 'name', 'domain_id', 'description', 'enabled', 'tags', 'options'],
  hidden: ['parent_id'],
  derive: row => ({ parent_id: row.parent_id ?? row.domain_id, is_domain: false }),
  allow: { show: readersAndProject },
  carriesRights: true,
  prepare: async ({ trx, call, sent, before }) => {
    const { is_domain: _, domain_id, parent_id, ...columns } = sent
    if (before === null) return { ...columns, ...(await locate(trx, call, { domain_id, parent_id })) }
    if (parent_id !== undefined && parent_id !== (before.parent_id ?? before.domain_id)) {
      throw badRequest('The parent_id of a project cannot be changed.')
    }
    return columns
  },
  updated: async (trx, before, after) => {
    if (!before.enabled || after.enabled) return
    const child = await maybeOne(trx, sql`SELECT id FROM project WHERE parent_id = ${after.id} AND enabled LIMIT 1`)
    if (child !== undefined) {
      throw forbidden(`Cannot disable project ${after.id} since its subtree contains enabled projects.`)
    }
    await revokeTokensOnProject(trx, after.id)
  },
  deleting: async (trx, project) => {
    const child = await maybeOne(trx, sql`SELECT id FROM project WHERE parent_id = ${project.id} LIMIT 1`)
    if (child !== undefined)
      throw forbidden(`Cannot delete the project ${project.id} since it is not a leaf in the hierarchy.`)
  },
}

export const projectRoutes: readonly IdentityRoute[] = [
  ...collectionRoutes(projects),
  route({
    ...{ method: 'GET', path: '/v3/users/:user_id/projects', right: readersAndUser, group: 'users', status: 200 },
    summary: 'List the projects on which a user has a role',
    answer: listForm('projects'),
    handle: listProjectsOfUser,
  }),
]

export const presentProject = (call: IdentityCall, row: Row) => presentRow(projects, call, row)

type Location = { domain_id?: string | null | undefined; parent_id?: string | null | undefined }

/** The domain and the parent of a new project. */
async function locate(trx: Knex, call: IdentityCall, { domain_id, parent_id }: Location): Promise<Fields> {
  const parent =
    typeof parent_id === 'string'
      ? await maybeOne(trx, sql<{ domain_id: string }>`SELECT domain_id FROM project WHERE id = ${parent_id}`)
      : undefined
  const domainId = domain_id ?? parent?.domain_id ?? parent_id ?? domainOfToken(call.caller.document)
  await mustExist(trx, 'domain', 'domain', domainId)
  if (typeof parent_id !== 'string' || parent_id === domainId) return { domain_id: domainId, parent_id: null }
  await mustExist(trx, 'project', 'project', parent_id)
  if (parent?.domain_id !== domainId) throw badRequest('A project and its parent must be in the same domain.')
  return { domain_id: domainId, parent_id }
}

/** Projects on which the user has a role, directly or through a group. */
async function listProjectsOfUser({ database }: Service, call: IdentityCall): Promise<Answer> {
  const user = call.params.user_id!
  await mustExist(database, 'local_user', 'user', user)
  const held = sql`SELECT project_id FROM assignment
     WHERE user_id = ${user} OR group_id IN (SELECT group_id FROM group_member WHERE user_id = ${user})`
  const rows = await findRows(database, projects, and([sql`id IN (${held})`, ...filterConditions(FILTERS, call)]))
  return listAnswer(
    call,
    'projects',
    rows.map(row => presentProject(call, row)),
  )
}

/** The projects that match a condition. */
export const findProjects = (database: Database, condition: Fragment): Promise<Row[]> =>
  findRows(database, projects, condition)
