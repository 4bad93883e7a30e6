import { z } from 'zod'
import { execute } from '../../database/query.js'
import { and, sql } from '../../database/sql.js'
import { ApiError } from '../../http/errors.js'
import { parseCertificateMeta } from '../certificate-authorities/certificate-meta.js'
import { parseBody, queryText } from '../input.js'
import { pageJson, pageOf, readPage } from '../paging.js'
import type { Answer, Call, Routes, Service } from '../routes.js'
import { parseKeyMeta, parsePairMeta } from './key-meta.js'
import { findOrder, LIVE_ORDER, orderJson } from './order.js'
import type { Order } from './outcome.js'
import { storeOrder } from './store.js'

export const orderRoutes = (service: Service): Routes => ({
  'GET /v1/orders': call => listOrders(service, call),
  'POST /v1/orders': call => createOrder(service, call),
  'PUT /v1/orders': async () => {
    throw new ApiError(405, 'An order cannot be changed; make another one.')
  },
  'GET /v1/orders/:id': call => showOrder(service, call),
  'DELETE /v1/orders/:id': call => deleteOrder(service, call),
})

const ORDER_TYPES = ['key', 'asymmetric', 'certificate'] as const satisfies readonly Order['type'][]

/** Members that it does not know are passed over. */
const newOrder = z.object({
  type: z.enum(ORDER_TYPES, `must be one of ${ORDER_TYPES.join(', ')}`),
  meta: z.record(z.string(), z.unknown()),
})

async function createOrder(service: Service, call: Call): Promise<Answer> {
  const { type, meta } = parseBody(newOrder, await call.readJson(), 'order')
  const parsed = await parseMeta(service, call, type, meta)
  const { projectId, userId } = call.who
  const id = await storeOrder(service, { projectId, creatorId: userId, type, ...parsed }, call.actor)
  const orderRef = `${call.base}/v1/orders/${id}`
  return { status: 202, json: JSON.stringify({ order_ref: orderRef }), headers: { Location: orderRef } }
}

/** @throws ApiError 400; 403 for what a certificate order must not use */
async function parseMeta(service: Service, call: Call, type: Order['type'], meta: unknown) {
  if (type === 'key') return parseKeyMeta(meta)
  if (type === 'asymmetric') return parsePairMeta(meta)
  return parseCertificateMeta(service, call, meta)
}

async function showOrder({ database, config }: Service, call: Call): Promise<Answer> {
  const order = await findOrder<{ json: string }>(database, {
    id: call.params.id,
    projectId: call.who.projectId,
    columns: sql`${orderJson(config.expose_processing_status)} AS json`,
    base: call.base,
  })
  call.allowOn(order)
  return { status: 200, json: order.json }
}

/** What the order has made stays. A worker that is at it finds it gone, and stores nothing. */
async function deleteOrder({ database }: Service, call: Call): Promise<Answer> {
  const order = await findOrder(database, { id: call.params.id, projectId: call.who.projectId })
  call.allowOn(order)
  await execute(
    database,
    sql`UPDATE secret_order SET deleted_at = now(), fence = fence + 1, sealed_passphrase = NULL, project_key_id = NULL
         WHERE id = ${order.id} AND deleted_at IS NULL`,
  )
  return { status: 204 }
}

/** Orders of certificates are listed only when they are asked for: the list command of OpenStack's client fails on them. */
async function listOrders({ database, config }: Service, call: Call): Promise<Answer> {
  const page = pageOf(call.query, config)
  const meta = queryText(call.query, 'meta')
  const type = queryText(call.query, 'type')
  const conditions = [
    sql`o.project_id = ${call.who.projectId}`,
    LIVE_ORDER,
    ...(meta === null ? [] : [sql`position(${meta} IN o.meta::text) > 0`]),
    ...(type === null ? [sql`o.type <> 'certificate'`] : []),
    ...(type === null || type === 'all' ? [] : [sql`o.type = ${type}`]),
  ]
  const { items, total } = await readPage(
    database,
    {
      table: 'secret_order o',
      where: and(conditions),
      order: sql`o.created_at, o.id`,
      json: orderJson(config.expose_processing_status),
    },
    page,
    call.base,
  )
  const url = `${call.base}/v1/orders`
  return { status: 200, json: pageJson('orders', items, total, { page, query: call.query, url }) }
}
