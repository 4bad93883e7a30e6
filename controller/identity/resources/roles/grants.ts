import type { Knex } from 'knex'
import { inTransaction } from '../../../database/transaction.js'
import { notFound } from '../../../http/errors.js'
import { administrators, type Params, readers } from '../../policy.js'
import { type Answer, listed, noContent, type Request, type Route } from '../../request.js'
import { lockRights, revokeTokensOnScope } from '../../tokens/revocation.js'
import type { Row } from '../collection.js'
import { mustExist } from '../references.js'
import { refreshTokens } from './effective-roles.js'
import { presentRole } from './roles.js'

const TARGETS = ['/projects/:project_id', '/domains/:domain_id', '/system'] as const
const ACTORS = ['users/:user_id', 'groups/:group_id'] as const

/** Roles of a user or group on a project, a domain or the system: the same four operations for each pair. */
export const grantRoutes: readonly Route[] = TARGETS.flatMap(target =>
  ACTORS.flatMap((actor): Route[] => {
    const all = `${target}/${actor}/roles`
    const one = `${all}/:role_id`
    return [
      { method: 'GET', path: all, allow: readers, answer: listGrants },
      { method: 'PUT', path: one, allow: administrators, answer: grant },
      { method: 'GET', path: one, allow: readers, answer: checkGrant },
      { method: 'DELETE', path: one, allow: administrators, answer: withdraw },
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

async function listGrants(request: Request): Promise<Answer> {
  await partiesMustExist(request)
  const granted = request.database('assignment').where(placeOf(request.params)).select('role_id')
  const roles: Row[] = await request.database('role').whereIn('id', granted).orderBy('id')
  return listed(
    request,
    'roles',
    roles.map(role => presentRole(request, role)),
  )
}

async function grant(request: Request): Promise<Answer> {
  const role_id = request.params.role_id!
  await partiesMustExist(request)
  await mustExist(request.database, 'role', 'role', role_id)
  await inTransaction(request.database, async trx => {
    await lockRights(trx)
    const place = placeOf(request.params)
    await trx('assignment')
      .insert({ ...place, role_id })
      .onConflict()
      .ignore()
    await refreshTokens(trx, { userIds: await usersOf(trx, place) })
  })
  return noContent
}

async function checkGrant(request: Request): Promise<Answer> {
  const found = await request
    .database('assignment')
    .where({ ...placeOf(request.params), role_id: request.params.role_id! })
    .first('role_id')
  if (found === undefined) throw noSuchGrant(request.params)
  return noContent
}

async function withdraw({ database, params }: Request): Promise<Answer> {
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
  return noContent
}

/** The user, or the users of the group. */
async function usersOf(trx: Knex, { user_id, group_id }: ReturnType<typeof placeOf>): Promise<string[]> {
  return user_id !== null ? [user_id] : trx('group_member').where({ group_id }).pluck('user_id')
}

async function partiesMustExist({ database, params }: Request): Promise<void> {
  const { user_id, group_id, project_id, domain_id } = placeOf(params)
  if (user_id !== null) await mustExist(database, 'local_user', 'user', user_id)
  if (group_id !== null) await mustExist(database, 'user_group', 'group', group_id)
  if (project_id !== null) await mustExist(database, 'project', 'project', project_id)
  if (domain_id !== null) await mustExist(database, 'domain', 'domain', domain_id)
}

const noSuchGrant = (params: Params) => notFound(`Could not find role assignment with role: ${params.role_id}.`)
