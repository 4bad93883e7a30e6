import type { Knex } from 'knex'
import { type Answer, NO_CONTENT } from '../../../api/answer.js'
import { execute, maybeOne } from '../../../database/query.js'
import { and, identifier, insertion, sql } from '../../../database/sql.js'
import { inTransaction } from '../../../database/transaction.js'
import { badRequest, forbidden, notFound } from '../../../http/errors.js'
import { type IdentityCall, type IdentityRoute, listAnswer, listForm, route, type Service } from '../../dialect.js'
import { administrators, type Params, readers } from '../../policy.js'
import { membersOf, refreshTokens } from '../../tokens/effective-roles.js'
import { lockRights, revokeTokensOnScope } from '../../tokens/revocation.js'
import { findRow, findRows, type Row } from '../collection.js'
import { mustExist } from '../references.js'
import { presentRole, roles } from './roles.js'

const TARGETS = ['/projects/:project_id', '/domains/:domain_id', '/system'] as const
const ACTORS = ['users/:user_id', 'groups/:group_id'] as const

const ON = { '/projects/:project_id': 'a project', '/domains/:domain_id': 'a domain', '/system': 'the system' } as const

/** Roles of a user or group on a project, a domain or the system: the same four operations for each pair. */
export const grantRoutes: readonly IdentityRoute[] = TARGETS.flatMap(target =>
  ACTORS.flatMap((actor): IdentityRoute[] => {
    const all = `/v3${target}/${actor}/roles`
    const one = `${all}/:role_id`
    const where = `of a ${actor.startsWith('users') ? 'user' : 'group'} on ${ON[target]}`
    return [
      route({
        ...{ method: 'GET', path: all, right: readers, group: 'role_assignments', status: 200 },
        summary: `List the roles ${where}`,
        answer: listForm('roles'),
        handle: listGrants,
      }),
      route({
        ...{ method: 'PUT', path: one, right: administrators, group: 'role_assignments', status: 204 },
        summary: `Assign a role ${where}`,
        handle: grant,
      }),
      route({
        ...{ method: 'GET', path: one, right: readers, group: 'role_assignments', status: 204 },
        summary: `Check a role ${where}`,
        handle: checkGrant,
      }),
      route({
        ...{ method: 'DELETE', path: one, right: administrators, group: 'role_assignments', status: 204 },
        summary: `Remove a role ${where}`,
        handle: removeGrant,
      }),
    ]
  }),
)

/** The columns of the role assignment in the path, without the role. */
const columnsOf = ({ user_id = null, group_id = null, project_id = null, domain_id = null }: Nullable) => ({
  user_id,
  group_id,
  project_id,
  domain_id,
})

type Nullable = Readonly<Record<string, string | null | undefined>>

/** Matches role assignments with exactly these columns. */
const hasColumns = (columns: Readonly<Record<string, string | null>>) =>
  and(
    Object.entries(columns).map(([name, value]) =>
      value === null ? sql`${identifier(name)} IS NULL` : sql`${identifier(name)} = ${value}`,
    ),
  )

async function listGrants({ database }: Service, call: IdentityCall): Promise<Answer> {
  await partiesMustExist(database, call)
  const granted = sql`SELECT role_id FROM assignment WHERE ${hasColumns(columnsOf(call.params))}`
  const rows = await findRows(database, roles, sql`id IN (${granted})`)
  return listAnswer(
    call,
    'roles',
    rows.map(role => presentRole(call, role)),
  )
}

async function grant({ database }: Service, call: IdentityCall): Promise<Answer> {
  const role_id = call.params.role_id!
  await partiesMustExist(database, call)
  await requireAssignable(database, await findRow(database, roles, role_id), call.params)
  await inTransaction(database, async trx => {
    await lockRights(trx)
    const columns = columnsOf(call.params)
    await execute(trx, sql`INSERT INTO assignment ${insertion([{ ...columns, role_id }])} ON CONFLICT DO NOTHING`)
    await refreshTokens(trx, { userIds: await usersOf(trx, columns) })
  })
  return NO_CONTENT
}

async function checkGrant({ database }: Service, call: IdentityCall): Promise<Answer> {
  const columns = { ...columnsOf(call.params), role_id: call.params.role_id! }
  const found = await maybeOne(database, sql`SELECT role_id FROM assignment WHERE ${hasColumns(columns)}`)
  if (found === undefined) throw grantNotFound(call.params)
  return NO_CONTENT
}

async function removeGrant({ database }: Service, { params }: IdentityCall): Promise<Answer> {
  await inTransaction(database, async trx => {
    await lockRights(trx)
    const columns = columnsOf(params)
    const grant = hasColumns({ ...columns, role_id: params.role_id! })
    const removed = await execute(trx, sql`DELETE FROM assignment WHERE ${grant}`)
    if (removed === 0) throw grantNotFound(params)
    const { project_id, domain_id } = columns
    await revokeTokensOnScope(trx, await usersOf(trx, columns), { project_id, domain_id })
  })
  return NO_CONTENT
}

/** A role of a domain can be assigned on the domain's projects and on domains. @throws ApiError 400, 403 */
async function requireAssignable(database: Knex, { id, domain_id: domain }: Row, params: Params): Promise<void> {
  if (domain === null) return
  const { project_id, domain_id } = params
  if (project_id === undefined && domain_id === undefined) {
    throw badRequest(
      `Role ${id} is a domain-specific role. Unable to use a domain-specific role in a system assignment.`,
    )
  }
  if (project_id === undefined) return
  const project = await maybeOne(
    database,
    sql<{ domain_id: string }>`SELECT domain_id FROM project WHERE id = ${project_id}`,
  )
  if (project?.domain_id !== domain)
    throw forbidden(`Project ${project_id} must be in the same domain as the role ${id} being assigned.`)
}

/** The user, or the users of the group. */
async function usersOf(trx: Knex, { user_id, group_id }: ReturnType<typeof columnsOf>): Promise<string[]> {
  return user_id !== null ? [user_id] : membersOf(trx, group_id ?? '')
}

async function partiesMustExist(database: Knex, { params }: IdentityCall): Promise<void> {
  const { user_id, group_id, project_id, domain_id } = columnsOf(params)
  if (user_id !== null) await mustExist(database, 'local_user', 'user', user_id)
  if (group_id !== null) await mustExist(database, 'user_group', 'group', group_id)
  if (project_id !== null) await mustExist(database, 'project', 'project', project_id)
  if (domain_id !== null) await mustExist(database, 'domain', 'domain', domain_id)
}

const grantNotFound = (params: Params) => notFound(`Could not find role assignment with role: ${params.role_id}.`)
