import { readLeafCertificate } from '../../../../x509/leaf-certificate.js'
import type { Database } from '../../../database/connection.js'
import { execute, one } from '../../../database/query.js'
import { type Fragment, join, json, sql } from '../../../database/sql.js'
import { inTransaction, type Transaction } from '../../../database/transaction.js'
import type { Claim } from '../../../queue/claim.js'
import { recordIssue } from '../../certificate-authorities/issue/certificate-row.js'
import type { Applicant, Obtained } from '../../certificate-authorities/issue/obtain-certificate.js'
import type { Keyring, Sealed } from '../../crypto/keyring.js'
import { underActiveKey } from '../../crypto/under-active-key.js'
import { newId } from '../../ids.js'
import type { MadeSecret } from '../../orders/outcome.js'
import { LIVE, payloadContext } from '../../secrets/secret.js'
import { lockCertificate, swapParts } from '../swap-parts.js'

type SealedSecret = { id: string; role: string; secret: MadeSecret; sealed: Sealed }

/** `lost`: the container was deleted, rolled back, or another worker has claimed the certificate since. */
type Stored = 'stored' | 'lost' | 'reference gone'

/**
 * Puts a renewed certificate into its container, in one fenced transaction.
 * @throws CryptoUnavailable
 */
export async function storeRenewal(
  { database, keyring }: { database: Database; keyring: Keyring },
  claim: Claim,
  applicant: Applicant,
  { issued, secrets, references }: Extract<Obtained, { kind: 'obtained' }>,
): Promise<Stored> {
  return underActiveKey<Stored>(keyring, applicant.projectId, async () => {
    const sealed: SealedSecret[] = await Promise.all(
      secrets.map(async secret => {
        const id = newId()
        const payload = await keyring.seal(applicant.projectId, secret.payload, payloadContext(id))
        return { id, role: secret.role ?? '', secret, sealed: payload }
      }),
    )
    return inTransaction(database, async trx => {
      const locked = await lockCertificate(trx, claim.id, sql`t.fence = ${claim.fence}`)
      if (locked === null) return 'lost'
      if (!(await areLive(trx, references))) return 'reference gone'
      if (!(await insertSecrets(trx, claim.id, applicant, sealed))) return 'key replaced'
      await recordIssue(trx, applicant, issued)
      const { pem, serial, issuer, names, notBefore, notAfter } = readLeafCertificate(issued.certificate)
      const facts = { caId: issued.caId, pem, serial, issuer, names, notBefore, notAfter }
      const parts = [...sealed.map(({ id, role }) => ({ name: role, secretId: id })), ...named(references)]
      const message = `Renewed until ${notAfter.toISOString()}.`
      await swapParts(trx, claim.id, { facts, parts }, { kind: 'renewed', message })
      return 'stored'
    })
  })
}

const named = (references: readonly { role: string; secretId: string }[]) =>
  references.map(({ role, secretId }) => ({ name: role, secretId }))

async function areLive(trx: Transaction, references: readonly { secretId: string }[]): Promise<boolean> {
  const ids = [...new Set(references.map(({ secretId }) => secretId))]
  const { live } = await one(
    trx,
    sql<{ live: number }>`
      SELECT count(*)::integer AS live
        FROM (SELECT s.id FROM secret s WHERE s.id = ANY (${ids}::uuid[]) AND ${LIVE} FOR KEY SHARE OF s) held`,
  )
  return live === ids.length
}

/**
 * Each new secret gets the ACL and the metadata of the part that it replaces: whoever may read the container's key goes
 * on reading it.
 * @returns false if the project's key was replaced
 */
async function insertSecrets(
  trx: Transaction,
  containerId: string,
  { projectId, creatorId, id: orderId }: Applicant,
  secrets: readonly SealedSecret[],
): Promise<boolean> {
  const keyIds = secrets.map(({ sealed }) => sealed.projectKeyId)
  const made = await execute(
    trx,
    sql`WITH made AS (
          INSERT INTO secret (id, project_id, creator_id, name, secret_type, algorithm, mode, bit_length, content_type,
                              project_key_id, ciphertext, metadata, acl_created_at, acl_updated_at, acl_project_access,
                              acl_users, created_at, updated_at)
          SELECT v.id, ${projectId}, ${creatorId}, v.name, v.secret_type, v.algorithm, v.mode, v.bit_length, v.content_type,
                 v.project_key_id, v.ciphertext, coalesce(f.metadata, '{}'), f.acl_created_at, f.acl_updated_at,
                 coalesce(f.acl_project_access, true), coalesce(f.acl_users, '{}'), now(), now()
            FROM (VALUES ${join(secrets.map(secretRow))})
                 AS v (id, role, name, secret_type, algorithm, mode, bit_length, content_type, project_key_id, ciphertext)
            LEFT JOIN LATERAL (
              SELECT s.metadata, s.acl_created_at, s.acl_updated_at, s.acl_project_access, s.acl_users
                FROM container_secret r JOIN secret s ON s.id = r.secret_id AND s.project_id = ${projectId}
               WHERE r.container_id = ${containerId} AND r.name = v.role LIMIT 1) f ON true
           WHERE NOT EXISTS (SELECT FROM unnest(${keyIds}::uuid[]) AS used (id)
                              WHERE NOT EXISTS (SELECT FROM project_key k WHERE k.id = used.id AND k.active))
          RETURNING id),
        logged AS (
          INSERT INTO key_manager_audit.audit_record (action, outcome, user_id, project_id, target_type, target_id, detail)
          SELECT 'secret.generate', 'success', ${creatorId}, ${projectId}, 'secret', id, ${json({ order: orderId })}::jsonb FROM made)
        SELECT id FROM made`,
  )
  return made === secrets.length
}

function secretRow({ id, role, secret, sealed }: SealedSecret): Fragment {
  const { name, secretType, algorithm, mode, bitLength, contentType } = secret
  return sql`(${id}::uuid, ${role}::text, ${name}::text, ${secretType}::text, ${algorithm}::text, ${mode}::text,
              ${bitLength}::integer, ${contentType}::text, ${sealed.projectKeyId}::uuid, ${sealed.ciphertext}::bytea)`
}
