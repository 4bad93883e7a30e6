import type { Database } from '../../database/connection.js'
import { execute, maybeOne, one } from '../../database/query.js'
import { sql } from '../../database/sql.js'
import { inTransaction } from '../../database/transaction.js'
import { conflict } from '../../http/errors.js'
import { missing } from '../ids.js'
import { LIVE } from '../secrets/secret.js'
import { pauseAfterRollback } from './schedule.js'
import { type CertificateFacts, lockCertificate, type Part, swapParts } from './swap-parts.js'

/**
 * Brings back the former certificate and key of a container; the present ones become the former. A renewal in progress
 * is dropped, and the next one waits a day, or half of the time left.
 * @returns the new version of the container
 * @throws ApiError 404 without such a certificate; 409 if nothing is kept, or it has expired or was deleted
 */
export async function rollBack(database: Database, id: string): Promise<number> {
  return inTransaction(database, async trx => {
    const locked = await lockCertificate(trx, id, sql`TRUE`)
    if (locked === null) throw missing('Certificate')
    const former = await maybeOne(
      trx,
      sql<CertificateFacts & { version: number; parts: { name: string; secret_id: string }[] }>`
        SELECT version, ca_id AS "caId", serial, issuer, names, pem, not_before AS "notBefore", not_after AS "notAfter", parts
          FROM certificate_version WHERE container_id = ${id}`,
    )
    if (former === undefined) throw conflict('The certificate has not been renewed: there is no former version.')
    const timeLeft = former.notAfter.getTime() - Date.now()
    if (timeLeft <= 0) throw conflict('The former certificate has expired.')
    const parts: Part[] = former.parts.map(({ name, secret_id: secretId }) => ({ name, secretId }))
    const ids = parts.map(({ secretId }) => secretId)
    const { live } = await one(
      trx,
      sql<{ live: number }>`
        SELECT count(*)::integer AS live
          FROM (SELECT s.id FROM secret s WHERE s.id = ANY (${ids}::uuid[]) AND ${LIVE} FOR KEY SHARE OF s) held`,
    )
    if (live < ids.length) throw conflict('A part of the former certificate was deleted.')
    const message = `Version ${former.version} is back, instead of version ${locked.version}.`
    const version = await swapParts(trx, id, { facts: former, parts }, { kind: 'rolled back', message })
    await execute(
      trx,
      sql`WITH paused AS (
            UPDATE certificate SET retry_at = now() + ${pauseAfterRollback(timeLeft)} * interval '1 millisecond'
             WHERE id = ${id} RETURNING order_id)
          DELETE FROM pending_certificate p USING paused WHERE p.id = paused.order_id`,
    )
    return version
  })
}
