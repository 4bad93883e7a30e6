import type { Knex } from 'knex'
import { maybeOne } from '../../database/query.js'
import { type Fragment, sql } from '../../database/sql.js'
import type { Actor } from '../audit/record.js'
import { missing, requireId } from '../ids.js'
import type { Target } from '../rights.js'
import type { Order } from './outcome.js'

/** A worker acts as the user who created the order. */
export const actorOf = ({ creatorId, projectId }: Pick<Order, 'creatorId' | 'projectId'>): Actor => ({
  userId: creatorId,
  projectId,
  requestId: null,
  remoteAddress: null,
})

/** SQL: the order (alias o) is not deleted. */
export const LIVE_ORDER = sql`o.deleted_at IS NULL`

/**
 * SQL for the record of an order (alias o) as JSON text; `base.url` is the root of the API. Has only members that
 * Python clients know, and omits those without a value.
 * @param exposeProcessing whether key and asymmetric orders show PROCESSING, which the Terraform provider treats as
 *   a failure
 */
export function orderJson(exposeProcessing: boolean): Fragment {
  const status = exposeProcessing
    ? sql`o.status`
    : sql`CASE WHEN o.status = 'PROCESSING' AND o.type <> 'certificate' THEN 'PENDING' ELSE o.status END`
  return sql`(jsonb_build_object(
      'created', iso_time(o.created_at), 'updated', iso_time(o.updated_at), 'status', ${status}, 'type', o.type,
      'meta', o.meta, 'creator_id', o.creator_id, 'order_ref', base.url || '/v1/orders/' || o.id)
    || jsonb_strip_nulls(jsonb_build_object(
      'secret_ref', base.url || '/v1/secrets/' || o.secret_id,
      'container_ref', base.url || '/v1/containers/' || o.container_id,
      'sub_status', o.sub_status, 'sub_status_message', o.sub_status_message,
      'error_status_code', o.error_status_code, 'error_reason', o.error_reason)))::text`
}

/**
 * Finds a live order of a project.
 * @param columns more columns, as SQL over the aliases o and base
 * @param base URL of the root of the API, for references
 * @throws ApiError 404, also for an order of another project
 */
export async function findOrder<More = unknown>(
  database: Knex,
  {
    id,
    projectId,
    columns,
    base = '',
  }: { id: string | undefined; projectId: string; columns?: Fragment; base?: string },
): Promise<Target & { id: string } & More> {
  const found = await maybeOne(
    database,
    sql<Target & { id: string } & More>`
     SELECT o.id, o.project_id AS "projectId", o.creator_id AS "creatorId", true AS "projectAccess", '{}'::text[] AS users
            ${columns === undefined ? sql`` : sql`, ${columns}`}
       FROM secret_order o CROSS JOIN (SELECT ${base}::text AS url) base
      WHERE o.id = ${requireId(id, 'Order')} AND o.project_id = ${projectId} AND ${LIVE_ORDER}`,
  )
  if (found === undefined) throw missing('Order')
  return found
}

/** The associated data of an order's sealed passphrase. */
export const passphraseContext = (orderId: string): string => `passphrase of order ${orderId}`
