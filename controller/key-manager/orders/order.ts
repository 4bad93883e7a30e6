import type { Knex } from 'knex'
import { maybeOne } from '../../database/query.js'
import { type Fragment, sql } from '../../database/sql.js'
import type { Actor } from '../audit/record.js'
import { missing, requireId } from '../ids.js'
import type { Target } from '../rights.js'
import type { Order } from './outcome.js'

/** What a worker does in the name of whoever has given the order. */
export const actorOf = ({ creatorId, projectId }: Pick<Order, 'creatorId' | 'projectId'>): Actor => ({
  userId: creatorId,
  projectId,
  requestId: null,
  remoteAddress: null,
})

/** An order (alias o) that was not deleted. */
export const LIVE_ORDER = sql`o.deleted_at IS NULL`

/**
 * SQL of the JSON record of an order (alias o), as text; `base.url` is the root of the API. Members are only those that Python clients know,
 * and what is not yet known is left out.
 * @param exposeProcessing whether key and asymmetric orders show PROCESSING too: the Terraform provider takes it for a failure
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
 * A live order of a project.
 * @param columns more SQL over the aliases o and base
 * @param base URL of the root of the API, for references
 * @throws ApiError 404, for an order of another project too
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

/** What an order's sealed passphrase is bound to. */
export const passphraseContext = (orderId: string): string => `passphrase of order ${orderId}`
