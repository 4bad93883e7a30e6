import * as z from 'zod'
import type { Answer } from '../../api/answer.js'
import { objectOf, ref } from '../../api/schema.js'
import { execute, maybeOne } from '../../database/query.js'
import { sql } from '../../database/sql.js'
import { missing, newId, requireId } from '../ids.js'
import { filledText, queryText } from '../input.js'
import { type ApiService, type Call, route } from './dialect.js'
import { filter, PAGE_PARAMETERS, pageJson, parsePage, readPage } from './paging.js'

const LABEL = 'Transport key'

const newTransportKey = z
  .object({
    plugin_name: filledText(255),
    transport_key: filledText(),
  })
  .meta({ title: 'transport key' })

/** SQL for the URL of a transport key (alias k). */
const REF = sql`base.url || '/v1/transport_keys/' || k.id`

const base = { group: 'transport keys', status: 200 } as const

export const transportKeyRoutes = [
  route({
    ...base,
    method: 'GET',
    path: '/v1/transport_keys',
    right: 'transport keys read',
    summary: 'List the transport keys',
    parameters: [...PAGE_PARAMETERS, filter('plugin_name', 'Only keys of this back end.')],
    answer: ref('transport_keys'),
    handle: listTransportKeys,
  }),
  route({
    ...base,
    method: 'POST',
    path: '/v1/transport_keys',
    right: 'transport keys write',
    summary: 'Store a transport key',
    status: 201,
    request: newTransportKey,
    answer: objectOf({ transport_key_ref: ref('reference') }),
    handle: createTransportKey,
  }),
  route({
    ...base,
    method: 'GET',
    path: '/v1/transport_keys/:id',
    right: 'transport keys read',
    summary: 'Show a transport key',
    answer: ref('transport_key'),
    handle: showTransportKey,
  }),
  route({
    ...base,
    method: 'DELETE',
    path: '/v1/transport_keys/:id',
    right: 'transport keys write',
    summary: 'Delete a transport key',
    status: 204,
    handle: deleteTransportKey,
  }),
]

async function listTransportKeys({ database, config }: ApiService, call: Call): Promise<Answer> {
  const page = parsePage(call.query, config)
  const plugin = queryText(call.query, 'plugin_name')
  const selection = {
    table: 'transport_key k',
    where: plugin === null ? sql`true` : sql`k.plugin_name = ${plugin}`,
    order: sql`k.created_at, k.id`,
    json: sql`to_json(${REF})::text`,
  }
  const { items, total } = await readPage(database, selection, page, call.base)
  const url = `${call.base}/v1/transport_keys`
  return { status: 200, json: pageJson('transport_keys', items, total, { page, query: call.query, url }) }
}

async function createTransportKey(
  { database }: ApiService,
  call: Call<z.output<typeof newTransportKey>>,
): Promise<Answer> {
  const body = await call.body()
  const id = newId()
  await execute(
    database,
    sql`INSERT INTO transport_key (id, plugin_name, transport_key, created_at, updated_at)
        VALUES (${id}, ${body.plugin_name}, ${body.transport_key}, now(), now())`,
  )
  const ref = `${call.base}/v1/transport_keys/${id}`
  return { status: 201, json: JSON.stringify({ transport_key_ref: ref }), headers: { Location: ref } }
}

async function showTransportKey({ database }: ApiService, call: Call): Promise<Answer> {
  const found = await maybeOne(
    database,
    sql<{ json: string }>`
     SELECT json_build_object('transport_key_ref', ${REF}, 'plugin_name', k.plugin_name, 'transport_key', k.transport_key,
        'created', iso_time(k.created_at), 'updated', iso_time(k.updated_at), 'status', 'ACTIVE')::text AS json
       FROM transport_key k, (SELECT ${call.base}::text AS url) base
      WHERE k.id = ${requireId(call.params.id, LABEL)}`,
  )
  if (found === undefined) throw missing(LABEL)
  return { status: 200, json: found.json }
}

async function deleteTransportKey({ database }: ApiService, call: Call): Promise<Answer> {
  const gone = await execute(database, sql`DELETE FROM transport_key WHERE id = ${requireId(call.params.id, LABEL)}`)
  if (gone === 0) throw missing(LABEL)
  return { status: 204 }
}
