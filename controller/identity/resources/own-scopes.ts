import { forbidden } from '../../http/errors.js'
import { readCatalog } from '../catalog.js'
import { anyone } from '../policy.js'
import { type Answer, listed, ok, type Request, type Route } from '../request.js'
import type { Row } from './collection.js'
import { presentDomain } from './domains.js'
import { presentProject } from './projects.js'
import { effectiveRoles } from './roles/effective-roles.js'

/** What the bearer of a token could be scoped to, and its catalogue. */
export const ownScopeRoutes: readonly Route[] = [
  { method: 'GET', path: '/auth/projects', allow: anyone, answer: listOwnProjects },
  { method: 'GET', path: '/auth/domains', allow: anyone, answer: listOwnDomains },
  { method: 'GET', path: '/auth/system', allow: anyone, answer: showSystem },
  { method: 'GET', path: '/auth/catalog', allow: anyone, answer: showCatalog },
]

const HELD = `SELECT * FROM assignment
  WHERE user_id = :id OR group_id IN (SELECT group_id FROM group_member WHERE user_id = :id)`

async function listOwnProjects(request: Request): Promise<Answer> {
  const { rows } = await request.database.raw(
    `SELECT p.* FROM project p JOIN domain d ON d.id = p.domain_id
      WHERE p.enabled AND d.enabled AND p.id IN (SELECT project_id FROM (${HELD}) held) ORDER BY p.id`,
    { id: request.token.document.user.id },
  )
  return listed(
    request,
    'projects',
    (rows as Row[]).map(row => presentProject(request, row)),
  )
}

async function listOwnDomains(request: Request): Promise<Answer> {
  const { rows } = await request.database.raw(
    `SELECT * FROM domain WHERE enabled AND id IN (SELECT domain_id FROM (${HELD}) held) ORDER BY id`,
    { id: request.token.document.user.id },
  )
  return listed(
    request,
    'domains',
    (rows as Row[]).map(row => presentDomain(request, row)),
  )
}

async function showSystem(request: Request): Promise<Answer> {
  const { user } = request.token.document
  const roles = await effectiveRoles(request.database, user.id, { projectId: null, domainId: null })
  return ok({ system: roles.length > 0 ? [{ all: true }] : [], links: { self: request.url } })
}

async function showCatalog(request: Request): Promise<Answer> {
  const { document } = request.token
  if (document.project === undefined) throw forbidden('Only a token that is scoped to a project has a catalog.')
  return ok({ catalog: await readCatalog(request.database, document), links: { self: request.url } })
}
