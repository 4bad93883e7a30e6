import { type Answer, jsonAnswer } from '../../api/answer.js'
import { sql } from '../../database/sql.js'
import { forbidden } from '../../http/errors.js'
import { readCatalog } from '../catalog.js'
import {
  type IdentityCall,
  type IdentityRoute,
  listAnswer,
  listForm,
  route,
  type Service,
  selfUrl,
} from '../dialect.js'
import { anyone } from '../policy.js'
import { findDomains, presentDomain } from '../resources/domains.js'
import { findProjects, presentProject } from '../resources/projects.js'
import { effectiveRoles } from '../tokens/effective-roles.js'

/** The scopes available to a token's user, and the token's catalogue. */
export const ownScopeRoutes: readonly IdentityRoute[] = [
  route({
    ...{ method: 'GET', path: '/v3/auth/projects', right: anyone, group: 'auth', status: 200 },
    summary: 'List the projects that the user can scope a token to',
    answer: listForm('projects'),
    handle: listOwnProjects,
  }),
  route({
    ...{ method: 'GET', path: '/v3/auth/domains', right: anyone, group: 'auth', status: 200 },
    summary: 'List the domains that the user can scope a token to',
    answer: listForm('domains'),
    handle: listOwnDomains,
  }),
  route({
    ...{ method: 'GET', path: '/v3/auth/system', right: anyone, group: 'auth', status: 200 },
    summary: 'Show whether the user can scope a token to the system',
    answer: listForm('system'),
    handle: showSystem,
  }),
  route({
    ...{ method: 'GET', path: '/v3/auth/catalog', right: anyone, group: 'auth', status: 200 },
    summary: 'Show the catalog of the token',
    answer: listForm('catalog'),
    handle: showCatalog,
  }),
]

/** The role assignments of a user and its groups. */
const assignmentsOf = (user: string) =>
  sql`assignment WHERE user_id = ${user} OR group_id IN (SELECT group_id FROM group_member WHERE user_id = ${user})`

async function listOwnProjects({ database }: Service, call: IdentityCall): Promise<Answer> {
  const assignments = assignmentsOf(call.caller.document.user.id)
  const rows = await findProjects(
    database,
    sql`enabled AND domain_id IN (SELECT id FROM domain WHERE enabled) AND id IN (SELECT project_id FROM ${assignments})`,
  )
  return listAnswer(
    call,
    'projects',
    rows.map(row => presentProject(call, row)),
  )
}

async function listOwnDomains({ database }: Service, call: IdentityCall): Promise<Answer> {
  const assignments = assignmentsOf(call.caller.document.user.id)
  const rows = await findDomains(database, sql`enabled AND id IN (SELECT domain_id FROM ${assignments})`)
  return listAnswer(
    call,
    'domains',
    rows.map(row => presentDomain(call, row)),
  )
}

async function showSystem({ database }: Service, call: IdentityCall): Promise<Answer> {
  const { user } = call.caller.document
  const roles = await effectiveRoles(database, user.id, { projectId: null, domainId: null })
  return jsonAnswer(200, { system: roles.length > 0 ? [{ all: true }] : [], links: { self: selfUrl(call) } })
}

async function showCatalog({ database }: Service, call: IdentityCall): Promise<Answer> {
  const { document } = call.caller
  if (document.project === undefined) throw forbidden('Only a token scoped to a project has a catalog.')
  return jsonAnswer(200, { catalog: await readCatalog(database, document), links: { self: selfUrl(call) } })
}
