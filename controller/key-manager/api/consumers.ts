import type { Answer } from '../../api/answer.js'
import { ref } from '../../api/schema.js'
import { maybeOne, one } from '../../database/query.js'
import { and, type Fragment, identifier, identifiers, join, sql } from '../../database/sql.js'
import { conflict, forbidden } from '../../http/errors.js'
import { type ConsumerKind, columnsOf, consumerJson, tableOf } from '../consumers/kind.js'
import { missing, newId, requireId } from '../ids.js'
import { quotaReached } from '../rights.js'
import { type AllowOn, type ApiService, type Call, route } from './dialect.js'
import { PAGE_PARAMETERS, pageJson, parsePage, readPage } from './paging.js'

/** The routes of `/consumers` below a secret or a container. */
export function consumerRoutes(kind: ConsumerKind) {
  const { owner } = kind
  const base = { group: `consumers of ${owner}s`, path: `/v1/${owner}s/:id/consumers`, status: 200 } as const
  const right = `${owner} consumers` as const
  const request = kind.body.meta({ title: 'consumer' })
  return [
    route({
      ...base,
      method: 'GET',
      right,
      summary: `List the consumers of a ${owner}`,
      parameters: PAGE_PARAMETERS,
      answer: ref(`${owner}_consumers`),
      handle: (service, call, allowOn) => listConsumers(service, kind, call, allowOn),
    }),
    route({
      ...base,
      method: 'POST',
      right,
      summary: `Register a consumer of a ${owner}`,
      request,
      answer: ref(owner),
      handle: (service, call, allowOn) => registerConsumer(service, kind, call, allowOn),
    }),
    route({
      ...base,
      method: 'DELETE',
      right,
      summary: `Remove a consumer of a ${owner}`,
      request,
      answer: ref(owner),
      handle: (service, call, allowOn) => removeConsumer(service, kind, call, allowOn),
    }),
    route({
      ...base,
      method: 'GET',
      path: `${base.path}/:consumer`,
      right: `${owner} consumer show` as const,
      summary: `Show a consumer of a ${owner}`,
      answer: ref(`${owner}_consumer`),
      handle: (service, call, allowOn) => showConsumer(service, kind, call, allowOn),
    }),
  ]
}

type Registered = Call<Readonly<Record<string, string>>>

async function listConsumers(
  { database, config }: ApiService,
  kind: ConsumerKind,
  call: Call,
  allowOn: AllowOn,
): Promise<Answer> {
  const owner = await kind.find(database, call.params.id)
  allowOn(owner)
  const page = parsePage(call.query, config)
  const { items, total } = await readPage(
    database,
    {
      table: `${tableOf(kind)} c`,
      where: sql`${identifier('c', `${kind.owner}_id`)} = ${owner.id}`,
      order: kind.order,
      json: consumerJson(kind),
    },
    page,
    call.base,
  )
  const url = `${call.base}/v1/${kind.owner}s/${owner.id}/consumers`
  return { status: 200, json: pageJson('consumers', items, total, { page, query: call.query, url }) }
}

