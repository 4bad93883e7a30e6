import { execute, maybeOne, one } from '../../database/query.js'
import { and, sql } from '../../database/sql.js'
import { inTransaction } from '../../database/transaction.js'
import { badRequest, conflict } from '../../http/errors.js'
import { consumerHandlers } from '../consumers/handlers.js'
import { missing } from '../ids.js'
import { parseBody, queryText } from '../input.js'
import { pageJson, pageOf, readPage } from '../paging.js'
import type { Answer, Call, Routes, Service } from '../routes.js'
import { LIVE } from '../secrets/secret.js'
import { CONTAINER_CONSUMERS } from './consumers.js'
import {
  CONTAINER_JSON,
  findContainer,
  liveContainer,
  MOST_REFERENCES,
  namedReference,
  newContainer,
} from './container.js'
import { requireReferenceNames } from './reference-names.js'
import { requireOwnSecrets, secretIdOf } from './references.js'
import { storeContainer } from './store.js'

export function containerRoutes(service: Service): Routes {
  const consumers = consumerHandlers(service, CONTAINER_CONSUMERS)
  return {
    'GET /v1/containers': call => listContainers(service, call),
    'POST /v1/containers': call => createContainer(service, call),
    'GET /v1/containers/:id': call => showContainer(service, call),
    'DELETE /v1/containers/:id': call => deleteContainer(service, call),
    'POST /v1/containers/:id/secrets': call => addSecret(service, call),
    'DELETE /v1/containers/:id/secrets': call => removeSecret(service, call),
    'GET /v1/containers/:id/consumers': consumers.list,
    'POST /v1/containers/:id/consumers': consumers.register,
    'DELETE /v1/containers/:id/consumers': consumers.remove,
    'GET /v1/containers/:id/consumers/:consumer': consumers.show,
  }
}

async function listContainers({ database, config }: Service, call: Call): Promise<Answer> {
  const name = queryText(call.query, 'name')
  const type = queryText(call.query, 'type')
  const conditions = [
    sql`c.project_id = ${call.who.projectId} AND ${liveContainer('c')}`,
    // Without an escape character no pattern is wrong.
    ...(name === null ? [] : [sql`c.name LIKE ${name} ESCAPE ''`]),
    ...(type === null ? [] : [sql`c.type = ${type}`]),
  ]
  const page = pageOf(call.query, config)
  const { items, total } = await readPage(
    database,
    {
      table: 'container c',
      where: and(conditions),
      order: sql`c.created_at, c.id`,
      json: CONTAINER_JSON,
    },
    page,
    call.base,
  )
  const url = `${call.base}/v1/containers`
  return { status: 200, json: pageJson('containers', items, total, { page, query: call.query, url }) }
}

async function createContainer({ database, config }: Service, call: Call): Promise<Answer> {
  const { type, name, secret_refs } = parseBody(newContainer, await call.readJson(), 'container')
  requireReferenceNames(type, secret_refs)
  const references = secret_refs.map(reference => ({
    name: reference.name,
    secretId: secretIdOf(reference.secret_ref, call.base),
  }))
  const ids = references.map(({ secretId }) => secretId)
  if (new Set(ids).size < ids.length) throw badRequest('Two references name the same secret.')
  await requireOwnSecrets(database, { who: call.who, policy: config.policy }, ids)
  const { projectId, userId: creatorId } = call.who
  const id = await storeContainer(database, { projectId, creatorId, name, type, references }, config.quota.containers)
  return createdAt(`${call.base}/v1/containers/${id}`)
}

const createdAt = (containerRef: string): Answer => ({
  status: 201,
  json: JSON.stringify({ container_ref: containerRef }),
  headers: { Location: containerRef },
})

async function showContainer({ database }: Service, call: Call): Promise<Answer> {
  const { json, ...container } = await findContainer<{ json: string }>(database, call.params.id, {
    columns: sql`${CONTAINER_JSON} AS json`,
    base: call.base,
  })
  call.allowOn(container)
  return { status: 200, json }
}

/** The lock makes whatever is added to the container at the same time wait, or this wait for it. */
async function deleteContainer({ database }: Service, call: Call): Promise<Answer> {
  return inTransaction(database, async trx => {
    const container = await findContainer(trx, call.params.id, { lock: sql`FOR UPDATE OF c` })
    call.allowOn(container)
    await execute(
      trx,
      sql`WITH unlinked AS (DELETE FROM container_secret WHERE container_id = ${container.id}),
               released AS (DELETE FROM container_consumer WHERE container_id = ${container.id})
          UPDATE container SET deleted_at = now(), acl_users = '{}' WHERE id = ${container.id}`,
    )
    return { status: 204 }
  })
}

function readReference({ base }: Call, body: unknown) {
  const { name, secret_ref } = parseBody(namedReference, body, 'reference')
  return { name, secretId: secretIdOf(secret_ref, base) }
}

async function addSecret({ database, config }: Service, call: Call): Promise<Answer> {
  const container = await findContainer(database, call.params.id)
  call.allowOn(container)
  const { name, secretId } = readReference(call, await call.readJson())
  if (container.type !== 'generic') throw badRequest('Only containers of type generic can be changed.')
  await requireOwnSecrets(database, { who: call.who, policy: config.policy }, [secretId])
  const { hasRoom, held, made } = await one(
    database,
    sql<{ hasRoom: boolean | null; held: boolean; made: boolean }>`
     WITH live AS MATERIALIZED (
       SELECT c.id, (SELECT count(*) FROM container_secret r WHERE r.container_id = c.id) < ${MOST_REFERENCES} AS has_room
         FROM container c WHERE c.id = ${container.id} AND ${liveContainer('c')} FOR KEY SHARE),
     held AS MATERIALIZED (
       SELECT s.id FROM live CROSS JOIN secret s
        WHERE s.id = ${secretId} AND s.project_id = ${call.who.projectId} AND ${LIVE} FOR KEY SHARE OF s),
     made AS (
       INSERT INTO container_secret (container_id, secret_id, name)
       SELECT live.id, held.id, ${name} FROM live CROSS JOIN held WHERE has_room
       ON CONFLICT DO NOTHING RETURNING container_id),
     touched AS (UPDATE container c SET updated_at = now() FROM made WHERE c.id = made.container_id)
     SELECT (SELECT has_room FROM live) AS "hasRoom", EXISTS (SELECT FROM held) AS held, EXISTS (SELECT FROM made) AS made`,
  )
  if (hasRoom === null) throw missing('Container')
  if (!held) throw missing('Secret')
  if (!hasRoom) throw badRequest(`The container refers to ${MOST_REFERENCES} secrets already.`)
  if (!made) throw conflict('The container refers to this secret by this name already.')
  return createdAt(`${call.base}/v1/containers/${container.id}`)
}

async function removeSecret({ database }: Service, call: Call): Promise<Answer> {
  const container = await findContainer(database, call.params.id)
  call.allowOn(container)
  const { name, secretId } = readReference(call, await call.readAnyJson())
  const gone = await maybeOne(
    database,
    sql`WITH gone AS (
       DELETE FROM container_secret
        WHERE container_id = ${container.id} AND secret_id = ${secretId} AND name IS NOT DISTINCT FROM ${name}::text
       RETURNING container_id),
     touched AS (UPDATE container c SET updated_at = now() FROM gone WHERE c.id = gone.container_id)
     SELECT 1 FROM gone`,
  )
  if (gone === undefined) throw missing('The container’s reference to the secret by this name')
  return { status: 204 }
}
