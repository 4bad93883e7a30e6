import type { Knex } from 'knex'
import { missing, requireId } from '../ids.js'
import type { Answer, Call, Routes, Service } from '../routes.js'

const LABEL = 'Secret store'

/** SQL of the JSON record of a store (alias s), as text. */
const STORE_JSON = `json_build_object('status', 'ACTIVE', 'created', iso_time(s.created_at), 'updated', iso_time(s.updated_at),
  'name', s.name, 'secret_store_ref', base.url || '/v1/secret-stores/' || s.id, 'global_default', s.global_default,
  'crypto_plugin', s.crypto_plugin, 'secret_store_plugin', s.secret_store_plugin)::text`

/** The stores among which a project may choose where its new secrets go. Without such a choice there are no such routes. */
export function secretStoreRoutes(service: Service): Routes {
  if (!service.config.crypto.enable_multiple_secret_stores) return {}
  return {
    'GET /v1/secret-stores': call => listStores(service, call),
    'GET /v1/secret-stores/global-default': call => showStore(service, call, 's.global_default', []),
    'GET /v1/secret-stores/preferred': call =>
      showStore(service, call, 's.id = (SELECT secret_store_id FROM project_secret_store WHERE project_id = ?)', [
        call.who.projectId,
      ]),
    'GET /v1/secret-stores/:id': call => showStore(service, call, 's.id = ?', [requireId(call.params.id, LABEL)]),
    'POST /v1/secret-stores/:id/preferred': call => prefer(service, call),
    'DELETE /v1/secret-stores/:id/preferred': call => unprefer(service, call),
  }
}

async function listStores({ database }: Service, call: Call): Promise<Answer> {
  const { rows } = await database.raw(
    `SELECT coalesce(string_agg(${STORE_JSON}, ',' ORDER BY s.name), '') AS items
       FROM secret_store s, (SELECT ?::text AS url) base`,
    [call.base],
  )
  const [{ items }] = rows as [{ items: string }]
  return { status: 200, json: `{"secret_stores":[${items}]}` }
}

async function showStore(
  { database }: Service,
  call: Call,
  condition: string,
  bindings: Knex.RawBinding[],
): Promise<Answer> {
  const { rows } = await database.raw(
    `SELECT ${STORE_JSON} AS json FROM secret_store s, (SELECT ?::text AS url) base WHERE ${condition}`,
    [call.base, ...bindings],
  )
  const [found] = rows as { json: string }[]
  if (found === undefined) throw missing(LABEL)
  return { status: 200, json: found.json }
}

async function prefer({ database }: Service, call: Call): Promise<Answer> {
  const { rowCount } = await database.raw(
    `INSERT INTO project_secret_store (project_id, secret_store_id) SELECT ?, id FROM secret_store WHERE id = ?
     ON CONFLICT (project_id) DO UPDATE SET secret_store_id = excluded.secret_store_id`,
    [call.who.projectId, requireId(call.params.id, LABEL)],
  )
  if (rowCount === 0) throw missing(LABEL)
  return { status: 204 }
}

async function unprefer({ database }: Service, call: Call): Promise<Answer> {
  const { rowCount } = await database.raw(
    'DELETE FROM project_secret_store WHERE project_id = ? AND secret_store_id = ?',
    [call.who.projectId, requireId(call.params.id, LABEL)],
  )
  if (rowCount === 0) throw missing('Preferred secret store')
  return { status: 204 }
}
