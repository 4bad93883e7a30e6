import { z } from 'zod'
import { execute, maybeOne } from '../../database/query.js'
import { sql } from '../../database/sql.js'
import { missing, newId, requireId } from '../ids.js'
import { filledText, parseBody, queryText } from '../input.js'
import { pageJson, pageOf, readPage } from '../paging.js'
import type { Answer, Call, Routes, Service } from '../routes.js'

const LABEL = 'Transport key'

const newTransportKey = z.object({
  plugin_name: filledText(255),
  transport_key: filledText(),
})

/** SQL over k, a transport key, and base. */
const REF = sql`base.url || '/v1/transport_keys/' || k.id`

export const transportKeyRoutes = (service: Service): Routes => ({
  'GET /v1/transport_keys': call => listTransportKeys(service, call),
  'POST /v1/transport_keys': call => createTransportKey(service, call),
  'GET /v1/transport_keys/:id': call => showTransportKey(service, call),
  'DELETE /v1/transport_keys/:id': call => deleteTransportKey(service, call),
})

async function listTransportKeys({ database, config }: Service, call: Call): Promise<Answer> {
  const page = pageOf(call.query, config)
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

async function createTransportKey({ database }: Service, call: Call): Promise<Answer> {
  const body = parseBody(newTransportKey, await call.readJson(), 'transport key')
  const id = newId()
  await execute(
    database,
    sql`INSERT INTO transport_key (id, plugin_name, transport_key, created_at, updated_at)
        VALUES (${id}, ${body.plugin_name}, ${body.transport_key}, now(), now())`,
  )
  const ref = `${call.base}/v1/transport_keys/${id}`
  return { status: 201, json: JSON.stringify({ transport_key_ref: ref }), headers: { Location: ref } }
}

async function showTransportKey({ database }: Service, call: Call): Promise<Answer> {
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

async function deleteTransportKey({ database }: Service, call: Call): Promise<Answer> {
  const gone = await execute(database, sql`DELETE FROM transport_key WHERE id = ${requireId(call.params.id, LABEL)}`)
  if (gone === 0) throw missing(LABEL)
  return { status: 204 }
}
