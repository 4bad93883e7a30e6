import { type Answer, jsonAnswer } from '../../api/answer.js'
import { sql } from '../../database/sql.js'
import { forbidden } from '../../http/errors.js'
import { readCatalog } from '../catalog.js'
import { type IdentityCall, type IdentityRoute, listed, listForm, route, type Service, selfOf } from '../dialect.js'
import { anyone } from '../policy.js'
import { findDomains, presentDomain } from '../resources/domains.js'
import { findProjects, presentProject } from '../resources/projects.js'
import { effectiveRoles } from '../tokens/effective-roles.js'

/** What the bearer of a token could be scoped to, and its catalogue. */
export const ownScopeRoutes: readonly IdentityRoute[] = [
  route({
    ...{ method: 'GET', path: '/v3/auth/projects', right: anyone, group: 'auth', status: 200 },
    summary: 'List the projects that the token could be scoped to',
    answer: listForm('projects'),
    handle: listOwnProjects,
  }),
  route({
    ...{ method: 'GET', path: '/v3/auth/domains', right: anyone, group: 'auth', status: 200 },
    summary: 'List the domains that the token could be scoped to',
    answer: listForm('domains'),
    handle: listOwnDomains,
  }),
  route({
    ...{ method: 'GET', path: '/v3/auth/system', right: anyone, group: 'auth', status: 200 },
    summary: 'Show whether the token could be scoped to the system',
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

/** The assignments of a user and of its groups. */
const heldBy = (user: string) =>
  sql`assignment WHERE user_id = ${user} OR group_id IN (SELECT group_id FROM group_member WHERE user_id = ${user})`

async function listOwnProjects({ database }: Service, call: IdentityCall): Promise<Answer> {
  const held = heldBy(call.caller.document.user.id)
  const rows = await findProjects(
    database,
    sql`enabled AND domain_id IN (SELECT id FROM domain WHERE enabled) AND id IN (SELECT project_id FROM ${held})`,
  )
  return listed(
    call,
    'projects',
    rows.map(row => presentProject(call, row)),
  )
}

async function listOwnDomains({ database }: Service, call: IdentityCall): Promise<Answer> {
  const held = heldBy(call.caller.document.user.id)
  const rows = await findDomains(database, sql`enabled AND id IN (SELECT domain_id FROM ${held})`)
  return listed(
    call,
    'domains',
    rows.map(row => presentDomain(call, row)),
  )
}

async function showSystem({ database }: Service, call: IdentityCall): Promise<Answer> {
  const { user } = call.caller.document
  const roles = await effectiveRoles(database, user.id, { projectId: null, domainId: null })
  return jsonAnswer(200, { system: roles.length > 0 ? [{ all: true }] : [], links: { self: selfOf(call) } })
}

async function showCatalog({ database }: Service, call: IdentityCall): Promise<Answer> {
  const { document } = call.caller
  if (document.project === undefined) throw forbidden('Only a token that is scoped to a project has a catalog.')
  return jsonAnswer(200, { catalog: await readCatalog(database, document), links: { self: selfOf(call) } })
}
