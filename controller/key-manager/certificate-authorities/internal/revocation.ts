import { isRevocationReason, type RevocationReason, writeRevocationList } from '../../../../x509/revocation-list.js'
import { execute, many, maybeOne, one } from '../../../database/query.js'
import { sql } from '../../../database/sql.js'
import { inTransaction } from '../../../database/transaction.js'
import { type Actor, auditInsert } from '../../audit/record.js'
import type { RevokeOutcome } from '../ca-backend.js'
import type { InternalCaService } from './options.js'
import { openAuthority, type SigningAuthority } from './signing-authority.js'
import { daysAfter } from './validity.js'

const IS_FRESH = sql`crl IS NOT NULL AND crl_made_at > now() - interval '1 day'`

/**
 * DER of a CA's revocation list. A stored list is used for a day or until the next revocation. Each new list
 * has a greater number, also when several processes ask at once.
 * @returns null if there is no such CA
 */
export async function currentRevocationList(service: InternalCaService, id: string): Promise<Buffer | null> {
  const found = await maybeOne(
    service.database,
    sql<{ crl: Buffer | null }>`
      SELECT CASE WHEN ${IS_FRESH} THEN crl END AS crl FROM certificate_authority WHERE id = ${id}`,
  )
  if (found === undefined) return null
  if (found.crl !== null) return found.crl
  const authority = await openAuthority(service, id)
  return authority === null ? null : makeRevocationList(service, authority)
}

/** The lock on the CA's row blocks revocations, so the stored list has all earlier ones. */
async function makeRevocationList(
  { database, config }: InternalCaService,
  { id, key, own }: SigningAuthority,
): Promise<Buffer | null> {
  const days = config.certificate_authority.crl_days
  return inTransaction(database, async trx => {
    const counted = await maybeOne(
      trx,
      sql<{ number: number; madeAt: Date }>`
        UPDATE certificate_authority SET crl_number = crl_number + 1, crl_made_at = now()
         WHERE id = ${id} AND NOT coalesce(${IS_FRESH}, false)
        RETURNING crl_number AS number, crl_made_at AS "madeAt"`,
    )
    // Another process has just made one.
    if (counted === undefined) {
      const made = await maybeOne(
        trx,
        sql<{ crl: Buffer | null }>`SELECT crl FROM certificate_authority WHERE id = ${id}`,
      )
      return made?.crl ?? null
    }
    // A revoked certificate stays listed for crl_days after it expires.
    const revoked = await many(
      trx,
      sql<{ serial: string; at: Date; reason: string }>`
        SELECT serial, revoked_at AS at, revocation_reason AS reason FROM issued_certificate
         WHERE ca_id = ${id} AND revoked_at IS NOT NULL AND not_after > now() - ${days} * interval '1 day'
         ORDER BY revoked_at, serial`,
    )
    const crl = writeRevocationList(
      {
        issuer: own.subject,
        issuerKeyIdentifier: own.keyIdentifier,
        number: counted.number,
        thisUpdate: counted.madeAt,
        nextUpdate: daysAfter(counted.madeAt, days),
        revoked: revoked.map(({ serial, at, reason }) => ({
          serial: Buffer.from(serial, 'hex'),
          at,
          reason: isRevocationReason(reason) ? reason : 'unspecified',
        })),
      },
      key,
    )
    await execute(trx, sql`UPDATE certificate_authority SET crl = ${crl} WHERE id = ${id}`)
    return crl
  })
}

/** Revokes a certificate permanently: it is on the next requested list. */
export async function revokeCertificate(
  { database }: InternalCaService,
  { caId: id, serial }: { caId: string; serial: string },
  reason: RevocationReason,
  actor: Actor = { userId: null, projectId: null, requestId: null, remoteAddress: null },
): Promise<RevokeOutcome> {
  const audit = auditInsert(
    actor,
    { action: 'certificate.revoke', outcome: 'success', targetType: 'ca', targetId: id, detail: { serial, reason } },
    sql`revoked`,
  )
  const { known, revoked } = await one(
    database,
    sql<{ known: boolean; revoked: boolean }>`
     WITH known AS (SELECT revoked_at FROM issued_certificate WHERE ca_id = ${id} AND serial = ${serial}),
     stale AS (UPDATE certificate_authority SET crl = NULL WHERE id = ${id} RETURNING id),
     revoked AS (
       UPDATE issued_certificate c SET revoked_at = clock_timestamp(), revocation_reason = ${reason} FROM stale
        WHERE c.ca_id = stale.id AND c.serial = ${serial} AND c.revoked_at IS NULL RETURNING c.serial),
     logged AS (${audit})
     SELECT EXISTS (SELECT FROM known) AS known, EXISTS (SELECT FROM revoked) AS revoked`,
  )
  if (revoked) return 'revoked'
  return known ? 'already revoked' : 'unknown'
}
