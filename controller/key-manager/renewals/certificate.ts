import type { Knex } from 'knex'
import { maybeOne } from '../../database/query.js'
import { type Fragment, sql } from '../../database/sql.js'
import { missing, requireId } from '../ids.js'
import type { Target } from '../rights.js'
import { targetColumns } from '../secrets/secret.js'

/** SQL: certificates (alias t) with their live containers (alias c). */
export const LIVE_CERTIFICATE = sql`EXISTS (SELECT FROM container c WHERE c.id = t.id AND c.deleted_at IS NULL)`

/** SQL for the record of a certificate (alias t) as JSON text; `base.url` is the root of the API. */
export const CERTIFICATE_JSON = sql`json_build_object(
    'container_ref', base.url || '/v1/containers/' || t.id, 'order_ref', base.url || '/v1/orders/' || t.order_id,
    'ca_ref', base.url || '/v1/cas/' || t.ca_id, 'names', t.names, 'issuer', t.issuer, 'serial', t.serial,
    'not_before', iso_time(t.not_before), 'not_after', iso_time(t.not_after),
    'version', (SELECT c.version FROM container c WHERE c.id = t.id),
    'former_version', (SELECT v.version FROM certificate_version v WHERE v.container_id = t.id),
    'renew', t.renew, 'renew_key', t.new_key, 'next_renewal_at', iso_time(t.renew_at), 'attempts', t.attempts,
    'last_attempt_at', iso_time(t.attempted_at), 'last_error', t.last_error)::text`

/**
 * Finds the certificate in a live container of any project, with the columns that rules need.
 * @param columns more columns, as SQL over the aliases t and base
 * @param base URL of the root of the API, for references
 * @throws ApiError 404
 */
export async function findCertificate<More = unknown>(
  database: Knex,
  id: string | undefined,
  { columns, base = '' }: { columns?: Fragment; base?: string } = {},
): Promise<Target & { id: string } & More> {
  const found = await maybeOne(
    database,
    sql<Target & { id: string } & More>`
      SELECT t.id, ${targetColumns('c')}${columns === undefined ? sql`` : sql`, ${columns}`}
        FROM certificate t JOIN container c ON c.id = t.id CROSS JOIN (SELECT ${base}::text AS url) base
       WHERE t.id = ${requireId(id, 'Certificate')} AND c.deleted_at IS NULL`,
  )
  if (found === undefined) throw missing('Certificate')
  return found
}
