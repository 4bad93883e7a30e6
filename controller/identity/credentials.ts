import { createHash } from 'node:crypto'
import type { Knex } from 'knex'
import { z } from 'zod'
import { inTransaction } from '../database/transaction.js'
import { badRequest, forbidden, notImplemented } from '../http/errors.js'
import { findRow, newId, type Row } from './collection.js'
import { seal, unseal } from './credential-seal.js'
import * as fields from './fields.js'
import { anyone, isAdmin } from './policy.js'
import { mustExist } from './references.js'
import { type Answer, created, listed, noContent, ok, type Request, type Route } from './request.js'

const CREDENTIAL = { table: 'credential', singular: 'credential' }

const shape = z.object({
  type: fields.name(255),
  blob: z.string().max(65_535),
  user_id: fields.id.optional(),
  project_id: fields.id.nullable().optional(),
})

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
  const { credential: sent } = await request.read(createSchema)
  const user_id = sent.user_id ?? request.token.document.user.id
  refuseOthers(request, user_id)
  const id = sent.type === 'ec2' ? ec2Id(sent.blob) : newId()
  if (sent.type === 'ec2' && typeof sent.project_id !== 'string')
    throw badRequest('An ec2 credential needs a project_id.')
  const row = await inTransaction(request.database, async trx => {
    await mustExist(trx, 'local_user', 'user', user_id)
    await projectMustExist(trx, sent.project_id)
    const [row] = await trx('credential')
      .insert({
        id,
        type: sent.type,
        user_id,
        project_id: sent.project_id ?? null,
        sealed_blob: seal(key, id, sent.blob),
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
  await findAllowed(request, request.database)
  const { credential: sent } = await request.read(updateSchema)
  const row = await inTransaction(request.database, async trx => {
    const before = await findAllowed(request, trx)
    if (sent.user_id !== undefined) {
      refuseOthers(request, sent.user_id)
      await mustExist(trx, 'local_user', 'user', sent.user_id)
    }
    await projectMustExist(trx, sent.project_id)
    const { blob, ...columns } = sent
    const changes = { ...columns, ...(blob !== undefined && { sealed_blob: seal(key, before.id, blob) }) }
    if (Object.keys(changes).length === 0) return before
    const [after] = await trx('credential').where({ id: before.id }).update(changes).returning('*')
    return after as Row
  })
  return ok({ credential: present(key, request, row) })
}

async function deleteCredential(request: Request): Promise<Answer> {
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

async function projectMustExist(trx: Knex, id: string | null | undefined): Promise<void> {
  if (typeof id === 'string') await mustExist(trx, 'project', 'project', id)
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

const present = (key: Buffer, request: Request, row: Row) => ({
  id: row.id,
  type: row.type,
  user_id: row.user_id,
  project_id: row.project_id,
  blob: unseal(key, row.id, row.sealed_blob as Buffer),
  links: { self: `${request.base}/v3/credentials/${row.id}` },
})
