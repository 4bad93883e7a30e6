import type { Knex } from 'knex'
import { type Answer, NO_CONTENT } from '../../../api/answer.js'
import { inTransaction } from '../../../database/transaction.js'
import { notFound } from '../../../http/errors.js'
import { type IdentityCall, type IdentityRoute, listed, listForm, route, type Service } from '../../dialect.js'
import { administrators, type Params, readers } from '../../policy.js'
import { lockRights, revokeTokensOnScope } from '../../tokens/revocation.js'
import type { Row } from '../collection.js'
import { mustExist } from '../references.js'
import { refreshTokens } from './effective-roles.js'
import { presentRole } from './roles.js'

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
        summary: `Withdraw a role ${where}`,
        handle: withdraw,
      }),
    ]
  }),
)

/** The columns of an assignment that the path names, all but the role. */
const placeOf = ({ user_id = null, group_id = null, project_id = null, domain_id = null }: Nullable) => ({
  user_id,
  group_id,
  project_id,
  domain_id,
})

type Nullable = Readonly<Record<string, string | null | undefined>>

async function listGrants({ database }: Service, call: IdentityCall): Promise<Answer> {
  await partiesMustExist(database, call)
  const granted = database('assignment').where(placeOf(call.params)).select('role_id')
  const roles: Row[] = await database('role').whereIn('id', granted).orderBy('id')
  return listed(
    call,
    'roles',
    roles.map(role => presentRole(call, role)),
  )
}

async function grant({ database }: Service, call: IdentityCall): Promise<Answer> {
  const role_id = call.params.role_id!
  await partiesMustExist(database, call)
  await mustExist(database, 'role', 'role', role_id)
  await inTransaction(database, async trx => {
    await lockRights(trx)
    const place = placeOf(call.params)
    await trx('assignment')
      .insert({ ...place, role_id })
      .onConflict()
      .ignore()
    await refreshTokens(trx, { userIds: await usersOf(trx, place) })
  })
  return NO_CONTENT
}

async function checkGrant({ database }: Service, call: IdentityCall): Promise<Answer> {
  const found = await database('assignment')
    .where({ ...placeOf(call.params), role_id: call.params.role_id! })
    .first('role_id')
  if (found === undefined) throw noSuchGrant(call.params)
  return NO_CONTENT
}

async function withdraw({ database }: Service, { params }: IdentityCall): Promise<Answer> {
  await inTransaction(database, async trx => {
    await lockRights(trx)
    const place = placeOf(params)
    const removed = await trx('assignment')
      .where({ ...place, role_id: params.role_id! })
      .delete()
    if (removed === 0) throw noSuchGrant(params)
    const { project_id, domain_id } = place
    await revokeTokensOnScope(trx, await usersOf(trx, place), { project_id, domain_id })
  })
  return NO_CONTENT
}

/** The user, or the users of the group. */
async function usersOf(trx: Knex, { user_id, group_id }: ReturnType<typeof placeOf>): Promise<string[]> {
  return user_id !== null ? [user_id] : trx('group_member').where({ group_id }).pluck('user_id')
}

async function partiesMustExist(database: Knex, { params }: IdentityCall): Promise<void> {
  const { user_id, group_id, project_id, domain_id } = placeOf(params)
  if (user_id !== null) await mustExist(database, 'local_user', 'user', user_id)
  if (group_id !== null) await mustExist(database, 'user_group', 'group', group_id)
  if (project_id !== null) await mustExist(database, 'project', 'project', project_id)
  if (domain_id !== null) await mustExist(database, 'domain', 'domain', domain_id)
}

const noSuchGrant = (params: Params) => notFound(`Could not find role assignment with role: ${params.role_id}.`)
