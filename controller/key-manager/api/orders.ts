import * as z from 'zod'
import type { Answer } from '../../api/answer.js'
import { objectOf, ref } from '../../api/schema.js'
import { execute } from '../../database/query.js'
import { and, sql } from '../../database/sql.js'
import { ApiError } from '../../http/errors.js'
import { parseCertificateMeta } from '../certificate-authorities/certificate-meta.js'
import { queryText } from '../input.js'
import { parseKeyMeta, parsePairMeta } from '../orders/key-meta.js'
import { findOrder, LIVE_ORDER, orderJson } from '../orders/order.js'
import type { Order } from '../orders/outcome.js'
import { storeOrder } from '../orders/store.js'
import { type AllowOn, type ApiService, actorIn, type Call, route } from './dialect.js'
import { filter, PAGE_PARAMETERS, pageJson, parsePage, readPage } from './paging.js'

const ORDER_TYPES = ['key', 'asymmetric', 'certificate'] as const satisfies readonly Order['type'][]

/** Ignores unknown members. */
const newOrder = z
  .object({
    type: z.enum(ORDER_TYPES, `must be one of ${ORDER_TYPES.join(', ')}`),
    meta: z.record(z.string(), z.unknown()),
  })
  .meta({ title: 'order' })

const base = { group: 'orders', status: 200 } as const

export const orderRoutes = [
  route({
    ...base,
    method: 'GET',
    path: '/v1/orders',
    right: 'orders list',
    summary: 'List the orders of the project',
    parameters: [
      ...PAGE_PARAMETERS,
      filter('meta', 'Only orders whose meta contains this text.'),
      filter('type', 'Only orders of this type; `all` includes certificate orders.'),
    ],
    answer: ref('orders'),
    handle: listOrders,
  }),
  route({
    ...base,
    method: 'POST',
    path: '/v1/orders',
    right: 'order create',
    summary: 'Order a key, a pair of keys or a certificate',
    status: 202,
    request: newOrder,
    answer: objectOf({ order_ref: ref('reference') }),
    handle: createOrder,
  }),
  route({
    ...base,
    method: 'PUT',
    path: '/v1/orders',
    right: 'order create',
    summary: 'Refused: an order cannot be changed',
    status: 405,
    answer: ref('fault'),
    handle: async () => {
      throw new ApiError(405, 'An order cannot be changed; create another one.')
    },
  }),
  route({
    ...base,
    method: 'GET',
    path: '/v1/orders/:id',
    right: 'order show',
    summary: 'Show an order',
    answer: ref('order'),
    handle: showOrder,
  }),
  route({
    ...base,
    method: 'DELETE',
    path: '/v1/orders/:id',
    right: 'order delete',
    summary: 'Delete an order; its result stays',
    status: 204,
    handle: deleteOrder,
  }),
]

async function createOrder(service: ApiService, call: Call<z.output<typeof newOrder>>): Promise<Answer> {
  const { type, meta } = await call.body()
  const parsed = await parseMeta(service, call, type, meta)
  const { projectId, userId } = call.caller
  const id = await storeOrder(service, { projectId, creatorId: userId, type, ...parsed }, actorIn(call))
  const orderRef = `${call.base}/v1/orders/${id}`
  return { status: 202, json: JSON.stringify({ order_ref: orderRef }), headers: { Location: orderRef } }
}

/** @throws ApiError 400; 403 when a certificate order uses what the caller may not */
async function parseMeta(service: ApiService, call: Call, type: Order['type'], meta: unknown) {
  if (type === 'key') return parseKeyMeta(meta)
  if (type === 'asymmetric') return parsePairMeta(meta)
  return parseCertificateMeta(service, call.caller, meta)
}

async function showOrder({ database, config }: ApiService, call: Call, allowOn: AllowOn): Promise<Answer> {
  const order = await findOrder<{ json: string }>(database, {
    id: call.params.id,
    projectId: call.caller.projectId,
    columns: sql`${orderJson(config.expose_processing_status)} AS json`,
    base: call.base,
  })
  allowOn(order)
  return { status: 200, json: order.json }
}

/** The order's result stays. A worker that executes the order finds it deleted and stores nothing. */
async function deleteOrder({ database }: ApiService, call: Call, allowOn: AllowOn): Promise<Answer> {
  const order = await findOrder(database, { id: call.params.id, projectId: call.caller.projectId })
  allowOn(order)
  await execute(
    database,
    sql`UPDATE secret_order SET deleted_at = now(), fence = fence + 1, sealed_passphrase = NULL, project_key_id = NULL
         WHERE id = ${order.id} AND deleted_at IS NULL`,
  )
  return { status: 204 }
}

/** Lists certificate orders only on request, as the list command of OpenStack's client fails on them. */
async function listOrders({ database, config }: ApiService, call: Call): Promise<Answer> {
  const page = parsePage(call.query, config)
  const meta = queryText(call.query, 'meta')
  const type = queryText(call.query, 'type')
  const conditions = [
    sql`o.project_id = ${call.caller.projectId}`,
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
