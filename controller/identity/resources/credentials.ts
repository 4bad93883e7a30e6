import { createHash } from 'node:crypto'
import type { Knex } from 'knex'
import * as z from 'zod'
import { type Answer, jsonAnswer, NO_CONTENT } from '../../api/answer.js'
import { execute, many, maybeOne, one } from '../../database/query.js'
import { and, assignments, insertion, sql, unprepared } from '../../database/sql.js'
import { inTransaction } from '../../database/transaction.js'
import { badRequest, forbidden, notFound, notImplemented } from '../../http/errors.js'
import {
  type IdentityCall,
  type IdentityRoute,
  listAnswer,
  listForm,
  oneForm,
  route,
  type Service,
} from '../dialect.js'
import { anyone, isAdmin } from '../policy.js'
import { effectiveRoles } from '../tokens/effective-roles.js'
import type { StoredToken } from '../tokens/store.js'
import { newId } from './collection.js'
import { seal, unseal } from './credential-seal.js'
import * as fields from './fields.js'
import { type Filters, filterConditions, filterParameters } from './filters.js'
import { mustExist } from './references.js'

type Row = { id: string; type: string; user_id: string; project_id: string | null; sealed_blob: Buffer }

const COLUMNS = sql`id, type, user_id, project_id, sealed_blob`

const shape = z.object({
  type: fields.name(255),
  blob: z.string().max(65_535),
  user_id: fields.id.optional(),
  project_id: fields.id.nullable().optional(),
})

const NEEDS_PROJECT = 'An ec2 credential needs a project_id.'

const createSchema = z.object({ credential: shape })
const updateSchema = z.object({ credential: shape.partial() })

const all = '/v3/credentials'
const item = `${all}/:id`
const answer = oneForm('credential')
const FILTERS: Filters = { user_id: 'text', type: 'text' }

/** Secrets that users store here: EC2 keys, TOTP seeds, certificates. Users manage their own, administrators all. */
export const credentialRoutes: readonly IdentityRoute[] = [
  route({
    ...{ method: 'GET', path: all, right: anyone, group: 'credentials', status: 200 },
    summary: 'List credentials',
    parameters: filterParameters(FILTERS, 'credentials'),
    answer: listForm('credentials'),
    handle: listCredentials,
  }),
  route({
    ...{ method: 'POST', path: all, right: anyone, group: 'credentials', status: 201 },
    summary: 'Create a credential',
    request: createSchema,
    answer,
    handle: createCredential,
  }),
  route({
    ...{ method: 'GET', path: item, right: anyone, group: 'credentials', status: 200 },
    summary: 'Show a credential',
    answer,
    handle: showCredential,
  }),
  route({
    ...{ method: 'PATCH', path: item, right: anyone, group: 'credentials', status: 200 },
    summary: 'Update a credential; attributes not given stay unchanged',
    request: updateSchema,
    answer,
    handle: update,
  }),
  route({
    ...{ method: 'DELETE', path: item, right: anyone, group: 'credentials', status: 204 },
    summary: 'Delete a credential',
    handle: deleteCredential,
  }),
]

/** @throws ApiError 501 */
function keyOf({ credentialKey: key }: Service): Buffer {
  if (key === null) throw notImplemented('This deployment does not support credentials.')
  return key
}

async function listCredentials(service: Service, call: IdentityCall): Promise<Answer> {
  const key = keyOf(service)
  const { document } = call.caller
  const own = isAdmin(document) ? sql`true` : sql`user_id = ${document.user.id}`
  const conditions = [own, ...filterConditions(FILTERS, call)]
  const rows = await many(
    service.database,
    unprepared(sql<Row>`SELECT ${COLUMNS} FROM credential WHERE ${and(conditions)} ORDER BY id`),
  )
  return listAnswer(
    call,
    'credentials',
    rows.map(row => present(key, call, row)),
  )
}

async function createCredential(service: Service, call: IdentityCall<z.output<typeof createSchema>>): Promise<Answer> {
  const key = keyOf(service)
  refuseRestricted(call.caller)
  const { credential: sent } = await call.body()
  const user_id = sent.user_id ?? call.caller.document.user.id
  refuseOthers(call, user_id)
  const isEc2 = sent.type === 'ec2'
  if (isEc2 && typeof sent.project_id !== 'string') throw badRequest(NEEDS_PROJECT)
  const id = isEc2 ? ec2Id(sent.blob) : newId()
  const blob = isEc2 ? boundToApplicationCredential(call.caller, sent.blob) : sent.blob
  const row = await inTransaction(service.database, async trx => {
    await mustExist(trx, 'local_user', 'user', user_id)
    await requireProject(trx, call.caller, user_id, sent.project_id)
    const columns = {
      id,
      type: sent.type,
      user_id,
      project_id: sent.project_id ?? null,
      sealed_blob: seal(key, id, blob),
    }
    return one(trx, sql<Row>`INSERT INTO credential ${insertion([columns])} RETURNING ${COLUMNS}`)
  })
  return jsonAnswer(201, { credential: present(key, call, row) })
}

async function showCredential(service: Service, call: IdentityCall): Promise<Answer> {
  const key = keyOf(service)
  return jsonAnswer(200, { credential: present(key, call, await findAllowed(call, service.database)) })
}

