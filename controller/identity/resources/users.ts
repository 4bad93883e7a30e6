import * as z from 'zod'
import { type Answer, NO_CONTENT } from '../../api/answer.js'
import type { Call } from '../../api/call.js'
import type { OpenRoute } from '../../api/route.js'
import type { Database } from '../../database/connection.js'
import { execute, maybeOne } from '../../database/query.js'
import { type Fragment, sql } from '../../database/sql.js'
import { inTransaction } from '../../database/transaction.js'
import { badRequest } from '../../http/errors.js'
import { sourceOf } from '../../http/trusted-proxies.js'
import { type IdentityCall, type IdentityRoute, openRoute, type Service } from '../dialect.js'
import { requireStorable } from '../json.js'
import { saltOf } from '../login/passwords.js'
import { readersAndUser } from '../policy.js'
import { accountName, unauthenticated } from '../tokens/proof.js'
import { lockRights, revokeTokensOfUsers } from '../tokens/revocation.js'
import { type Collection, collectionRoutes, findRows, presentRow, type Row } from './collection.js'
import * as fields from './fields.js'
import type { Filters } from './filters.js'
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

export const userFilters: Filters = {
  name: 'text',
  domain_id: 'text',
  enabled: 'boolean',
  // Passwords do not expire.
  password_expires_at: value => {
    if (!/^((lte?|gte?|n?eq):)?\d{4}-\d\d-\d\d[T ]\d\d:\d\d/.test(value))
      throw badRequest('password_expires_at must be a time, such as lt:2030-01-31T00:00:00Z.')
    return sql`false`
  },
}

const users: Collection<typeof create, typeof update> = {
  singular: 'user',
  plural: 'users',
  table: 'local_user',
  create,
  update,
  filters: userFilters,
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

export const userRoutes: readonly (IdentityRoute | OpenRoute<Service>)[] = [
  ...collectionRoutes(users),
  openRoute({
    ...{ method: 'POST', path: '/v3/users/:user_id/password', group: 'users', status: 204 },
    summary: 'Change a password; needs no token, but the original password',
    request: passwordChange,
    handle: changePassword,
  }),
]

/** The original password is the proof, as in a login, and the same lock-out limits guesses. */
async function changePassword(
  { database, logins, turns }: Service,
  call: Call<null, z.output<typeof passwordChange>>,
): Promise<Answer> {
  const id = call.params.user_id!
  requireStorable([id], 'path')
  const source = sourceOf(call.address)
  const { user } = await turns.take([`source ${source}`, String(call.port)], () => call.body())
  const before = await passwordHashOf(database, id)
  const proven = await logins.attempt({ account: accountName({ id }), source }, async verify => {
    const { matches } = await verify(user.original_password, before)
    return matches && before !== undefined ? { userId: id } : null
  })
  if (proven === null) throw unauthenticated()
  const password_hash = await logins.hash(user.password, id)
  await turns.take([`user ${id}`, ''], () =>
    inTransaction(database, async trx => {
      await lockRights(trx)
      // A concurrent change would make the original password wrong.
      if (saltOf(await passwordHashOf(trx, id, 'lock')) !== saltOf(before)) throw unauthenticated()
      await execute(trx, sql`UPDATE local_user SET password_hash = ${password_hash} WHERE id = ${id}`)
      await revokeTokensOfUsers(trx, [id])
    }),
  )
  return NO_CONTENT
}

/** Null if the user has no password; undefined unless it and its domain exist and are enabled. */
async function passwordHashOf(database: Database, id: string, lock?: 'lock'): Promise<string | null | undefined> {
  const row = await maybeOne(
    database,
    sql<{ password_hash: string | null }>`
      SELECT u.password_hash FROM local_user u JOIN domain d ON d.id = u.domain_id
       WHERE u.id = ${id} AND u.enabled AND d.enabled ${lock === undefined ? sql`` : sql`FOR UPDATE OF u`}`,
  )
  return row?.password_hash
}

export const presentUser = (call: IdentityCall, row: Row) => presentRow(users, call, row)

/** The users that match a condition. */
export const findUsers = (database: Database, condition: Fragment): Promise<Row[]> =>
  findRows(database, users, condition)
