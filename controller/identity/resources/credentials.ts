import { createHash } from 'node:crypto'
import type { Knex } from 'knex'
import { z } from 'zod'
import { inTransaction } from '../../database/transaction.js'
import { badRequest, forbidden, notImplemented } from '../../http/errors.js'
import { anyone, isAdmin } from '../policy.js'
import { type Answer, created, listed, noContent, ok, type Request, type Route } from '../request.js'
import { findRow, newId, type Row } from './collection.js'
import { seal, unseal } from './credential-seal.js'
import * as fields from './fields.js'
import { mustExist } from './references.js'
import { effectiveRoles } from './roles/effective-roles.js'

const CREDENTIAL = { table: 'credential', singular: 'credential' }

const shape = z.object({
  type: fields.name(255),
  blob: z.string().max(65_535),
  user_id: fields.id.optional(),
  project_id: fields.id.nullable().optional(),
})

const NEEDS_PROJECT = 'An ec2 credential needs a project_id.'

const createSchema = z.object({ credential: shape })
const updateSchema = z.object({ credential: shape.partial() })

/**
 * Secrets that users keep here: keys of EC2, seeds of TOTP, certificates. Everyone has its own; administrators have all.
 * @param key 32 bytes under which the blobs are encrypted; without it none can be stored
 */
export function credentialRoutes(key: Buffer | null): readonly Route[] {
  return [
    { method: 'GET', path: '/credentials', allow: anyone, answer: request => listCredentials(needed(key), request) },
    { method: 'POST', path: '/credentials', allow: anyone, answer: request => createCredential(needed(key), request) },
    { method: 'GET', path: '/credentials/:id', allow: anyone, answer: request => showCredential(needed(key), request) },
    { method: 'PATCH', path: '/credentials/:id', allow: anyone, answer: request => update(needed(key), request) },
    { method: 'DELETE', path: '/credentials/:id', allow: anyone, answer: deleteCredential },
  ]
}

function needed(key: Buffer | null): Buffer {
  if (key === null) throw notImplemented('Credentials cannot be kept: this service was started without a key for them.')
  return key
}

async function listCredentials(key: Buffer, request: Request): Promise<Answer> {
  const { database, token, query } = request
  const rows: Row[] = await database('credential')
    .modify(credentials => {
      if (!isAdmin(token.document)) credentials.where({ user_id: token.document.user.id })
      for (const column of ['user_id', 'type']) {
        const value = query(column)
        if (value !== undefined) credentials.where(column, value)
      }
    })
    .orderBy('id')
  return listed(
    request,
    'credentials',
    rows.map(row => present(key, request, row)),
  )
}

async function createCredential(key: Buffer, request: Request): Promise<Answer> {
  refuseRestricted(request.token)
  const { credential: sent } = await request.read(createSchema)
  const user_id = sent.user_id ?? request.token.document.user.id
  refuseOthers(request, user_id)
  const isEc2 = sent.type === 'ec2'
  if (isEc2 && typeof sent.project_id !== 'string') throw badRequest(NEEDS_PROJECT)
  const id = isEc2 ? ec2Id(sent.blob) : newId()
  const blob = isEc2 ? boundToApplicationCredential(request.token, sent.blob) : sent.blob
  const row = await inTransaction(request.database, async trx => {
    await mustExist(trx, 'local_user', 'user', user_id)
    await requireProject(trx, request, user_id, sent.project_id)
    const [row] = await trx('credential')
      .insert({
        id,
        type: sent.type,
        user_id,
        project_id: sent.project_id ?? null,
        sealed_blob: seal(key, id, blob),
      })
      .returning('*')
    return row as Row
  })
  return created({ credential: present(key, request, row) })
}

async function showCredential(key: Buffer, request: Request): Promise<Answer> {
  return ok({ credential: present(key, request, await findAllowed(request, request.database)) })
}

