import { randomBytes } from 'node:crypto'
import type { Knex } from 'knex'
import { z } from 'zod'
import { inTransaction } from '../../database/transaction.js'
import { badRequest, forbidden, notFound } from '../../http/errors.js'
import type { Named } from '../caller.js'
import { administratorsAndUser, readersAndUser, userAlone } from '../policy.js'
import { type Answer, created, listed, noContent, ok, type Request, type Route } from '../request.js'
import { isoTime } from '../tokens/document.js'
import { lockRights } from '../tokens/revocation.js'
import { accessRuleSchema } from './access-rules.js'
import { newId } from './collection.js'
import * as fields from './fields.js'
import { mustExist } from './references.js'

const all = '/users/:user_id/application_credentials'
const one = `${all}/:id`

/** Secrets by which programs act for a user in one project, with some of its roles. Deleting one ends its tokens. */
export const applicationCredentialRoutes: readonly Route[] = [
  { method: 'GET', path: all, allow: readersAndUser, answer: listApplicationCredentials },
  { method: 'POST', path: all, allow: userAlone, answer: createApplicationCredential },
  { method: 'GET', path: one, allow: readersAndUser, answer: showApplicationCredential },
  { method: 'DELETE', path: one, allow: administratorsAndUser, answer: deleteApplicationCredential },
]

/** Without a zone it is UTC. */
const time = z
  .string()
  .regex(/^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:?\d\d)?$/, 'must be an ISO 8601 time')
  .transform(text => new Date(/(Z|[+-]\d\d:?\d\d)$/.test(text) ? text : `${text}Z`))
  .refine(date => !Number.isNaN(date.getTime()), 'must be an ISO 8601 time')

const roleReference = z
  .object({ id: fields.id.optional(), name: fields.id.optional() })
  .refine(ref => ref.id !== undefined || ref.name !== undefined, 'A role needs an id or a name')

const createSchema = z.object({
  application_credential: z.object({
    name: fields.name(255),
    secret: z.string().min(1).max(4096).nullable().optional(),
    description: fields.description.nullable().optional(),
    expires_at: time.nullable().optional(),
    roles: z.array(roleReference).max(100).optional(),
    unrestricted: z.boolean().optional(),
    access_rules: z.array(accessRuleSchema).max(100).optional(),
  }),
})

type Row = {
  id: string
  user_id: string
  project_id: string
  name: string
  description: string | null
  expires_at: Date | null
  unrestricted: boolean
  access_rules: object[] | null
  roles: Named[]
}

async function createApplicationCredential(request: Request): Promise<Answer> {
  const { application_credential: sent } = await request.read(createSchema)
  const { document } = request.token
  refuseRestricted(request)
  const { project } = document
  if (project === undefined) throw badRequest('An application credential is bound to a project; the token has none.')
  if (sent.expires_at instanceof Date && sent.expires_at.getTime() <= Date.now()) {
    throw badRequest('expires_at must be in the future.')
  }
  const secret = sent.secret ?? randomBytes(48).toString('base64url')
  const secret_hash = await request.logins.hash(secret, document.user.id)
  const id = newId()
  const accessRules = sent.access_rules?.map(rule => ({ id: newId(), ...rule }))
  const row = await inTransaction(request.database, async trx => {
    const roles = await chooseRoles(trx, document.roles ?? [], sent.roles)
    await trx('application_credential').insert({
      id,
      user_id: document.user.id,
      project_id: project.id,
      name: sent.name,
      description: sent.description ?? null,
      secret_hash,
      expires_at: sent.expires_at ?? null,
      unrestricted: sent.unrestricted ?? false,
      access_rules: accessRules === undefined ? null : JSON.stringify(accessRules),
    })
    await trx('application_credential_role').insert(
      roles.map(role => ({ application_credential_id: id, role_id: role.id })),
    )
    return findOne(trx, document.user.id, id)
  })
  return created({ application_credential: { ...present(request, row), secret } })
}

/** The roles that are asked for, or all of the token's. None may go beyond the token. */
async function chooseRoles(
  trx: Knex,
  held: readonly Named[],
  wanted: z.output<typeof roleReference>[] | undefined,
): Promise<Named[]> {
  if (wanted === undefined || wanted.length === 0) return [...held]
  const chosen = new Map<string, Named>()
  for (const ref of wanted) {
    const role: Named | undefined = await trx('role')
      .where(ref.id !== undefined ? { id: ref.id } : { name: ref.name ?? '' })
      .first('id', 'name')
    if (role === undefined) throw notFound(`Could not find role: ${ref.id ?? ref.name}.`)
    if (!held.some(has => has.id === role.id)) {
      throw badRequest(`Invalid application credential: Could not find role assignment with role: ${role.id}.`)
    }
    chosen.set(role.id, role)
  }
  return [...chosen.values()]
}

async function listApplicationCredentials(request: Request): Promise<Answer> {
  const user = request.params.user_id!
  await mustExist(request.database, 'local_user', 'user', user)
  const name = request.query('name')
  const rows: Row[] = await withRoles(request.database)
    .where({ user_id: user })
    .modify(query => {
      if (name !== undefined) query.where({ name })
    })
    .orderBy('id')
  return listed(
    request,
    'application_credentials',
    rows.map(row => present(request, row)),
  )
}

async function showApplicationCredential(request: Request): Promise<Answer> {
  const row = await findOne(request.database, request.params.user_id!, request.params.id!)
  return ok({ application_credential: present(request, row) })
}

async function deleteApplicationCredential(request: Request): Promise<Answer> {
  refuseRestricted(request)
  await inTransaction(request.database, async trx => {
    await lockRights(trx)
    const { id } = await findOne(trx, request.params.user_id!, request.params.id!)
    await trx('application_credential').where({ id }).delete()
  })
  return noContent
}

/** A restricted application credential can neither make nor remove others. */
function refuseRestricted({ token }: Request): void {
  if (token.document.application_credential?.restricted === true) {
    throw forbidden('A restricted application credential cannot manage application credentials.')
  }
}

async function findOne(database: Knex, userId: string, id: string): Promise<Row> {
  const row: Row | undefined = await withRoles(database).where({ id, user_id: userId }).first()
  if (row === undefined) throw notFound(`Could not find application credential: ${id}.`)
  return row
}

const withRoles = (database: Knex) =>
  database('application_credential as c').select(
    'c.*',
    database.raw(`coalesce((SELECT json_agg(json_build_object('id', r.id, 'name', r.name, 'domain_id', NULL) ORDER BY r.name)
      FROM application_credential_role a JOIN role r ON r.id = a.role_id
     WHERE a.application_credential_id = c.id), '[]') AS roles`),
  )

const present = (request: Request, row: Row) => ({
  id: row.id,
  name: row.name,
  description: row.description,
  user_id: row.user_id,
  project_id: row.project_id,
  system: null,
  expires_at: row.expires_at === null ? null : isoTime(row.expires_at),
  unrestricted: row.unrestricted,
  roles: row.roles,
  ...(row.access_rules !== null && { access_rules: row.access_rules }),
  links: { self: `${request.base}/v3/users/${row.user_id}/application_credentials/${row.id}` },
})
