import * as z from 'zod'
import { type Answer, NO_CONTENT } from '../../api/answer.js'
import { execute, maybeOne } from '../../database/query.js'
import { and, sql } from '../../database/sql.js'
import { inTransaction } from '../../database/transaction.js'
import { notFound } from '../../http/errors.js'
import { type IdentityCall, type IdentityRoute, listAnswer, listForm, route, type Service } from '../dialect.js'
import { administrators, type Params, readers, readersAndUser } from '../policy.js'
import { membersOf, refreshTokens } from '../tokens/effective-roles.js'
import { lockRights, revokeTokensOfUsers } from '../tokens/revocation.js'
import { type Collection, collectionRoutes, findRow, findRows, presentRow } from './collection.js'
import * as fields from './fields.js'
import { filterConditions } from './filters.js'
import { domainOfToken, mustExist } from './references.js'
import { findUsers, presentUser, userFilters } from './users.js'

const create = z.looseObject({
  name: fields.name(64),
  domain_id: fields.id.nullable().optional(),
  description: fields.description
    .nullable()
    .transform(text => text ?? '')
    .optional(),
})

const update = create.partial()

const groups: Collection<typeof create, typeof update> = {
  singular: 'group',
  plural: 'groups',
  table: 'user_group',
  create,
  update,
  filters: { name: 'text', domain_id: 'text' },
  shown: ['id', 'name', 'domain_id', 'description'],
  carriesRights: true,
  prepare: async ({ trx, call, sent, before }) => {
    const { domain_id, ...columns } = sent
    if (before !== null) return columns
    const domainId = domain_id ?? domainOfToken(call.caller.document)
    await mustExist(trx, 'domain', 'domain', domainId)
    return { ...columns, domain_id: domainId }
  },
  deleting: async (trx, group) => {
    await revokeTokensOfUsers(trx, await membersOf(trx, group.id))
  },
}

const members = '/v3/groups/:group_id/users'
const membership = `${members}/:user_id`

export const groupRoutes: readonly IdentityRoute[] = [
  ...collectionRoutes(groups),
  route({
    ...{ method: 'GET', path: members, right: readers, group: 'groups', status: 200 },
    summary: 'List the members of a group',
    answer: listForm('users'),
    handle: listMembers,
  }),
  route({
    ...{ method: 'PUT', path: membership, right: administrators, group: 'groups', status: 204 },
    summary: 'Add a user to a group',
    handle: addMember,
  }),
  route({
    ...{ method: 'GET', path: membership, right: readers, group: 'groups', status: 204 },
    summary: 'Check whether a user is in a group',
    handle: checkMember,
  }),
  route({
    ...{ method: 'DELETE', path: membership, right: administrators, group: 'groups', status: 204 },
    summary: 'Remove a user from a group',
    handle: removeMember,
  }),
  route({
    ...{ method: 'GET', path: '/v3/users/:user_id/groups', right: readersAndUser, group: 'users', status: 200 },
    summary: 'List the groups of a user',
    answer: listForm('groups'),
    handle: listGroupsOfUser,
  }),
]

async function listMembers({ database }: Service, call: IdentityCall): Promise<Answer> {
  const group = await findRow(database, groups, call.params.group_id!)
  const isMember = sql`id IN (SELECT user_id FROM group_member WHERE group_id = ${group.id})`
  const rows = await findUsers(database, and([isMember, ...filterConditions(userFilters, call)]))
  return listAnswer(
    call,
    'users',
    rows.map(row => presentUser(call, row)),
  )
}

async function listGroupsOfUser({ database }: Service, call: IdentityCall): Promise<Answer> {
  const user = call.params.user_id!
  await mustExist(database, 'local_user', 'user', user)
  const hasUser = sql`id IN (SELECT group_id FROM group_member WHERE user_id = ${user})`
  const rows = await findRows(database, groups, and([hasUser, ...filterConditions({ name: 'text' }, call)]))
  return listAnswer(
    call,
    'groups',
    // Memberships do not expire.
    rows.map(row => ({ ...presentRow(groups, call, row), membership_expires_at: null })),
  )
}

async function addMember({ database }: Service, { params }: IdentityCall): Promise<Answer> {
  const group = await findRow(database, groups, params.group_id!)
  const user = params.user_id!
  await mustExist(database, 'local_user', 'user', user)
  await inTransaction(database, async trx => {
    await lockRights(trx)
    await execute(
      trx,
      sql`INSERT INTO group_member (group_id, user_id) VALUES (${group.id}, ${user}) ON CONFLICT DO NOTHING`,
    )
    await refreshTokens(trx, { userIds: [user] })
  })
  return NO_CONTENT
}

async function checkMember({ database }: Service, { params }: IdentityCall): Promise<Answer> {
  const member = await maybeOne(database, sql`SELECT user_id FROM group_member WHERE ${isMember(params)}`)
  if (member === undefined) throw notAMember(params.user_id!)
  return NO_CONTENT
}

async function removeMember({ database }: Service, { params }: IdentityCall): Promise<Answer> {
  await inTransaction(database, async trx => {
    await lockRights(trx)
    const removed = await execute(trx, sql`DELETE FROM group_member WHERE ${isMember(params)}`)
    if (removed === 0) throw notAMember(params.user_id!)
    await revokeTokensOfUsers(trx, [params.user_id!])
  })
  return NO_CONTENT
}

const isMember = (params: Params) => sql`group_id = ${params.group_id!} AND user_id = ${params.user_id!}`

const notAMember = (userId: string) => notFound(`Could not find user ${userId} in the group.`)
