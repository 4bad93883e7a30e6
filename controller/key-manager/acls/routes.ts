import type { Knex } from 'knex'
import { execute, maybeOne } from '../../database/query.js'
import { type Fragment, identifier, sql, trusted } from '../../database/sql.js'
import { type AuditAction, auditInsert, recordAudit } from '../audit/record.js'
import { findContainer, liveContainer } from '../containers/container.js'
import { missing } from '../ids.js'
import { parseBody } from '../input.js'
import type { Target } from '../rights.js'
import type { Answer, Call, Routes, Service } from '../routes.js'
import { findSecret, LIVE } from '../secrets/secret.js'
import { type AclChange, aclBody, aclJson, changeIn } from './acl.js'

/** What differs between the two kinds of objects that have ACLs. */
type Kind = {
  table: 'secret' | 'container'
  label: string
  alias: string
  /** That a row still counts. */
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

export const aclRoutes = (service: Service): Routes => ({
  'GET /v1/secrets/:id/acl': call => showAcl(service, SECRET, call),
  'PUT /v1/secrets/:id/acl': call => replaceAcl(service, SECRET, call),
  'PATCH /v1/secrets/:id/acl': call => mergeAcl(service, SECRET, call),
  'DELETE /v1/secrets/:id/acl': call => deleteAcl(service, SECRET, call),
  'GET /v1/containers/:id/acl': call => showAcl(service, CONTAINER, call),
  'PUT /v1/containers/:id/acl': call => replaceAcl(service, CONTAINER, call),
  'PATCH /v1/containers/:id/acl': call => mergeAcl(service, CONTAINER, call),
  'DELETE /v1/containers/:id/acl': call => deleteAcl(service, CONTAINER, call),
})

/** @throws ApiError 404, 403 */
async function allowedObject({ database }: Service, kind: Kind, call: Call): Promise<{ id: string; json: string }> {
  const object = await kind.find(database, call.params.id, sql`${aclJson(kind.alias)} AS json`)
  call.allowOn(object)
  return object
}

async function showAcl(service: Service, kind: Kind, call: Call): Promise<Answer> {
  const { id, json } = await allowedObject(service, kind, call)
  await recordAudit(service.database, call.actor, {
    action: kind.read,
    outcome: 'success',
    targetType: kind.table,
    targetId: id,
  })
  return { status: 200, json }
}

/** What the body does not name becomes the default; a body that names nothing leaves no ACL. */
async function replaceAcl(service: Service, kind: Kind, call: Call): Promise<Answer> {
  const { id } = await allowedObject(service, kind, call)
  const change = changeIn(parseBody(aclBody, await call.readJson(), 'ACL'))
  if (change === null) await removeAcl(service, kind, call, id)
  else {
    const whole = { users: change.users ?? [], projectAccess: change.projectAccess ?? true }
    await changeAcl(service, kind, call, { id, change: whole })
  }
  return referring(kind, call, id)
}

/** What the body does not name stays. */
async function mergeAcl(service: Service, kind: Kind, call: Call): Promise<Answer> {
  const { id } = await allowedObject(service, kind, call)
  const change = changeIn(parseBody(aclBody, await call.readJson(), 'ACL'))
  if (change !== null) await changeAcl(service, kind, call, { id, change })
  return referring(kind, call, id)
}

async function deleteAcl(service: Service, kind: Kind, call: Call): Promise<Answer> {
  const { id } = await allowedObject(service, kind, call)
  await removeAcl(service, kind, call, id)
  return { status: 200, json: 'null' }
}

const referring = ({ table }: Kind, { base }: Call, id: string): Answer => ({
  status: 200,
  json: JSON.stringify({ acl_ref: `${base}/v1/${table}s/${id}/acl` }),
})

/** @throws ApiError 404 when the object was deleted meanwhile */
async function changeAcl(
  { database }: Service,
  { table, alias, live, label, changed }: Kind,
  { actor }: Call,
  { id, change }: { id: string; change: AclChange },
): Promise<void> {
  const audit = auditInsert(
    actor,
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

/** Where there is no ACL nothing is done, and nothing recorded. */
async function removeAcl(
  { database }: Service,
  { table, alias, live, deleted }: Kind,
  { actor }: Call,
  id: string,
): Promise<void> {
  const audit = auditInsert(
    actor,
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
