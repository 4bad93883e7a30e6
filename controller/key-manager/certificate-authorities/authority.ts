import type { Knex } from 'knex'
import { sqlState } from '../../database/transaction.js'
import { badRequest } from '../../http/errors.js'
import { certificatesIn, pemOf } from '../../x509/encoding/pem.js'
import { writeCertificateBag } from '../../x509/pkcs7.js'
import { type Actor, auditInsert } from '../audit/record.js'
import type { Sealed } from '../crypto/keyring.js'
import { underActiveKey } from '../crypto/under-active-key.js'
import { quotaReached } from '../faults.js'
import type { Service } from '../routes.js'
import type { NewAuthority } from './ca-backend.js'

/** SQL: a CA (alias a) whose certificate is still valid; others are as if they did not exist. */
export const LIVE_AUTHORITY = '(a.expiration IS NULL OR a.expiration > now())'

/** What a CA's sealed key is bound to. */
export const authorityKeyContext = (id: string): string => `certificate authority ${id}`

/**
 * Stores a CA with the record of what its parent has signed for it, and its audit record, in one statement; a CA that its back end already
 * knows stays as it is.
 * @throws ApiError 403 when the project's quota of CAs is reached, 400 when the parent was deleted meanwhile
 */
export async function storeAuthority(service: Service, authority: NewAuthority, actor: Actor): Promise<void> {
  const { keyring } = service
  // Keys of the service itself are under a project without a name.
  const owner = authority.projectId ?? ''
  const outcome = await underActiveKey(keyring, owner, async () => {
    const der = authority.key?.export({ format: 'der', type: 'pkcs8' })
    const sealed = der === undefined ? null : await keyring.seal(owner, der, authorityKeyContext(authority.id))
    return insertAuthority(service, authority, sealed, actor)
  })
  if (outcome === 'quota') throw quotaReached('cas')
  if (outcome === 'no parent') throw badRequest('The parent CA does not exist.')
}

async function insertAuthority(
  { database, config }: Service,
  authority: NewAuthority,
  sealed: Sealed | null,
  actor: Actor,
): Promise<'stored' | 'quota' | 'no parent' | 'key replaced'> {
  const { id, projectId, parentId, chain, subjectDn } = authority
  const audit = auditInsert(
    actor,
    {
      action: 'ca.create',
      outcome: 'success',
      targetType: 'ca',
      targetId: id,
      detail: { subject_dn: subjectDn, parent: parentId },
    },
    'made',
  )
  const key = sealed?.projectKeyId ?? null
  const insert = database.raw(
    `WITH allowed AS MATERIALIZED (
       SELECT ?::text IS NULL OR quota_allows(?::text, 'cas', ?) AS fits,
              ?::uuid IS NULL OR EXISTS (SELECT 1 FROM project_key WHERE id = ?::uuid AND active) AS key_stands),
     made AS (
       INSERT INTO certificate_authority (id, project_id, creator_id, parent_id, plugin_name, plugin_ca_id, name, description,
              subject_dn, certificate, serial, chain, pkcs7, project_key_id, sealed_key, expiration, created_at, updated_at)
       SELECT ?::uuid, ?, ?, ?::uuid, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?::uuid, ?::bytea, ?::timestamptz, now(), now()
         FROM allowed WHERE fits AND key_stands
       ON CONFLICT (plugin_name, plugin_ca_id) DO NOTHING RETURNING id, parent_id),
     certified AS (
       INSERT INTO issued_certificate (ca_id, serial, subject_dn, not_after)
       SELECT parent_id, ?, ?, ?::timestamptz FROM made WHERE parent_id IS NOT NULL),
     logged AS (${audit.sql})
     SELECT fits, key_stands AS "keyStands" FROM allowed`,
    [
      ...[projectId, projectId, config.quota.cas, key, key],
      ...[id, projectId, authority.creatorId, parentId, authority.pluginName, authority.pluginCaId],
      ...[authority.name, authority.description, subjectDn],
      ...[authority.certificate, authority.serial, chain, pkcs7Of(chain)],
      ...[key, sealed?.ciphertext ?? null, authority.expiration],
      ...[authority.serial, subjectDn, authority.expiration],
      ...audit.bindings,
    ] as Knex.RawBinding[],
  )
  const outcome = await insert.catch(error => {
    if (sqlState(error) === FOREIGN_KEY_VIOLATION) return null
    throw error
  })
  if (outcome === null) return 'no parent'
  const [allowed] = outcome.rows as { fits: boolean; keyStands: boolean }[]
  if (allowed?.fits !== true) return 'quota'
  return allowed.keyStands ? 'stored' : 'key replaced'
}

const FOREIGN_KEY_VIOLATION = '23503'

const pkcs7Of = (chain: string): string => pemOf('PKCS7', writeCertificateBag(certificatesIn(chain)))
