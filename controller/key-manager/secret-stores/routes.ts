import { execute, maybeOne, one } from '../../database/query.js'
import { type Fragment, sql } from '../../database/sql.js'
import { missing, requireId } from '../ids.js'
import type { Answer, Call, Routes, Service } from '../routes.js'

const LABEL = 'Secret store'

/** SQL of the JSON record of a store (alias s), as text. */
const STORE_JSON = sql`json_build_object('status', 'ACTIVE', 'created', iso_time(s.created_at), 'updated', iso_time(s.updated_at),
  'name', s.name, 'secret_store_ref', base.url || '/v1/secret-stores/' || s.id, 'global_default', s.global_default,
  'crypto_plugin', s.crypto_plugin, 'secret_store_plugin', s.secret_store_plugin)::text`

/** The stores among which a project may choose where its new secrets go. Without such a choice there are no such routes. */
export function secretStoreRoutes(service: Service): Routes {
  if (!service.config.crypto.enable_multiple_secret_stores) return {}
  return {
    'GET /v1/secret-stores': call => listStores(service, call),
    'GET /v1/secret-stores/global-default': call => showStore(service, call, sql`s.global_default`),
    'GET /v1/secret-stores/preferred': call =>
      showStore(
        service,
        call,
        sql`s.id = (SELECT secret_store_id FROM project_secret_store WHERE project_id = ${call.who.projectId})`,
      ),
    'GET /v1/secret-stores/:id': call => showStore(service, call, sql`s.id = ${requireId(call.params.id, LABEL)}`),
    'POST /v1/secret-stores/:id/preferred': call => prefer(service, call),
    'DELETE /v1/secret-stores/:id/preferred': call => unprefer(service, call),
  }
}

async function listStores({ database }: Service, call: Call): Promise<Answer> {
  const { items } = await one(
    database,
    sql<{ items: string }>`
      SELECT coalesce(string_agg(${STORE_JSON}, ',' ORDER BY s.name), '') AS items
        FROM secret_store s, (SELECT ${call.base}::text AS url) base`,
  )
  return { status: 200, json: `{"secret_stores":[${items}]}` }
}

async function showStore({ database }: Service, call: Call, which: Fragment): Promise<Answer> {
  const found = await maybeOne(
    database,
    sql<{ json: string }>`
      SELECT ${STORE_JSON} AS json FROM secret_store s, (SELECT ${call.base}::text AS url) base WHERE ${which}`,
  )
  if (found === undefined) throw missing(LABEL)
  return { status: 200, json: found.json }
}

async function prefer({ database }: Service, call: Call): Promise<Answer> {
  const stored = await execute(
    database,
    sql`INSERT INTO project_secret_store (project_id, secret_store_id)
        SELECT ${call.who.projectId}, id FROM secret_store WHERE id = ${requireId(call.params.id, LABEL)}
        ON CONFLICT (project_id) DO UPDATE SET secret_store_id = excluded.secret_store_id`,
  )
  if (stored === 0) throw missing(LABEL)
  return { status: 204 }
}

async function unprefer({ database }: Service, call: Call): Promise<Answer> {
  const gone = await execute(
    database,
    sql`DELETE FROM project_secret_store
         WHERE project_id = ${call.who.projectId} AND secret_store_id = ${requireId(call.params.id, LABEL)}`,
  )
  if (gone === 0) throw missing('Preferred secret store')
  return { status: 204 }
}
