import type { Knex } from 'knex'
import type { Answer } from '../../api/answer.js'
import { objectOf, ref } from '../../api/schema.js'
import { execute, maybeOne } from '../../database/query.js'
import { type Fragment, identifier, sql, trusted } from '../../database/sql.js'
import { type AclBody, type AclChange, aclBody, aclJson, parseAclChange } from '../acls/acl.js'
import { type AuditAction, auditInsert, recordAudit } from '../audit/record.js'
import { findContainer, liveContainer } from '../containers/container.js'
import { missing } from '../ids.js'
import type { Target } from '../rights.js'
import { findSecret, LIVE } from '../secrets/secret.js'
import { type AllowOn, type ApiService, actorIn, type Call, route } from './dialect.js'

/** How the two kinds of objects with ACLs differ. */
type Kind = {
  table: 'secret' | 'container'
  label: string
  alias: string
  /** SQL: the row is live. */
  live: Fragment
  /** @throws ApiError 404 */
  find: (database: Knex, id: string | undefined, columns: Fragment) => Promise<Target & { id: string; json: string }>
  read: AuditAction
  changed: AuditAction
  deleted: AuditAction
}

const SECRET: Kind = {
  table: 'secret',
  label: 'Secret',
  alias: 's',
  live: LIVE,
  find: (database, id, columns) => findSecret<{ json: string }>(database, id, { columns }),
  read: 'secret.acl.read',
  changed: 'secret.acl.change',
  deleted: 'secret.acl.delete',
}

const CONTAINER: Kind = {
  table: 'container',
  label: 'Container',
  alias: 'c',
  live: liveContainer('c'),
  find: (database, id, columns) => findContainer<{ json: string }>(database, id, { columns }),
  read: 'container.acl.read',
  changed: 'container.acl.change',
  deleted: 'container.acl.delete',
}

const REFERENCE = objectOf({ acl_ref: ref('reference') })

export const aclRoutes = [SECRET, CONTAINER].flatMap(kind => {
  const { table } = kind
  const base = { group: `ACLs of ${table}s`, path: `/v1/${table}s/:id/acl`, status: 200 } as const
  return [
    route({
      ...base,
      method: 'GET',
      right: `${table} acl read`,
      summary: `Show who may read a ${table}`,
      answer: ref('acl'),
      handle: (service, call, allowOn) => showAcl(service, kind, call, allowOn),
    }),
    route({
      ...base,
      method: 'PUT',
      right: `${table} acl write`,
      summary: `Replace the ACL of a ${table}: who may read it`,
      request: aclBody,
      answer: REFERENCE,
      handle: (service, call, allowOn) => replaceAcl(service, kind, call, allowOn),
    }),
    route({
      ...base,
      method: 'PATCH',
      right: `${table} acl write`,
      summary: `Change who may read a ${table}; members that are not given stay as they are`,
      request: aclBody,
      answer: REFERENCE,
      handle: (service, call, allowOn) => mergeAcl(service, kind, call, allowOn),
    }),
    route({
      ...base,
      method: 'DELETE',
      right: `${table} acl write`,
      summary: `Delete the ACL of a ${table}, so that its whole project may read it`,
      answer: { type: 'null' },
      handle: (service, call, allowOn) => deleteAcl(service, kind, call, allowOn),
    }),
  ]
})

/** @throws ApiError 404, 403 */
async function allowedObject(
  { database }: ApiService,
  kind: Kind,
  call: Call,
  allowOn: AllowOn,
): Promise<{ id: string; json: string }> {
  const object = await kind.find(database, call.params.id, sql`${aclJson(kind.alias)} AS json`)
  allowOn(object)
  return object
}

async function showAcl(service: ApiService, kind: Kind, call: Call, allowOn: AllowOn): Promise<Answer> {
  const { id, json } = await allowedObject(service, kind, call, allowOn)
  await recordAudit(service.database, actorIn(call), {
    action: kind.read,
    outcome: 'success',
    targetType: kind.table,
    targetId: id,
  })
  return { status: 200, json }
}

/** Members that the body omits get their defaults. Without members in `read`, removes the ACL. */
async function replaceAcl(service: ApiService, kind: Kind, call: Call<AclBody>, allowOn: AllowOn): Promise<Answer> {
  const { id } = await allowedObject(service, kind, call, allowOn)
  const change = parseAclChange(await call.body())
  if (change === null) await removeAcl(service, kind, call, id)
  else {
    const whole = { users: change.users ?? [], projectAccess: change.projectAccess ?? true }
    await changeAcl(service, kind, call, { id, change: whole })
  }
  return aclReference(kind, call, id)
}

/** Members that the body omits stay as they are. */
async function mergeAcl(service: ApiService, kind: Kind, call: Call<AclBody>, allowOn: AllowOn): Promise<Answer> {
  const { id } = await allowedObject(service, kind, call, allowOn)
  const change = parseAclChange(await call.body())
  if (change !== null) await changeAcl(service, kind, call, { id, change })
  return aclReference(kind, call, id)
}

async function deleteAcl(service: ApiService, kind: Kind, call: Call, allowOn: AllowOn): Promise<Answer> {
  const { id } = await allowedObject(service, kind, call, allowOn)
  await removeAcl(service, kind, call, id)
  return { status: 200, json: 'null' }
}

const aclReference = ({ table }: Kind, { base }: Call, id: string): Answer => ({
  status: 200,
  json: JSON.stringify({ acl_ref: `${base}/v1/${table}s/${id}/acl` }),
})

/** @throws ApiError 404 when the object was deleted */
async function changeAcl(
  { database }: ApiService,
  { table, alias, live, label, changed }: Kind,
  call: Call,
  { id, change }: { id: string; change: AclChange },
): Promise<void> {
  const audit = auditInsert(
    actorIn(call),
    { action: changed, outcome: 'success', targetType: table, targetId: id },
    sql`changed`,
    sql`jsonb_build_object('users', cardinality(acl_users), 'project_access', acl_project_access)`,
  )
  const row = await maybeOne(
    database,
    sql`WITH changed AS (
       UPDATE ${trusted(`${table} ${alias}`)}
          SET acl_users = coalesce(${change.users}::text[], acl_users),
              acl_project_access = coalesce(${change.projectAccess}::boolean, acl_project_access),
              acl_created_at = coalesce(acl_created_at, now()), acl_updated_at = now(), updated_at = now()
        WHERE ${identifier(alias, 'id')} = ${id} AND ${live} RETURNING acl_users, acl_project_access),
     logged AS (${audit})
     SELECT 1 FROM changed`,
  )
  if (row === undefined) throw missing(label)
}

/** Without an ACL, does nothing and records nothing. */
async function removeAcl(
  { database }: ApiService,
  { table, alias, live, deleted }: Kind,
  call: Call,
  id: string,
): Promise<void> {
  const audit = auditInsert(
    actorIn(call),
    { action: deleted, outcome: 'success', targetType: table, targetId: id },
    sql`changed`,
  )
  await execute(
    database,
    sql`WITH changed AS (
       UPDATE ${trusted(`${table} ${alias}`)}
          SET acl_users = '{}', acl_project_access = true, acl_created_at = NULL, acl_updated_at = NULL, updated_at = now()
        WHERE ${identifier(alias, 'id')} = ${id} AND ${live} AND acl_created_at IS NOT NULL RETURNING 1),
     logged AS (${audit})
     SELECT 1`,
  )
}
