import type { Knex } from 'knex'
import { execute } from '../../database/query.js'
import { type Fragment, json, sql } from '../../database/sql.js'

/** Who acted, and by which request. */
export type Actor = {
  userId: string | null
  projectId: string | null
  requestId: string | null
  remoteAddress: string | null
}

export type AuditAction =
  | 'secret.create'
  | 'secret.payload.store'
  | 'secret.payload.read'
  | 'secret.delete'
  | 'secret.acl.read'
  | 'secret.acl.change'
  | 'secret.acl.delete'
  | 'container.acl.read'
  | 'container.acl.change'
  | 'container.acl.delete'
  | 'secret.generate'
  | 'order.create'
  | 'order.fail'
  | 'ca.create'
  | 'ca.delete'
  | 'certificate.issue'
  | 'certificate.revoke'
  | 'project.erase'
  | 'master-key.rotate'
  | 'project-key.rotate'
  | 'audit.prune'
  | 'audit.accept'

export type AuditEntry = {
  action: AuditAction
  outcome: 'success' | 'denied' | 'failure'
  targetType: 'secret' | 'container' | 'order' | 'ca' | 'project' | 'key' | 'audit'
  targetId: string | null
  /** Never anything secret. */
  detail?: Readonly<Record<string, string | number | boolean | null>>
}

const COLUMNS = sql`action, outcome, user_id, project_id, request_id, remote_address, target_type, target_id, detail`

function valuesOf(
  actor: Actor,
  { action, outcome, targetType, targetId, detail }: AuditEntry,
  more?: Fragment,
): Fragment {
  const own = sql`${detail === undefined ? null : json(detail)}::jsonb`
  const { userId, projectId, requestId, remoteAddress } = actor
  return sql`${action}, ${outcome}, ${userId}, ${projectId}, ${requestId}, ${remoteAddress}, ${targetType}, ${targetId},
    ${more === undefined ? own : sql`coalesce(${own}, '{}') || ${more}`}`
}

/**
 * An INSERT of a record for a WITH clause: the record then stands or falls with the change that it is about.
 * @param from name of another part of the WITH clause; there is one record for each of its rows
 * @param detail a jsonb over such a row, to be added to the detail of the entry
 */
export function auditInsert(actor: Actor, entry: AuditEntry, from: Fragment, detail?: Fragment): Fragment {
  return sql`INSERT INTO key_manager_audit.audit_record (${COLUMNS}) SELECT ${valuesOf(actor, entry, detail)} FROM ${from}`
}

/** Stores one record by itself. */
export async function recordAudit(database: Knex, actor: Actor, entry: AuditEntry): Promise<void> {
  await execute(
    database,
    sql`INSERT INTO key_manager_audit.audit_record (${COLUMNS}) VALUES (${valuesOf(actor, entry)})`,
  )
}
