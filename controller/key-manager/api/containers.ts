import type * as z from 'zod'
import type { Answer } from '../../api/answer.js'
import { formOf, objectOf, ref } from '../../api/schema.js'
import { execute, maybeOne, one } from '../../database/query.js'
import { and, sql } from '../../database/sql.js'
import { inTransaction } from '../../database/transaction.js'
import { badRequest, conflict } from '../../http/errors.js'
import { requireUnbound } from '../bindings/binding.js'
import { CONTAINER_CONSUMERS } from '../containers/consumers.js'
import {
  CONTAINER_JSON,
  findContainer,
  liveContainer,
  MAX_REFERENCES,
  namedReference,
  newContainer,
} from '../containers/container.js'
import { requireReferenceNames } from '../containers/reference-names.js'
import { parseSecretReference, requireOwnSecrets } from '../containers/references.js'
import { storeContainer } from '../containers/store.js'
import { missing } from '../ids.js'
import { parseBody, queryText } from '../input.js'
import { LIVE } from '../secrets/secret.js'
import { consumerRoutes } from './consumers.js'
import { type AllowOn, type ApiService, type Call, route } from './dialect.js'
import { filter, PAGE_PARAMETERS, pageJson, parsePage, readPage } from './paging.js'

const base = { group: 'containers', status: 200 } as const
const created = objectOf({ container_ref: ref('reference') })

export const containerRoutes = [
  route({
    ...base,
    method: 'GET',
    path: '/v1/containers',
    right: 'containers list',
    summary: 'List the containers of the project',
    parameters: [
      ...PAGE_PARAMETERS,
      filter('name', 'Only containers with this name.'),
      filter('type', 'Only containers of this type.'),
    ],
    answer: ref('containers'),
    handle: listContainers,
  }),
  route({
    ...base,
    method: 'POST',
    path: '/v1/containers',
    right: 'container create',
    summary: 'Create a container of secrets',
    status: 201,
    request: newContainer,
    answer: created,
    handle: createContainer,
  }),
  route({
    ...base,
    method: 'GET',
    path: '/v1/containers/:id',
    right: 'container show',
    summary: 'Show a container',
    answer: ref('container'),
    handle: showContainer,
  }),
  route({
    ...base,
    method: 'DELETE',
    path: '/v1/containers/:id',
    right: 'container delete',
    summary: 'Delete a container; its secrets stay',
    status: 204,
    handle: deleteContainer,
  }),
  route({
    ...base,
    method: 'POST',
    path: '/v1/containers/:id/secrets',
    right: 'container secrets',
    summary: 'Add a secret to a generic container',
    status: 201,
    request: namedReference,
    answer: created,
    handle: addSecret,
  }),
  route({
    ...base,
    method: 'DELETE',
    path: '/v1/containers/:id/secrets',
    right: 'container secrets',
    summary: 'Remove a secret from a container',
    status: 204,
    requestForm: formOf(namedReference),
    handle: removeSecret,
  }),
  ...consumerRoutes(CONTAINER_CONSUMERS),
]

