import { randomBytes } from 'node:crypto'
import type { Knex } from 'knex'
import * as z from 'zod'
import { type Answer, jsonAnswer, NO_CONTENT } from '../../api/answer.js'
import { execute, many, maybeOne } from '../../database/query.js'
import { and, type Fragment, insertion, json, sql, unprepared } from '../../database/sql.js'
import { inTransaction } from '../../database/transaction.js'
import { badRequest, forbidden, notFound } from '../../http/errors.js'
import { accessRuleSchema } from '../access-rules.js'
import type { Named } from '../caller.js'
import {
  type IdentityCall,
  type IdentityRoute,
  listAnswer,
  listForm,
  oneForm,
  route,
  type Service,
} from '../dialect.js'
import { administratorsAndUser, readersAndUser, userAlone } from '../policy.js'
import { lockRights } from '../tokens/revocation.js'
import { newId } from './collection.js'
import * as fields from './fields.js'
import { type Filters, filterConditions, filterParameters } from './filters.js'
import { mustExist } from './references.js'

/** As text with microseconds, which a Date cannot hold. A time without a zone is UTC. */
const time = z
  .string()
  .regex(/^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:?\d\d)?$/, 'must be an ISO 8601 time')
  .transform((text, context) => {
    const date = new Date(/(Z|[+-]\d\d:?\d\d)$/.test(text) ? text : `${text}Z`)
    const [, fraction = ''] = /\.(\d+)/.exec(text) ?? []
    if (!Number.isNaN(date.getTime()))
      return `${date.toISOString().slice(0, 19)}.${fraction.slice(0, 6).padEnd(6, '0')}Z`
    context.addIssue({ code: 'custom', message: 'must be an ISO 8601 time' })
    return z.NEVER
  })

const roleReference = z
  .object({ id: fields.id.optional(), name: fields.id.optional() })
  .refine(ref => ref.id !== undefined || ref.name !== undefined, 'needs an id or a name')

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

const all = '/v3/users/:user_id/application_credentials'
const one = `${all}/:id`
const answer = oneForm('application_credential')
const FILTERS: Filters = { name: { text: sql`c.name` } }

/** Secrets with which programs act for a user in one project, with some of its roles. Deletion revokes their tokens. */
export const applicationCredentialRoutes: readonly IdentityRoute[] = [
  route({
    ...{ method: 'GET', path: all, right: readersAndUser, group: 'application_credentials', status: 200 },
    summary: 'List the application credentials of a user',
    parameters: filterParameters(FILTERS, 'application credentials'),
    answer: listForm('application_credentials'),
    handle: listApplicationCredentials,
  }),
  route({
    ...{ method: 'POST', path: all, right: userAlone, group: 'application_credentials', status: 201 },
    summary: 'Create an application credential; only this answer contains its secret',
    request: createSchema,
    answer,
    handle: createApplicationCredential,
  }),
  route({
    ...{ method: 'GET', path: one, right: readersAndUser, group: 'application_credentials', status: 200 },
    summary: 'Show an application credential',
    answer,
    handle: showApplicationCredential,
  }),
  route({
    ...{ method: 'DELETE', path: one, right: administratorsAndUser, group: 'application_credentials', status: 204 },
    summary: 'Delete an application credential and revoke its tokens',
    handle: deleteApplicationCredential,
  }),
]

type Row = {
  id: string
  user_id: string
  project_id: string
  name: string
  description: string | null
  expires_at: string | null
  unrestricted: boolean
  access_rules: object[] | null
  roles: (Named & { domain_id: null; description: string | null; options: object })[]
}

async function createApplicationCredential(
  { database, logins }: Service,
  call: IdentityCall<z.output<typeof createSchema>>,
): Promise<Answer> {
  const { application_credential: sent } = await call.body()
  const { document } = call.caller
  refuseRestricted(call)
  const { project } = document
  if (project === undefined)
    throw badRequest('An application credential belongs to a project. Use a token that is scoped to one.')
  if (typeof sent.expires_at === 'string' && Date.parse(sent.expires_at) <= Date.now()) {
    throw badRequest("Invalid input for field 'application_credential/expires_at': must be in the future.")
  }
  const secret = sent.secret ?? randomBytes(48).toString('base64url')
  const secret_hash = await logins.hash(secret, document.user.id)
  const id = newId()
  const accessRules = sent.access_rules?.map(rule => ({ id: newId(), ...rule }))
  const row = await inTransaction(database, async trx => {
    const roles = await chooseRoles(trx, document.roles ?? [], sent.roles)
    const columns = {
      id,
      user_id: document.user.id,
      project_id: project.id,
      name: sent.name,
      description: sent.description ?? null,
      secret_hash,
      expires_at: sent.expires_at ?? null,
      unrestricted: sent.unrestricted ?? false,
      access_rules: accessRules === undefined ? null : json(accessRules),
    }
    await execute(trx, sql`INSERT INTO application_credential ${insertion([columns])}`)
    await execute(
      trx,
      sql`INSERT INTO application_credential_role (application_credential_id, role_id)
          SELECT ${id}, unnest(${roles.map(role => role.id)}::text[])`,
    )
    return findOne(trx, document.user.id, id)
  })
  return jsonAnswer(201, { application_credential: { ...present(call, row), secret } })
}

