import type { Answer } from '../../api/answer.js'
import { objectOf, ref } from '../../api/schema.js'
import { execute, maybeOne, one } from '../../database/query.js'
import { type Fragment, sql } from '../../database/sql.js'
import { missing, requireId } from '../ids.js'
import { type ApiService, type Call, route } from './dialect.js'

const LABEL = 'Secret store'

/** SQL for the record of a store (alias s) as JSON text. */
const STORE_JSON = sql`json_build_object('status', 'ACTIVE', 'created', iso_time(s.created_at), 'updated', iso_time(s.updated_at),
  'name', s.name, 'secret_store_ref', base.url || '/v1/secret-stores/' || s.id, 'global_default', s.global_default,
  'crypto_plugin', s.crypto_plugin, 'secret_store_plugin', s.secret_store_plugin)::text`

const base = { group: 'secret stores', status: 200 } as const

/** The stores that a project may choose for its new secrets. Served only when multiple stores are enabled. */
export const secretStoreRoutes = [
  route({
    ...base,
    method: 'GET',
    path: '/v1/secret-stores',
    right: 'secret stores read',
    summary: 'List the secret stores',
    answer: objectOf({ secret_stores: { type: 'array', items: ref('secret_store') } }),
    handle: listStores,
  }),
  route({
    ...base,
    method: 'GET',
    path: '/v1/secret-stores/global-default',
    right: 'secret stores read',
    summary: 'Show the default secret store of all projects',
    answer: ref('secret_store'),
    handle: (service, call) => showStore(service, call, sql`s.global_default`),
  }),
  route({
    ...base,
    method: 'GET',
    path: '/v1/secret-stores/preferred',
    right: 'secret stores read',
    summary: 'Show the preferred secret store of the project',
    answer: ref('secret_store'),
    handle: (service, call) =>
      showStore(
        service,
        call,
        sql`s.id = (SELECT secret_store_id FROM project_secret_store WHERE project_id = ${call.caller.projectId})`,
      ),
  }),
  route({
    ...base,
    method: 'GET',
    path: '/v1/secret-stores/:id',
    right: 'secret stores read',
    summary: 'Show a secret store',
    answer: ref('secret_store'),
    handle: (service, call) => showStore(service, call, sql`s.id = ${requireId(call.params.id, LABEL)}`),
  }),
  route({
    ...base,
    method: 'POST',
    path: '/v1/secret-stores/:id/preferred',
    right: 'preferred store write',
    summary: 'Set the preferred store for new secrets of the project',
    status: 204,
    handle: prefer,
  }),
  route({
    ...base,
    method: 'DELETE',
    path: '/v1/secret-stores/:id/preferred',
    right: 'preferred store write',
    summary: 'Clear the preferred store of the project',
    status: 204,
    handle: clearPreferred,
  }),
]

async function listStores({ database }: ApiService, call: Call): Promise<Answer> {
  const { items } = await one(
    database,
    sql<{ items: string }>`
      SELECT coalesce(string_agg(${STORE_JSON}, ',' ORDER BY s.name), '') AS items
        FROM secret_store s, (SELECT ${call.base}::text AS url) base`,
  )
  return { status: 200, json: `{"secret_stores":[${items}]}` }
}

async function showStore({ database }: ApiService, call: Call, which: Fragment): Promise<Answer> {
  const found = await maybeOne(
    database,
    sql<{ json: string }>`
      SELECT ${STORE_JSON} AS json FROM secret_store s, (SELECT ${call.base}::text AS url) base WHERE ${which}`,
  )
  if (found === undefined) throw missing(LABEL)
  return { status: 200, json: found.json }
}

async function prefer({ database }: ApiService, call: Call): Promise<Answer> {
  const stored = await execute(
    database,
    sql`INSERT INTO project_secret_store (project_id, secret_store_id)
        SELECT ${call.caller.projectId}, id FROM secret_store WHERE id = ${requireId(call.params.id, LABEL)}
        ON CONFLICT (project_id) DO UPDATE SET secret_store_id = excluded.secret_store_id`,
  )
  if (stored === 0) throw missing(LABEL)
  return { status: 204 }
}

async function clearPreferred({ database }: ApiService, call: Call): Promise<Answer> {
  const gone = await execute(
    database,
    sql`DELETE FROM project_secret_store
         WHERE project_id = ${call.caller.projectId} AND secret_store_id = ${requireId(call.params.id, LABEL)}`,
  )
  if (gone === 0) throw missing('Preferred secret store')
  return { status: 204 }
}