async function update(key: Buffer, request: Request): Promise<Answer> {
  refuseRestricted(request.token)
  await findAllowed(request, request.database)
  const { credential: sent } = await request.read(updateSchema)
  const row = await inTransaction(request.database, async trx => {
    const before = await findAllowed(request, trx)
    if (sent.user_id !== undefined) {
      refuseOthers(request, sent.user_id)
      await mustExist(trx, 'local_user', 'user', sent.user_id)
    }
    const after = { ...before, ...sent }
    await requireProject(trx, request, after.user_id as string, sent.project_id)
    if (after.type === 'ec2' && typeof after.project_id !== 'string') throw badRequest(NEEDS_PROJECT)
    if (after.type === 'ec2') requireSameKey(unseal(key, before.id, before.sealed_blob as Buffer), before.type, sent)
    const { blob, ...columns } = sent
    const changes = { ...columns, ...(blob !== undefined && { sealed_blob: seal(key, before.id, blob) }) }
    if (Object.keys(changes).length === 0) return before
    const [row] = await trx('credential').where({ id: before.id }).update(changes).returning('*')
    return row as Row
  })
  return ok({ credential: present(key, request, row) })
}

async function deleteCredential(request: Request): Promise<Answer> {
  refuseRestricted(request.token)
  const row = await findAllowed(request, request.database)
  await request.database('credential').where({ id: row.id }).delete()
  return noContent
}

/** Its own credential, or any for an administrator. Others cannot tell which ids exist. */
async function findAllowed(request: Request, database: Knex): Promise<Row> {
  const { token, params } = request
  if (isAdmin(token.document)) return findRow(database, CREDENTIAL, params.id!)
  const own = await database('credential').where({ id: params.id!, user_id: token.document.user.id }).first()
  if (own === undefined) throw forbidden()
  return own as Row
}

function refuseOthers({ token }: Request, userId: string): void {
  if (userId !== token.document.user.id && !isAdmin(token.document)) throw forbidden()
}

/** What an application credential may do must not grow by a credential that it makes. */
function refuseRestricted({ document }: Request['token']): void {
  if (document.application_credential?.restricted === true) {
    throw forbidden('A restricted application credential cannot manage credentials.')
  }
}

/**
 * A project on which the user has a role; for an application credential its own. Whether another one exists is not told.
 * @throws ApiError 403; 404 for an administrator, who may name any project
 */
async function requireProject(
  trx: Knex,
  { token: { document } }: Request,
  userId: string,
  id: string | null | undefined,
): Promise<void> {
  if (typeof id !== 'string') return
  if (document.application_credential !== undefined && id !== document.project?.id) throw forbidden()
  if (isAdmin(document)) await mustExist(trx, 'project', 'project', id)
  else if ((await effectiveRoles(trx, userId, { projectId: id, domainId: null })).length === 0) throw forbidden()
}

const ec2Blob = z.object({ access: z.string().min(1), secret: z.string() })

/** An EC2 credential is found by the hash of its access key. */
function ec2Id(blob: string): string {
  try {
    return createHash('sha256')
      .update(ec2Blob.parse(JSON.parse(blob)).access)
      .digest('hex')
  } catch {
    throw badRequest('The blob of an ec2 credential must be JSON with access and secret.')
  }
}

/** Who uses the keys later must know under which rights they were made. */
function boundToApplicationCredential({ document }: Request['token'], blob: string): string {
  const { application_credential: credential } = document
  const { app_cred_id: _, ...members } = JSON.parse(blob) as Record<string, unknown>
  return JSON.stringify(credential === undefined ? members : { ...members, app_cred_id: credential.id })
}

const KEY_MEMBERS = ['access', 'app_cred_id', 'trust_id', 'access_token_id'] as const

/**
 * The access key is what an ec2 credential is found by, and the others say under which rights it was made: they stay.
 * @throws ApiError 400
 */
function requireSameKey(
  before: string,
  typeBefore: unknown,
  sent: { type?: string | undefined; blob?: string | undefined },
): void {
  if (typeBefore !== 'ec2') throw badRequest('A credential of another type cannot become an ec2 credential.')
  if (sent.blob === undefined) return
  ec2Id(sent.blob)
  const [old, fresh] = [before, sent.blob].map(blob => JSON.parse(blob) as Record<string, unknown>)
  for (const member of KEY_MEMBERS) {
    if (old?.[member] !== fresh?.[member]) throw badRequest(`${member} of an ec2 credential cannot be changed.`)
  }
}

const present = (key: Buffer, request: Request, row: Row) => ({
  id: row.id,
  type: row.type,
  user_id: row.user_id,
  project_id: row.project_id,
  blob: unseal(key, row.id, row.sealed_blob as Buffer),
  links: { self: `${request.base}/v3/credentials/${row.id}` },
})
