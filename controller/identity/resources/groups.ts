import { z } from 'zod'
import { inTransaction } from '../../database/transaction.js'
import { notFound } from '../../http/errors.js'
import { administrators, readers, readersAndUser } from '../policy.js'
import { type Answer, listed, noContent, type Request, type Route } from '../request.js'
import { lockRights, revokeTokensOfUsers } from '../tokens/revocation.js'
import { type Collection, collectionRoutes, findRow, presentRow, type Row } from './collection.js'
import * as fields from './fields.js'
import { domainOfToken, mustExist } from './references.js'
import { refreshTokens } from './roles/effective-roles.js'
import { presentUser } from './users.js'

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
  prepare: async ({ trx, request, sent, before }) => {
    const { domain_id, ...columns } = sent
    if (before !== null) return columns
    const domainId = domain_id ?? domainOfToken(request.token.document)
    await mustExist(trx, 'domain', 'domain', domainId)
    return { ...columns, domain_id: domainId }
  },
  deleting: async (trx, group) => {
    const members: string[] = await trx('group_member').where({ group_id: group.id }).pluck('user_id')
    await revokeTokensOfUsers(trx, members)
  },
}

const membership = '/groups/:group_id/users/:user_id'

export const groupRoutes: readonly Route[] = [
  ...collectionRoutes(groups),
  { method: 'GET', path: '/groups/:group_id/users', allow: readers, answer: listMembers },
  { method: 'PUT', path: membership, allow: administrators, answer: addMember },
  { method: 'GET', path: membership, allow: readers, answer: checkMember },
  { method: 'DELETE', path: membership, allow: administrators, answer: removeMember },
  { method: 'GET', path: '/users/:user_id/groups', allow: readersAndUser, answer: listGroupsOfUser },
]

async function listMembers(request: Request): Promise<Answer> {
  const group = await findRow(request.database, groups, request.params.group_id!)
  const rows: Row[] = await request
    .database('local_user')
    .whereIn('id', request.database('group_member').where({ group_id: group.id }).select('user_id'))
    .orderBy('id')
  return listed(
    request,
    'users',
    rows.map(row => presentUser(request, row)),
  )
}

async function listGroupsOfUser(request: Request): Promise<Answer> {
  await mustExist(request.database, 'local_user', 'user', request.params.user_id!)
  const rows: Row[] = await request
    .database('user_group')
    .whereIn('id', request.database('group_member').where({ user_id: request.params.user_id! }).select('group_id'))
    .orderBy('id')
  return listed(
    request,
    'groups',
    rows.map(row => presentRow(groups, request, row)),
  )
}

async function addMember({ database, params }: Request): Promise<Answer> {
  const group = await findRow(database, groups, params.group_id!)
  await mustExist(database, 'local_user', 'user', params.user_id!)
  await inTransaction(database, async trx => {
    await lockRights(trx)
    await trx('group_member').insert({ group_id: group.id, user_id: params.user_id! }).onConflict().ignore()
    await refreshTokens(trx, { userIds: [params.user_id!] })
  })
  return noContent
}

async function checkMember({ database, params }: Request): Promise<Answer> {
  const member = await database('group_member')
    .where({ group_id: params.group_id!, user_id: params.user_id! })
    .first('user_id')
  if (member === undefined) throw notAMember(params.user_id!)
  return noContent
}

async function removeMember({ database, params }: Request): Promise<Answer> {
  await inTransaction(database, async trx => {
    await lockRights(trx)
    const removed = await trx('group_member').where({ group_id: params.group_id!, user_id: params.user_id! }).delete()
    if (removed === 0) throw notAMember(params.user_id!)
    await revokeTokensOfUsers(trx, [params.user_id!])
  })
  return noContent
}

const notAMember = (userId: string) => notFound(`Could not find user ${userId} in the group.`)
