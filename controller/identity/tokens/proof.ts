import type { Database } from '../../database/connection.js'
import { ApiError } from '../../http/errors.js'
import { verifyPassword } from '../passwords.js'
import type { Identity, ReferenceInDomain } from './auth-request.js'
import { findToken, tokenHash } from './store.js'

/**
 * What a client has shown to be true. It is shown before the token's transaction, because slow hashes must not hold locks; so each proof
 * carries what must still be the same when the token is made.
 */
export type Proof =
  | { method: 'password'; userId: string; passwordHash: string }
  | { method: 'application_credential'; userId: string; applicationCredentialId: string }
  | { method: 'token'; userId: string; sha256: Buffer }

/** Always the same words, so that accounts cannot be probed. */
export const unauthenticated = () => new ApiError(401, 'The request you have made requires authentication.')

/**
 * Checks every method that the client names.
 * @throws ApiError 401 when one fails, or when they do not all show the same user
 */
export async function prove(database: Database, identity: Identity): Promise<Proof[]> {
  const proofs: Proof[] = []
  for (const method of new Set(identity.methods)) {
    const proof = await PROVERS[method](database, identity)
    if (proof === null || proof.userId !== (proofs[0] ?? proof).userId) throw unauthenticated()
    proofs.push(proof)
  }
  return proofs
}

const PROVERS: Record<Identity['methods'][number], (database: Database, identity: Identity) => Promise<Proof | null>> =
  {
    password: async (database, { password }) => {
      if (password === undefined) return null
      const user = await findUser(database, password.user)
      if (!(await verifyPassword(password.user.password, user?.password_hash))) return null
      return { method: 'password', userId: user!.id, passwordHash: user!.password_hash! }
    },

    application_credential: async (database, { application_credential: wanted }) => {
      if (wanted === undefined) return null
      const user = wanted.id === undefined && wanted.user !== undefined ? await findUser(database, wanted.user) : null
      const by = wanted.id !== undefined ? { id: wanted.id } : { user_id: user?.id ?? '', name: wanted.name ?? '' }
      const found: { id: string; user_id: string; secret_hash: string } | undefined = await database(
        'application_credential',
      )
        .where(by)
        .first('id', 'user_id', 'secret_hash')
      if (!(await verifyPassword(wanted.secret, found?.secret_hash))) return null
      return { method: 'application_credential', userId: found!.user_id, applicationCredentialId: found!.id }
    },

    token: async (database, { token }) => {
      if (token === undefined) return null
      const sha256 = tokenHash(token.id)
      const found = await findToken(database, sha256)
      return found === null ? null : { method: 'token', userId: found.document.user.id, sha256 }
    },
  }

type UserSecret = { id: string; password_hash: string | null }

async function findUser(database: Database, ref: ReferenceInDomain): Promise<UserSecret | undefined> {
  const users = database('local_user as u').join('domain as d', 'd.id', 'u.domain_id')
  if (ref.id !== undefined) users.where('u.id', ref.id)
  else users.where('u.name', ref.name ?? '').where(domainColumns(ref))
  return users.first('u.id', 'u.password_hash')
}

/** The condition on a joined domain `d`. */
export function domainColumns({ domain }: ReferenceInDomain): Record<string, string> {
  return domain?.id !== undefined ? { 'd.id': domain.id } : { 'd.name': domain?.name ?? '' }
}
