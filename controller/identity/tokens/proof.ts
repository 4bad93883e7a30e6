import type { Database } from '../../database/connection.js'
import { execute, maybeOne } from '../../database/query.js'
import { type Fragment, sql } from '../../database/sql.js'
import { ApiError } from '../../http/errors.js'
import type { Logins } from '../login/logins.js'
import { saltOf } from '../login/passwords.js'
import type { Identity, ReferenceInDomain } from './auth-request.js'
import type { StoredToken } from './store.js'

/**
 * A successful login by one method. It is verified before the token's transaction, because slow hashes must not hold
 * locks. So each proof carries what must be unchanged when the token is issued.
 */
export type Proof =
  | { method: 'password'; userId: string; passwordSalt: string | undefined }
  | { method: 'application_credential'; userId: string; applicationCredentialId: string }
  | { method: 'token'; userId: string; sha256: Buffer }

/** Always the same text, so that accounts cannot be probed. */
export const unauthenticated = () => new ApiError(401, 'The request you have made requires authentication.')

/** What verifying a login requires. */
type LoginContext = {
  database: Database
  findToken: (token: string) => Promise<StoredToken | null>
  logins: Logins
  source: string
}

/**
 * Verifies every method the client names.
 * @throws ApiError 401 if one fails or they prove different users; FloodError 429 if too many have failed
 */
export async function prove(context: LoginContext, identity: Identity): Promise<Proof[]> {
  const proofs: Proof[] = []
  for (const method of new Set(identity.methods)) {
    const proof = await PROVERS[method](context, identity)
    if (proof === null || proof.userId !== (proofs[0] ?? proof).userId) throw unauthenticated()
    proofs.push(proof)
  }
  return proofs
}

const PROVERS: Record<
  Identity['methods'][number],
  (context: LoginContext, identity: Identity) => Promise<Proof | null>
> = {
  password: async ({ database, logins, source }, { password }) => {
    if (password === undefined) return null
    return logins.attempt({ account: accountName(password.user), source }, async verify => {
      const user = await findUser(database, password.user)
      const { matches, upgraded } = await verify(password.user.password, user?.password_hash)
      if (!matches || user === undefined) return null
      if (upgraded !== null) {
        await execute(
          database,
          sql`UPDATE local_user SET password_hash = ${upgraded}
                 WHERE id = ${user.id} AND password_hash = ${user.password_hash}`,
        )
      }
      return { method: 'password', userId: user.id, passwordSalt: saltOf(user.password_hash) }
    })
  },

  application_credential: async ({ database, logins, source }, { application_credential: requested }) => {
    if (requested === undefined) return null
    const owner = requested.user === undefined ? '' : accountName(requested.user)
    const account = JSON.stringify(requested.id === undefined ? [owner, requested.name] : ['credential', requested.id])
    return logins.attempt({ account, source }, async verify => {
      const user =
        requested.id === undefined && requested.user !== undefined ? await findUser(database, requested.user) : null
      const isRequested =
        requested.id !== undefined
          ? sql`id = ${requested.id}`
          : sql`user_id = ${user?.id ?? ''} AND name = ${requested.name ?? ''}`
      const found = await maybeOne(
        database,
        sql<{ id: string; user_id: string; secret_hash: string }>`
            SELECT id, user_id, secret_hash FROM application_credential WHERE ${isRequested} LIMIT 1`,
      )
      const { matches, upgraded } = await verify(requested.secret, found?.secret_hash)
      if (!matches || found === undefined) return null
      if (upgraded !== null) {
        const upgrade = sql`UPDATE application_credential SET secret_hash = ${upgraded} WHERE id = ${found.id}`
        await execute(database, upgrade)
      }
      return { method: 'application_credential', userId: found.user_id, applicationCredentialId: found.id }
    })
  },

  token: async ({ findToken }, { token }) => {
    if (token === undefined) return null
    const found = await findToken(token.id)
    return found === null ? null : { method: 'token', userId: found.document.user.id, sha256: found.sha256 }
  },
}

/**
 * One text per way to name a user, existing or not. Includes only what the look-up uses: anything else would make
 * another account.
 */
export function accountName({ id, name, domain }: ReferenceInDomain): string {
  if (id !== undefined) return JSON.stringify(['user', id])
  const domainKey = domain?.id === undefined ? { name: domain?.name ?? null } : { id: domain.id }
  return JSON.stringify(['user', domainKey, name])
}

type UserSecret = { id: string; password_hash: string | null }

async function findUser(database: Database, ref: ReferenceInDomain): Promise<UserSecret | undefined> {
  const isNamed = ref.id !== undefined ? sql`u.id = ${ref.id}` : sql`u.name = ${ref.name ?? ''} AND ${inDomain(ref)}`
  return maybeOne(
    database,
    sql<UserSecret>`
      SELECT u.id, u.password_hash FROM local_user u JOIN domain d ON d.id = u.domain_id WHERE ${isNamed} LIMIT 1`,
  )
}

/** The condition on the joined domain `d`. */
export function inDomain({ domain }: ReferenceInDomain): Fragment {
  return domain?.id !== undefined ? sql`d.id = ${domain.id}` : sql`d.name = ${domain?.name ?? ''}`
}