async function update(service: Service, call: IdentityCall<z.output<typeof updateSchema>>): Promise<Answer> {
  const key = keyOf(service)
  refuseRestricted(call.caller)
  await findAllowed(call, service.database)
  const { credential: sent } = await call.body()
  const row = await inTransaction(service.database, async trx => {
    const before = await findAllowed(call, trx)
    if (sent.user_id !== undefined) {
      refuseOthers(call, sent.user_id)
      await mustExist(trx, 'local_user', 'user', sent.user_id)
    }
    const { type = before.type, user_id = before.user_id, project_id = before.project_id } = sent
    await requireProject(trx, call.caller, user_id, sent.project_id)
    if (type === 'ec2' && project_id === null) throw badRequest(NEEDS_PROJECT)
    if (type === 'ec2') requireSameRights(unseal(key, before.id, before.sealed_blob), before.type, sent)
    const { blob, ...columns } = sent
    const changes = { ...columns, ...(blob !== undefined && { sealed_blob: seal(key, before.id, blob) }) }
    if (Object.keys(changes).length === 0) return before
    return one(
      trx,
      sql<Row>`UPDATE credential SET ${assignments(changes)} WHERE id = ${before.id} RETURNING ${COLUMNS}`,
    )
  })
  return jsonAnswer(200, { credential: present(key, call, row) })
}

async function deleteCredential({ database }: Service, call: IdentityCall): Promise<Answer> {
  refuseRestricted(call.caller)
  const row = await findAllowed(call, database)
  await execute(database, sql`DELETE FROM credential WHERE id = ${row.id}`)
  return NO_CONTENT
}

/** The user's own credential, or any for an administrator. Does not reveal to other users which IDs exist. */
async function findAllowed(call: IdentityCall, database: Knex): Promise<Row> {
  const { caller, params } = call
  const id = params.id!
  const found = await maybeOne(database, sql<Row>`SELECT ${COLUMNS} FROM credential WHERE id = ${id}`)
  if (isAdmin(caller.document)) {
    if (found === undefined) throw notFound(`Could not find credential: ${id}.`)
    return found
  }
  if (found?.user_id !== caller.document.user.id) throw forbidden()
  return found
}

function refuseOthers({ caller }: Pick<IdentityCall, 'caller'>, userId: string): void {
  if (userId !== caller.document.user.id && !isAdmin(caller.document)) throw forbidden()
}

/** A restricted application credential must not gain rights through a credential it creates. */
function refuseRestricted({ document }: StoredToken): void {
  if (document.application_credential?.restricted === true) {
    throw forbidden('A restricted application credential cannot manage credentials.')
  }
}

/**
 * Accepts only a project on which the user has a role and, for an application credential, its own project. Does not
 * reveal whether others exist.
 * @throws ApiError 403; 404 for an administrator, who may name any project
 */
async function requireProject(
  trx: Knex,
  { document }: StoredToken,
  userId: string,
  id: string | null | undefined,
): Promise<void> {
  if (typeof id !== 'string') return
  if (document.application_credential !== undefined && id !== document.project?.id) throw forbidden()
  if (isAdmin(document)) await mustExist(trx, 'project', 'project', id)
  else if ((await effectiveRoles(trx, userId, { projectId: id, domainId: null })).length === 0) throw forbidden()
}

const ec2Blob = z.object({ access: z.string().min(1), secret: z.string() })

/** The ID of an EC2 credential is the hash of its access key. */
function ec2Id(blob: string): string {
  try {
    return createHash('sha256')
      .update(ec2Blob.parse(JSON.parse(blob)).access)
      .digest('hex')
  } catch {
    throw badRequest('The blob of an ec2 credential must be JSON with access and secret.')
  }
}

/** Records in the blob which application credential created the keys, since its limits apply to their use. */
function boundToApplicationCredential({ document }: StoredToken, blob: string): string {
  const { application_credential: credential } = document
  const { app_cred_id: _, ...members } = JSON.parse(blob) as Record<string, unknown>
  return JSON.stringify(credential === undefined ? members : { ...members, app_cred_id: credential.id })
}

/** They record the rights with which an ec2 credential was created. */
const FIXED_MEMBERS = ['app_cred_id', 'trust_id', 'access_token_id', 'access_id'] as const

/** @throws ApiError 400 */
function requireSameRights(
  before: string,
  typeBefore: string,
  sent: { type?: string | undefined; blob?: string | undefined },
): void {
  if (typeBefore !== 'ec2') throw badRequest('A credential of another type cannot become an ec2 credential.')
  if (sent.blob === undefined) return
  ec2Id(sent.blob)
  const [old, fresh] = [before, sent.blob].map(blob => JSON.parse(blob) as Record<string, unknown>)
  for (const member of FIXED_MEMBERS) {
    if (old?.[member] !== fresh?.[member]) throw badRequest(`${member} of an ec2 credential cannot be changed.`)
  }
}

const present = (key: Buffer, call: IdentityCall, row: Row) => ({
  id: row.id,
  type: row.type,
  user_id: row.user_id,
  project_id: row.project_id,
  blob: unseal(key, row.id, row.sealed_blob),
  links: { self: `${call.base}/v3/credentials/${row.id}` },
})