/** The requested roles, or by default all of the token's. @throws ApiError if the token lacks a requested role */
async function chooseRoles(
  trx: Knex,
  held: readonly Named[],
  desired: z.output<typeof roleReference>[] | undefined,
): Promise<Named[]> {
  if (desired === undefined || desired.length === 0) return [...held]
  const chosen = new Map<string, Named>()
  for (const ref of desired) {
    const isReferenced =
      ref.id !== undefined ? sql`id = ${ref.id}` : sql`domain_id IS NULL AND name = ${ref.name ?? ''}`
    const role = await maybeOne(trx, sql<Named>`SELECT id, name FROM role WHERE ${isReferenced}`)
    if (role === undefined) throw notFound(`Could not find role: ${ref.id ?? ref.name}.`)
    if (!held.some(has => has.id === role.id)) {
      throw badRequest(`Invalid application credential: Could not find role assignment with role: ${role.id}.`)
    }
    chosen.set(role.id, role)
  }
  return [...chosen.values()]
}

async function listApplicationCredentials({ database }: Service, call: IdentityCall): Promise<Answer> {
  const user = call.params.user_id!
  await mustExist(database, 'local_user', 'user', user)
  const conditions = [sql`c.user_id = ${user}`, ...filterConditions(FILTERS, call)]
  const rows = await many(database, unprepared(sql<Row>`${select(and(conditions))} ORDER BY c.id`))
  return listAnswer(
    call,
    'application_credentials',
    rows.map(row => present(call, row)),
  )
}

async function showApplicationCredential({ database }: Service, call: IdentityCall): Promise<Answer> {
  const row = await findOne(database, call.params.user_id!, call.params.id!)
  return jsonAnswer(200, { application_credential: present(call, row) })
}

async function deleteApplicationCredential({ database }: Service, call: IdentityCall): Promise<Answer> {
  refuseRestricted(call)
  await inTransaction(database, async trx => {
    await lockRights(trx)
    const { id } = await findOne(trx, call.params.user_id!, call.params.id!)
    await execute(trx, sql`DELETE FROM application_credential WHERE id = ${id}`)
  })
  return NO_CONTENT
}

/** A restricted application credential can neither create nor delete others. */
function refuseRestricted({ caller }: IdentityCall): void {
  if (caller.document.application_credential?.restricted === true) {
    throw forbidden('A restricted application credential cannot manage application credentials.')
  }
}

async function findOne(database: Knex, userId: string, id: string): Promise<Row> {
  const row = await maybeOne(database, select(sql`c.id = ${id} AND c.user_id = ${userId}`))
  if (row === undefined) throw notFound(`Could not find application credential: ${id}.`)
  return row
}

const select = (condition: Fragment) => sql<Row>`
  SELECT c.id, c.user_id, c.project_id, c.name, c.description, c.unrestricted, c.access_rules,
         to_char(c.expires_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US') AS expires_at,
         coalesce((SELECT json_agg(json_build_object('id', r.id, 'name', r.name, 'domain_id', NULL,
                                                     'description', r.description, 'options', r.options) ORDER BY r.name)
                     FROM application_credential_role a JOIN role r ON r.id = a.role_id
                    WHERE a.application_credential_id = c.id), '[]') AS roles
    FROM application_credential c WHERE ${condition}`

const present = (call: IdentityCall, row: Row) => ({
  id: row.id,
  name: row.name,
  description: row.description,
  user_id: row.user_id,
  project_id: row.project_id,
  system: null,
  // Like Keystone's, without a Z: gophercloud cannot parse any other form here.
  expires_at: row.expires_at,
  unrestricted: row.unrestricted,
  roles: row.roles,
  ...(row.access_rules !== null && { access_rules: row.access_rules }),
  links: { self: `${call.base}/v3/users/${row.user_id}/application_credentials/${row.id}` },
})