async function listContainers({ database, config }: ApiService, call: Call): Promise<Answer> {
  const name = queryText(call.query, 'name')
  const type = queryText(call.query, 'type')
  const conditions = [
    sql`c.project_id = ${call.caller.projectId} AND ${liveContainer('c')}`,
    // Without an escape character, every pattern is valid.
    ...(name === null ? [] : [sql`c.name LIKE ${name} ESCAPE ''`]),
    ...(type === null ? [] : [sql`c.type = ${type}`]),
  ]
  const page = parsePage(call.query, config)
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

async function createContainer(
  { database, config }: ApiService,
  call: Call<z.output<typeof newContainer>>,
): Promise<Answer> {
  const { type, name, secret_refs } = await call.body()
  requireReferenceNames(type, secret_refs)
  const references = secret_refs.map(reference => ({
    name: reference.name,
    secretId: parseSecretReference(reference.secret_ref, call.base),
  }))
  const ids = references.map(({ secretId }) => secretId)
  if (new Set(ids).size < ids.length) throw badRequest('Two references refer to the same secret.')
  await requireOwnSecrets(database, { requester: call.caller, policy: config.policy }, ids)
  const { projectId, userId: creatorId } = call.caller
  const id = await storeContainer(database, { projectId, creatorId, name, type, references }, config.quota.containers)
  return createdAt(`${call.base}/v1/containers/${id}`)
}

const createdAt = (containerRef: string): Answer => ({
  status: 201,
  json: JSON.stringify({ container_ref: containerRef }),
  headers: { Location: containerRef },
})

async function showContainer({ database }: ApiService, call: Call, allowOn: AllowOn): Promise<Answer> {
  const { json, ...container } = await findContainer<{ json: string }>(database, call.params.id, {
    columns: sql`${CONTAINER_JSON} AS json`,
    base: call.base,
  })
  allowOn(container)
  return { status: 200, json }
}

/** The lock serialises this with concurrent additions to the container. */
async function deleteContainer({ database }: ApiService, call: Call, allowOn: AllowOn): Promise<Answer> {
  return inTransaction(database, async trx => {
    const container = await findContainer(trx, call.params.id, { lock: sql`FOR UPDATE OF c` })
    allowOn(container)
    await requireUnbound(trx, 'containers', container.id)
    await execute(
      trx,
      sql`WITH unlinked AS (DELETE FROM container_secret WHERE container_id = ${container.id}),
               released AS (DELETE FROM container_consumer WHERE container_id = ${container.id}),
               unrenewed AS (DELETE FROM certificate WHERE id = ${container.id})
          UPDATE container SET deleted_at = now(), acl_users = '{}' WHERE id = ${container.id}`,
    )
    return { status: 204 }
  })
}

async function addSecret(
  { database, config }: ApiService,
  call: Call<z.output<typeof namedReference>>,
  allowOn: AllowOn,
): Promise<Answer> {
  const container = await findContainer(database, call.params.id)
  allowOn(container)
  const { name, secret_ref } = await call.body()
  const secretId = parseSecretReference(secret_ref, call.base)
  if (container.type !== 'generic') throw badRequest('Only containers of type generic can be changed.')
  await requireOwnSecrets(database, { requester: call.caller, policy: config.policy }, [secretId])
  const { hasRoom, held, made } = await one(
    database,
    sql<{ hasRoom: boolean | null; held: boolean; made: boolean }>`
     WITH live AS MATERIALIZED (
       SELECT c.id, (SELECT count(*) FROM container_secret r WHERE r.container_id = c.id) < ${MAX_REFERENCES} AS has_room
         FROM container c WHERE c.id = ${container.id} AND ${liveContainer('c')} FOR KEY SHARE),
     held AS MATERIALIZED (
       SELECT s.id FROM live CROSS JOIN secret s
        WHERE s.id = ${secretId} AND s.project_id = ${call.caller.projectId} AND ${LIVE} FOR KEY SHARE OF s),
     made AS (
       INSERT INTO container_secret (container_id, secret_id, name)
       SELECT live.id, held.id, ${name} FROM live CROSS JOIN held WHERE has_room
       ON CONFLICT DO NOTHING RETURNING container_id),
     touched AS (UPDATE container c SET updated_at = now() FROM made WHERE c.id = made.container_id)
     SELECT (SELECT has_room FROM live) AS "hasRoom", EXISTS (SELECT FROM held) AS held, EXISTS (SELECT FROM made) AS made`,
  )
  if (hasRoom === null) throw missing('Container')
  if (!held) throw missing('Secret')
  if (!hasRoom) throw badRequest(`The container already has the maximum of ${MAX_REFERENCES} references.`)
  if (!made) throw conflict('The container already refers to this secret by this name.')
  return createdAt(`${call.base}/v1/containers/${container.id}`)
}

async function removeSecret({ database }: ApiService, call: Call, allowOn: AllowOn): Promise<Answer> {
  allowOn(await findContainer(database, call.params.id))
  const { name, secret_ref } = parseBody(namedReference, await call.json({ anyType: true }), 'reference')
  const secretId = parseSecretReference(secret_ref, call.base)
  return inTransaction(database, async trx => {
    const container = await findContainer(trx, call.params.id, { lock: sql`FOR UPDATE OF c` })
    await requireUnbound(trx, 'containers', container.id)
    const gone = await maybeOne(
      trx,
      sql`WITH gone AS (
         DELETE FROM container_secret
          WHERE container_id = ${container.id} AND secret_id = ${secretId} AND name IS NOT DISTINCT FROM ${name}::text
         RETURNING container_id),
       touched AS (UPDATE container c SET updated_at = now() FROM gone WHERE c.id = gone.container_id)
       SELECT 1 FROM gone`,
    )
    if (gone === undefined) throw missing('Reference to the secret by this name')
    return { status: 204 }
  })
}
