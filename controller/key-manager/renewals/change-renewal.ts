import type { Database } from '../../database/connection.js'
import { maybeOne } from '../../database/query.js'
import { sql } from '../../database/sql.js'
import { ApiError } from '../../http/errors.js'
import { parseCertificateSpec, refuseNewKey } from '../certificate-authorities/certificate-meta.js'
import { CERTIFICATE_CHANNEL } from '../certificate-authorities/issue/certificate-row.js'

/** How often anybody may ask for a renewal: each one costs the CA a certificate. */
const MIN_SECONDS_BETWEEN = 60

/**
 * Changes whether a certificate is renewed, and with a new key or the same one.
 * @throws ApiError 400 for a new key of a certificate whose key its order did not make
 */
export async function changeRenewal(
  database: Database,
  { id, meta }: { id: string; meta: unknown },
  { renew, newKey }: { renew: boolean | undefined; newKey: boolean | undefined },
): Promise<void> {
  if (newKey === true && parseCertificateSpec(meta).form !== 'new key') refuseNewKey({ renew_key: true })
  await maybeOne(
    database,
    sql`UPDATE certificate
           SET renew = coalesce(${renew ?? null}::boolean, renew), new_key = coalesce(${newKey ?? null}::boolean, new_key),
               asked_at = CASE WHEN ${renew === false} THEN NULL ELSE asked_at END, due_at = now()
         WHERE id = ${id} RETURNING pg_notify(${CERTIFICATE_CHANNEL}, id::text)`,
  )
}

/**
 * Asks for a renewal now, also of a certificate that is not renewed by itself. Our own pauses after failures and
 * rollbacks end; those that the CA has asked for do not.
 * @throws ApiError 429 if the last attempt or replacement was less than a minute ago
 */
export async function askForRenewal(database: Database, id: string): Promise<void> {
  const asked = await maybeOne(
    database,
    sql`UPDATE certificate SET asked_at = now(), retry_at = NULL, due_at = now()
         WHERE id = ${id} AND greatest(attempted_at, checked_at, asked_at) < now() - ${MIN_SECONDS_BETWEEN} * interval '1 second'
        RETURNING pg_notify(${CERTIFICATE_CHANNEL}, id::text)`,
  )
  if (asked !== undefined) return
  throw new ApiError(429, 'The certificate was renewed, or its renewal tried, less than a minute ago.', {
    'Retry-After': String(MIN_SECONDS_BETWEEN),
  })
}
