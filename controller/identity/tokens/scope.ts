import type { Knex } from 'knex'
import { maybeOne } from '../../database/query.js'
import { sql } from '../../database/sql.js'
import type { Named } from '../caller.js'
import type { DomainReference, ReferenceInDomain, RequestedScope } from './auth-request.js'
import { effectiveRoles } from './effective-roles.js'
import { inDomain, unauthenticated } from './proof.js'

/** The user a token is for. */
export type TokenUser = Named & { domain: Named; defaultProjectId: string | null }

export type Scope =
  | { kind: 'unscoped' }
  | { kind: 'project'; project: Named & { domain: Named } }
  | { kind: 'domain'; domain: Named }
  | { kind: 'system' }

export type GrantedScope = { scope: Scope; roles: Named[] }

/**
 * Resolves the requested scope and the user's roles on it. Without a request, it is the default project if the user has
 * roles there, else unscoped.
 * @throws ApiError 401 if the scope is unknown or disabled, or the user has no role on it
 */
export async function resolveScope(
  trx: Knex,
  user: TokenUser,
  requested: RequestedScope | undefined,
): Promise<GrantedScope> {
  const granted = await findScope(trx, user, requested)
  if (granted === null) throw unauthenticated()
  return granted
}

async function findScope(
  trx: Knex,
  user: TokenUser,
  requested: RequestedScope | undefined,
): Promise<GrantedScope | null> {
  if (requested?.project !== undefined) return projectScope(trx, user, requested.project)
  if (requested?.domain !== undefined) return domainScope(trx, user, requested.domain)
  if (requested?.system !== undefined) return systemScope(trx, user)
  if (requested?.unscoped !== undefined || user.defaultProjectId === null) return UNSCOPED
  return (await projectScope(trx, user, { id: user.defaultProjectId })) ?? UNSCOPED
}

const UNSCOPED: GrantedScope = { scope: { kind: 'unscoped' }, roles: [] }

async function projectScope(trx: Knex, user: TokenUser, requested: ReferenceInDomain): Promise<GrantedScope | null> {
  const isRequested =
    requested.id !== undefined
      ? sql`p.id = ${requested.id}`
      : sql`p.name = ${requested.name ?? ''} AND ${inDomain(requested)}`
  const row = await maybeOne(
    trx,
    sql<{ id: string; name: string; domain_id: string; domain_name: string }>`
      SELECT p.id, p.name, d.id AS domain_id, d.name AS domain_name
        FROM project p JOIN domain d ON d.id = p.domain_id
       WHERE p.enabled AND d.enabled AND ${isRequested} LIMIT 1`,
  )
  if (row === undefined) return null
  const project = { id: row.id, name: row.name, domain: { id: row.domain_id, name: row.domain_name } }
  return withRoles(
    { kind: 'project', project },
    await effectiveRoles(trx, user.id, { projectId: row.id, domainId: null }),
  )
}

async function domainScope(trx: Knex, user: TokenUser, requested: DomainReference): Promise<GrantedScope | null> {
  const isRequested = requested.id !== undefined ? sql`id = ${requested.id}` : sql`name = ${requested.name ?? ''}`
  const domain = await maybeOne(trx, sql<Named>`SELECT id, name FROM domain WHERE enabled AND ${isRequested} LIMIT 1`)
  if (domain === undefined) return null
  return withRoles(
    { kind: 'domain', domain },
    await effectiveRoles(trx, user.id, { projectId: null, domainId: domain.id }),
  )
}

async function systemScope(trx: Knex, user: TokenUser): Promise<GrantedScope | null> {
  return withRoles({ kind: 'system' }, await effectiveRoles(trx, user.id, { projectId: null, domainId: null }))
}

const withRoles = (scope: Scope, roles: Named[]): GrantedScope | null => (roles.length === 0 ? null : { scope, roles })
