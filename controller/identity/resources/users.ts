import { z } from 'zod'
import { type Answer, NO_CONTENT } from '../../api/answer.js'
import type { Database } from '../../database/connection.js'
import { execute, maybeOne } from '../../database/query.js'
import { type Fragment, sql } from '../../database/sql.js'
import { inTransaction } from '../../database/transaction.js'
import { notFound } from '../../http/errors.js'
import { sourceOf } from '../../http/trusted-proxies.js'
import { type IdentityCall, type IdentityRoute, route, type Service } from '../dialect.js'
import { saltOf } from '../login/passwords.js'
import { readersAndUser, userAlone } from '../policy.js'
import { unauthenticated } from '../tokens/proof.js'
import { lockRights, revokeTokensOfUsers } from '../tokens/revocation.js'
import { type Collection, collectionRoutes, findRows, presentRow, type Row } from './collection.js'
import * as fields from './fields.js'
import { domainOfToken, mustExist } from './references.js'

const password = z.string().min(1).max(4096)

const create = z.looseObject({
  name: fields.name(255),
  domain_id: fields.id.nullable().optional(),
  default_project_id: fields.id.nullable().optional(),
  password: password.nullable().optional(),
  enabled: fields.enabled.optional(),
  options: fields.options.optional(),
})

const update = create.partial()

const users: Collection<typeof create, typeof update> = {
  singular: 'user',
  plural: 'users',
  table: 'local_user',
  create,
  update,
  filters: { name: 'text', domain_id: 'text', enabled: 'boolean' },
  shown: ['id', 'name', 'domain_id', 'enabled', 'options'],
  hidden: ['default_project_id', 'password_hash'],
  derive: row => ({
    password_expires_at: null,
    ...(row.default_project_id !== null && { default_project_id: row.default_project_id }),
  }),
  allow: { show: readersAndUser },
  carriesRights: true,
  compute: async ({ password }, { logins }, { caller }) => {
    if (password === undefined) return {}
    return { password_hash: password === null ? null : await logins.hash(password, caller.document.user.id) }
  },
  prepare: async ({ trx, call, sent, before }) => {
    const { password: _, domain_id, ...columns } = sent
    if (typeof columns.default_project_id === 'string') {
      await mustExist(trx, 'project', 'project', columns.default_project_id)
    }
    if (before !== null) return columns
    const domainId = domain_id ?? domainOfToken(call.caller.document)
    await mustExist(trx, 'domain', 'domain', domainId)
    return { ...columns, domain_id: domainId }
  },
  updated: async (trx, before, after) => {
    const wasDisabled = before.enabled === true && after.enabled === false
    if (wasDisabled || before.password_hash !== after.password_hash) await revokeTokensOfUsers(trx, [after.id])
  },
}

const passwordChange = z.object({ user: z.object({ password, original_password: z.string().max(4096) }) })

export const userRoutes: readonly IdentityRoute[] = [
  ...collectionRoutes(users),
  route({
    ...{ method: 'POST', path: '/v3/users/:user_id/password', right: userAlone, group: 'users', status: 204 },
    summary: 'Change your own password',
    request: passwordChange,
    handle: changeOwnPassword,
  }),
]

async function changeOwnPassword(
  { database, logins }: Service,
  call: IdentityCall<z.output<typeof passwordChange>>,
): Promise<Answer> {
  const { user } = await call.body()
  const id = call.params.user_id!
  const before = await passwordHashOf(database, id)
  const login = { account: JSON.stringify(['user', id]), source: sourceOf(call.address) }
  const proven = await logins.attempt(login, async verify => {
    const { matches } = await verify(user.original_password, before)
    return matches ? { userId: id } : null
  })
  if (proven === null) throw unauthenticated()
  const password_hash = await logins.hash(user.password, id)
  await inTransaction(database, async trx => {
    await lockRights(trx)
    // A concurrent change would make the original password wrong.
    if (saltOf(await passwordHashOf(trx, id, 'lock')) !== saltOf(before)) throw unauthenticated()
    await execute(trx, sql`UPDATE local_user SET password_hash = ${password_hash} WHERE id = ${id}`)
    await revokeTokensOfUsers(trx, [id])
  })
  return NO_CONTENT
}

/** @throws ApiError 404 */
async function passwordHashOf(database: Database, id: string, lock?: 'lock'): Promise<string | null> {
  const row = await maybeOne(
    database,
    sql<{ password_hash: string | null }>`
      SELECT password_hash FROM local_user WHERE id = ${id} ${lock === undefined ? sql`` : sql`FOR UPDATE`}`,
  )
  if (row === undefined) throw notFound(`Could not find user: ${id}.`)
  return row.password_hash
}

export const presentUser = (call: IdentityCall, row: Row) => presentRow(users, call, row)

/** The users that match a condition. */
export const findUsers = (database: Database, condition: Fragment): Promise<Row[]> =>
  findRows(database, users, condition)
