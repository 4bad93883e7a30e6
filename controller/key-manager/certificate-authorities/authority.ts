import { certificatesIn, encodePem } from '../../../x509/encoding/pem.js'
import { writeCertificateBag } from '../../../x509/pkcs7.js'
import { one } from '../../database/query.js'
import { sql } from '../../database/sql.js'
import { sqlState } from '../../database/transaction.js'
import { badRequest } from '../../http/errors.js'
import { type Actor, auditInsert } from '../audit/record.js'
import type { Sealed } from '../crypto/keyring.js'
import { underActiveKey } from '../crypto/under-active-key.js'
import { quotaReached } from '../rights.js'
import type { Service } from '../service.js'
import type { NewAuthority } from './ca-backend.js'

/** SQL: whether the certificate of a CA (alias a) has not expired. Expired CAs are treated as missing. */
export const LIVE_AUTHORITY = sql`(a.expiration IS NULL OR a.expiration > now())`

/** Encryption context of a CA's sealed key. */
export const authorityKeyContext = (id: string): string => `certificate authority ${id}`

/**
 * Stores a CA, its certificate among those its parent issued, and its audit record, in one statement. An
 * existing CA of the back end stays unchanged.
 * @throws ApiError 403 if the project's quota of CAs is reached, 400 if the parent was deleted meanwhile
 */
export async function storeAuthority(service: Service, authority: NewAuthority, actor: Actor): Promise<void> {
  const { keyring } = service
  // The service's own keys belong to the project ''.
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
    sql`made`,
  )
  const key = sealed?.projectKeyId ?? null
  const { creatorId, pluginName, pluginCaId, name, description, certificate, serial, expiration } = authority
  const insert = one(
    database,
    sql<{ fits: boolean; keyActive: boolean }>`
     WITH allowed AS MATERIALIZED (
       SELECT ${projectId}::text IS NULL OR quota_allows(${projectId}::text, 'cas', ${config.quota.cas}) AS fits,
              ${key}::uuid IS NULL OR EXISTS (SELECT 1 FROM project_key WHERE id = ${key}::uuid AND active) AS key_active),
     made AS (
       INSERT INTO certificate_authority (id, project_id, creator_id, parent_id, plugin_name, plugin_ca_id, name, description,
              subject_dn, certificate, serial, chain, pkcs7, project_key_id, sealed_key, expiration, created_at, updated_at)
       SELECT ${id}::uuid, ${projectId}, ${creatorId}, ${parentId}::uuid, ${pluginName}, ${pluginCaId}, ${name}, ${description},
              ${subjectDn}, ${certificate}, ${serial}, ${chain}, ${encodePkcs7(chain)}, ${key}::uuid,
              ${sealed?.ciphertext ?? null}::bytea, ${expiration}::timestamptz, now(), now()
         FROM allowed WHERE fits AND key_active
       ON CONFLICT (plugin_name, plugin_ca_id) DO NOTHING RETURNING id, parent_id),
     certified AS (
       INSERT INTO issued_certificate (ca_id, serial, subject_dn, not_after)
       SELECT parent_id, ${serial}, ${subjectDn}, ${expiration}::timestamptz FROM made WHERE parent_id IS NOT NULL),
     logged AS (${audit})
     SELECT fits, key_active AS "keyActive" FROM allowed`,
  )
  const allowed = await insert.catch(error => {
    if (sqlState(error) === FOREIGN_KEY_VIOLATION) return null
    throw error
  })
  if (allowed === null) return 'no parent'
  if (!allowed.fits) return 'quota'
  return allowed.keyActive ? 'stored' : 'key replaced'
}

const FOREIGN_KEY_VIOLATION = '23503'

const encodePkcs7 = (chain: string): string => encodePem('PKCS7', writeCertificateBag(certificatesIn(chain)))