/** Registers a consumer, unless it is registered already. Answers with the record of what is consumed. */
async function registerConsumer(
  { database, config }: ApiService,
  kind: ConsumerKind,
  call: Registered,
  allowOn: AllowOn,
): Promise<Answer> {
  const owner = await kind.find(database, call.params.id)
  allowOn(owner)
  const values = columnValues(kind, await call.body())
  const [table, ownerTable, column] = [tableOf(kind), kind.owner, `${kind.owner}_id`].map(name => identifier(name)) as [
    Fragment,
    Fragment,
    Fragment,
  ]
  const columns = identifiers(columnsOf(kind))
  // The lock prevents a concurrent deletion of the owner. As everywhere, the project's row is locked first.
  const { projectId } = call.caller
  const { fits, id } = await one(
    database,
    sql<{ fits: boolean; id: string | null }>`
     WITH allowed AS MATERIALIZED (
       SELECT quota_allows(${projectId}::text, ${`${kind.owner} consumers`}, ${config.quota.consumers}) AS fits),
     held AS (SELECT o.id FROM allowed, ${ownerTable} o WHERE fits AND o.id = ${owner.id} AND ${kind.live} FOR KEY SHARE OF o),
     made AS (
       INSERT INTO ${table} (id, ${column}, project_id, ${columns})
       SELECT ${newId()}::uuid, held.id, ${projectId}, ${join(values)} FROM held
       ON CONFLICT (${column}, ${columns}) DO UPDATE SET project_id = ${table}.project_id
       RETURNING id, ${column}, xmax = 0 AS is_new),
     touched AS (UPDATE ${ownerTable} o SET updated_at = clock_timestamp() FROM made WHERE is_new AND o.id = made.${column})
     SELECT fits, (SELECT id FROM made) AS id FROM allowed`,
  )
  if (!fits) throw quotaReached('consumers')
  if (id === null) throw missing(kind.owner === 'secret' ? 'Secret' : 'Container')
  const json = await kind.record(database, call, owner.id)
  return {
    status: 200,
    json,
    headers: { Location: `${call.base}/v1/${kind.owner}s/${owner.id}/consumers/${id}` },
  }
}

/** Allowed for the project that registered the consumer and for the owner's project. */
async function removeConsumer(
  { database }: ApiService,
  kind: ConsumerKind,
  call: Registered,
  allowOn: AllowOn,
): Promise<Answer> {
  const owner = await kind.find(database, call.params.id)
  allowOn(owner)
  const values = columnValues(kind, await call.body())
  const table = identifier(tableOf(kind))
  const { projectId } = call.caller
  const isOwner = owner.projectId === projectId
  const same = columnsOf(kind).map((name, at) => sql`${identifier('c', name)} = ${values[at] ?? ''}`)
  const known = await maybeOne(
    database,
    sql<{ registeredBy: string; isBinding: boolean; gone: boolean }>`
     WITH known AS (
       SELECT c.id, c.project_id, c.load_balancer_id IS NOT NULL AS is_binding FROM ${table} c WHERE ${and([sql`${identifier('c', `${kind.owner}_id`)} = ${owner.id}`, ...same])}),
     gone AS (DELETE FROM ${table} c USING known
               WHERE c.id = known.id AND NOT known.is_binding AND (${isOwner} OR known.project_id = ${projectId}) RETURNING c.id)
     SELECT known.project_id AS "registeredBy", known.is_binding AS "isBinding", EXISTS (SELECT 1 FROM gone) AS gone FROM known`,
  )
  if (known !== undefined && !isOwner && known.registeredBy !== projectId) {
    throw forbidden('The consumer was registered by another project.')
  }
  if (known?.isBinding) {
    throw conflict('A load balancer uses it, and stays a consumer until it no longer does.')
  }
  if (known?.gone !== true) throw missing('Consumer')
  return { status: 200, json: await kind.record(database, call, owner.id) }
}

async function showConsumer(
  { database }: ApiService,
  kind: ConsumerKind,
  call: Call,
  allowOn: AllowOn,
): Promise<Answer> {
  const owner = await kind.find(database, call.params.id)
  allowOn(owner)
  const found = await maybeOne(
    database,
    sql<{ json: string }>`
      SELECT ${consumerJson(kind)} AS json FROM ${identifier(tableOf(kind))} c
       WHERE ${identifier('c', `${kind.owner}_id`)} = ${owner.id} AND c.id = ${requireId(call.params.consumer, 'Consumer')}`,
  )
  if (found === undefined) throw missing('Consumer')
  return { status: 200, json: found.json }
}

/** The values in the order of the columns. */
const columnValues = (kind: ConsumerKind, body: Readonly<Record<string, string>>): string[] =>
  Object.keys(kind.fields).map(member => body[member] ?? '')
