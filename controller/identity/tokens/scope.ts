import type { Knex } from 'knex'
import type { Named } from '../caller.js'
import { effectiveRoles } from '../resources/roles/effective-roles.js'
import type { DomainReference, ReferenceInDomain, RequestedScope } from './auth-request.js'
import type { TokenUser } from './issue.js'
import { domainColumns, unauthenticated } from './proof.js'

export type Scope =
  | { kind: 'unscoped' }
  | { kind: 'project'; project: Named & { domain: Named } }
  | { kind: 'domain'; domain: Named }
  | { kind: 'system' }

export type GrantedScope = { scope: Scope; roles: Named[] }

/**
 * Finds what a user asked to be scoped to, and its roles there. Without a wish it is the default project when that can be had, else unscoped.
 * @throws ApiError 401 when the scope is unknown or disabled, or the user has no role on it
 */
export async function resolveScope(
  trx: Knex,
  user: TokenUser,
  requested: RequestedScope | undefined,
): Promise<GrantedScope> {
  const granted = await desiredScope(trx, user, requested)
  if (granted === null) throw unauthenticated()
  return granted
}

async function desiredScope(
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

async function projectScope(trx: Knex, user: TokenUser, wanted: ReferenceInDomain): Promise<GrantedScope | null> {
  const row = await trx('project as p')
    .join('domain as d', 'd.id', 'p.domain_id')
    .where({ 'p.enabled': true, 'd.enabled': true })
    .where(wanted.id !== undefined ? { 'p.id': wanted.id } : { 'p.name': wanted.name ?? '', ...domainColumns(wanted) })
    .first('p.id', 'p.name', 'd.id as domain_id', 'd.name as domain_name')
  if (row === undefined) return null
  const project = { id: row.id, name: row.name, domain: { id: row.domain_id, name: row.domain_name } }
  return withRoles(
    { kind: 'project', project },
    await effectiveRoles(trx, user.id, { projectId: row.id, domainId: null }),
  )
}

async function domainScope(trx: Knex, user: TokenUser, wanted: DomainReference): Promise<GrantedScope | null> {
  const domain: Named | undefined = await trx('domain')
    .where({ enabled: true, ...(wanted.id !== undefined ? { id: wanted.id } : { name: wanted.name ?? '' }) })
    .first('id', 'name')
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
