import * as z from 'zod'
import type { Answer } from '../../../api/answer.js'
import { objectOf, ref } from '../../../api/schema.js'
import { sql } from '../../../database/sql.js'
import { forbidden } from '../../../http/errors.js'
import { BINDING_KEY_JSON, createBindingKey, revokeBindingKey } from '../../acme-server/store/binding-keys.js'
import { missing, requireId } from '../../ids.js'
import { textUpTo } from '../../input.js'
import { type ApiService, actorIn, type Call, route } from '../dialect.js'
import { PAGE_PARAMETERS, pageJson, parsePage, readPage } from '../paging.js'

const newKey = z.object({ name: textUpTo(255).nullish() }).meta({ title: 'ACME account key' })

const PATH = '/v1/acme-accounts'
const base = { group: 'ACME accounts', status: 200 } as const

/** Keys with which ACME clients create accounts of the project (external account binding). */
export const acmeAccountRoutes = [
  route({
    ...base,
    method: 'GET',
    path: PATH,
    right: 'acme accounts read',
    summary: 'List the keys for ACME accounts of the project',
    parameters: PAGE_PARAMETERS,
    answer: ref('acme_accounts'),
    handle: listKeys,
  }),
  route({
    ...base,
    method: 'POST',
    path: PATH,
    right: 'acme account write',
    summary: 'Create a key for ACME accounts of the project; it is shown only once',
    status: 201,
    request: newKey,
    answer: objectOf({ key_id: { type: 'string' }, hmac_key: { type: 'string' }, directory: ref('reference') }),
    handle: createKey,
  }),
  route({
    ...base,
    method: 'DELETE',
    path: `${PATH}/:id`,
    right: 'acme account write',
    summary: 'Revoke a key and all ACME accounts that it created',
    status: 204,
    handle: revokeKey,
  }),
]

async function listKeys({ database, config }: ApiService, call: Call): Promise<Answer> {
  const page = parsePage(call.query, config)
  const selection = {
    table: 'acme_binding_key b',
    where: sql`b.project_id = ${call.caller.projectId}`,
    order: sql`b.created_at, b.id`,
    json: BINDING_KEY_JSON,
  }
  const { items, total } = await readPage(database, selection, page, call.base)
  const url = `${call.base}${PATH}`
  return { status: 200, json: pageJson('acme_accounts', items, total, { page, query: call.query, url }) }
}

async function createKey(service: ApiService, call: Call<z.output<typeof newKey>>): Promise<Answer> {
  const { name } = await call.body()
  const { projectId, userId } = call.caller
  const made = await createBindingKey(service, { projectId, creatorId: userId, name: name || null }, actorIn(call))
  if (made === 'full') throw forbidden('The project has 1000 keys for ACME accounts: revoke some.')
  const body = { key_id: made.id, hmac_key: made.key.toString('base64url'), directory: `${call.base}/acme/directory` }
  return { status: 201, json: JSON.stringify(body) }
}

async function revokeKey({ database }: ApiService, call: Call): Promise<Answer> {
  const id = requireId(call.params.id, 'ACME account key')
  if (await revokeBindingKey({ database }, { id, projectId: call.caller.projectId }, actorIn(call))) {
    return { status: 204 }
  }
  throw missing('ACME account key')
}
