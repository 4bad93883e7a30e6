import { randomBytes } from 'node:crypto'
import type { Knex } from 'knex'
import type { Database } from '../../database/connection.js'
import { maybeOne } from '../../database/query.js'
import { sql } from '../../database/sql.js'
import { inTransaction } from '../../database/transaction.js'
import type { Named } from '../caller.js'
import { saltOf } from '../login/passwords.js'
import type { RequestedScope } from './auth-request.js'
import { isoTime, type TokenDocument } from './document.js'
import { applicationCredentialRoles } from './effective-roles.js'
import { type Proof, unauthenticated } from './proof.js'
import { lockRightsShared } from './revocation.js'
import { resolveScope, type Scope, type TokenUser } from './scope.js'
import { findToken, newToken, type StoredToken, storeToken, tokenHash } from './store.js'

export type TokenLimits = {
  /** Seconds. */
  token_expiration: number
  max_tokens_per_user: number
}

export type IssuedToken = { token: string; document: TokenDocument }

/**
 * Issues a token for the proven user, on the requested scope.
 * @param limits a rescoped token keeps its parent's expiry, and no token outlives its application credential
 * @throws ApiError 401 if the user, its rights or the proof are gone, or it has no role on the scope
 */
export async function issueToken(
  database: Database,
  proofs: readonly Proof[],
  requested: RequestedScope | undefined,
  limits: TokenLimits,
): Promise<IssuedToken> {
  return inTransaction(database, async trx => {
    await lockRightsShared(trx)
    const user = await readUser(trx, proofs)
    const parent = await readParent(trx, proofs)
    const credential = await readApplicationCredential(trx, proofs, parent)
    if (credential !== null && requested !== undefined) throw unauthenticated()
    const granted =
      credential === null
        ? await resolveScope(trx, user, requested)
        : await resolveScope(trx, user, { project: { id: credential.project_id } })
    const roles = credential === null ? granted.roles : await restrictRoles(trx, credential.id, granted.roles)

    const now = new Date()
    const end = parent?.expiresAt.getTime() ?? now.getTime() + limits.token_expiration * 1000
    const expiresAt = new Date(Math.min(end, credential?.expires_at?.getTime() ?? end))
    const methods = [...(parent?.document.methods ?? []), ...proofs.map(proof => proof.method)]
    const document: TokenDocument = {
      methods: [...new Set(methods)],
      user: { id: user.id, name: user.name, domain: user.domain, password_expires_at: null },
      audit_ids: [newAuditId(), ...(parent?.document.audit_ids.slice(0, 1) ?? [])],
      issued_at: isoTime(now),
      expires_at: isoTime(expiresAt),
      ...scopeMembers(granted.scope, roles),
      ...(credential !== null && {
        application_credential: { id: credential.id, name: credential.name, restricted: !credential.unrestricted },
        ...(credential.access_rules !== null && { access_rules: credential.access_rules }),
      }),
    }
    const token = newToken()
    await storeToken(trx, { sha256: tokenHash(token), document, expiresAt }, limits.max_tokens_per_user)
    return { token, document }
  })
}

type UserRow = {
  id: string
  name: string
  default_project_id: string | null
  password_hash: string | null
  domain_id: string
  domain_name: string
}

/** The user. @throws ApiError 401 unless it and its domain are enabled and its password is still the proven one */
async function readUser(trx: Knex, proofs: readonly Proof[]): Promise<TokenUser> {
  const row = await maybeOne(
    trx,
    sql<UserRow>`
      SELECT u.id, u.name, u.default_project_id, u.password_hash, d.id AS domain_id, d.name AS domain_name
        FROM local_user u JOIN domain d ON d.id = u.domain_id
       WHERE u.id = ${proofs[0]?.userId ?? ''} AND u.enabled AND d.enabled`,
  )
  if (row === undefined) throw unauthenticated()
  for (const proof of proofs) {
    if (proof.method === 'password' && proof.passwordSalt !== saltOf(row.password_hash)) throw unauthenticated()
  }
  return {
    id: row.id,
    name: row.name,
    domain: { id: row.domain_id, name: row.domain_name },
    defaultProjectId: row.default_project_id,
  }
}

async function readParent(trx: Knex, proofs: readonly Proof[]): Promise<StoredToken | null> {
  const proof = proofs.find(proof => proof.method === 'token')
  if (proof === undefined) return null
  const parent = await findToken(trx, proof.sha256)
  if (parent === null) throw unauthenticated()
  return parent
}

type ApplicationCredential = {
  id: string
  name: string
  project_id: string
  unrestricted: boolean
  expires_at: Date | null
  access_rules: TokenDocument['access_rules'] | null
}

/** The application credential that limits the new token: the proven one, or that of the rescoped token. */
async function readApplicationCredential(
  trx: Knex,
  proofs: readonly Proof[],
  parent: StoredToken | null,
): Promise<ApplicationCredential | null> {
  const proof = proofs.find(proof => proof.method === 'application_credential')
  const id = proof?.applicationCredentialId ?? parent?.document.application_credential?.id
  if (id === undefined) return null
  const row = await maybeOne(
    trx,
    sql<ApplicationCredential>`
      SELECT id, name, project_id, unrestricted, expires_at, access_rules FROM application_credential
       WHERE id = ${id} AND (expires_at IS NULL OR expires_at > now())`,
  )
  if (row === undefined) throw unauthenticated()
  return row
}

/** The application credential's roles, without those its user no longer has. @throws ApiError 401 if none is left */
async function restrictRoles(trx: Knex, credentialId: string, held: readonly Named[]): Promise<Named[]> {
  const heldIds = new Set(held.map(role => role.id))
  const roles = (await applicationCredentialRoles(trx, credentialId)).filter(role => heldIds.has(role.id))
  if (roles.length === 0) throw unauthenticated()
  return roles
}

function scopeMembers(scope: Scope, roles: Named[]): Partial<TokenDocument> {
  switch (scope.kind) {
    case 'unscoped':
      return {}
    case 'project':
      return { project: scope.project, is_domain: false, roles }
    case 'domain':
      return { domain: scope.domain, roles }
    case 'system':
      return { system: { all: true }, roles }
  }
}

const newAuditId = (): string => randomBytes(16).toString('base64url')
