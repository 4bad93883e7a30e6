import type { Knex } from 'knex'
import { execute } from '../../database/query.js'
import { type Fragment, json, sql } from '../../database/sql.js'

/** Who acted, and through which request. */
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
  | 'secret.bind'
  | 'secret.acl.read'
  | 'secret.acl.change'
  | 'secret.acl.delete'
  | 'container.bind'
  | 'container.read'
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
  | 'acme-key.create'
  | 'acme-key.revoke'
  | 'acme-account.create'
  | 'acme-account.change'
  | 'project.erase'
  | 'master-key.rotate'
  | 'project-key.rotate'
  | 'audit.prune'
  | 'audit.accept'

export type AuditEntry = {
  action: AuditAction
  outcome: 'success' | 'denied' | 'failure'
  targetType: 'secret' | 'container' | 'order' | 'ca' | 'acme-key' | 'acme-account' | 'project' | 'key' | 'audit'
  targetId: string | null
  /** Nothing secret. */
  detail?: Readonly<Record<string, string | number | boolean | null>>
}

const COLUMNS = sql`action, outcome, user_id, project_id, request_id, remote_address, target_type, target_id, detail`

function recordValues(
  actor: Actor,
  { action, outcome, targetType, targetId, detail }: AuditEntry,
  rowDetail?: Fragment,
): Fragment {
  const entryDetail = sql`${detail === undefined ? null : json(detail)}::jsonb`
  const { userId, projectId, requestId, remoteAddress } = actor
  return sql`${action}, ${outcome}, ${userId}, ${projectId}, ${requestId}, ${remoteAddress}, ${targetType}, ${targetId},
    ${rowDetail === undefined ? entryDetail : sql`coalesce(${entryDetail}, '{}') || ${rowDetail}`}`
}

/**
 * An INSERT for a WITH clause, so that record and change are stored together or not at all.
 * @param from another CTE of the WITH clause; each of its rows gets a record
 * @param detail jsonb expression over such a row, merged into the detail of the entry
 */
export function auditInsert(actor: Actor, entry: AuditEntry, from: Fragment, detail?: Fragment): Fragment {
  return sql`INSERT INTO key_manager_audit.audit_record (${COLUMNS}) SELECT ${recordValues(actor, entry, detail)} FROM ${from}`
}

/** Stores one record in a statement of its own. */
export async function recordAudit(database: Knex, actor: Actor, entry: AuditEntry): Promise<void> {
  await execute(
    database,
    sql`INSERT INTO key_manager_audit.audit_record (${COLUMNS}) VALUES (${recordValues(actor, entry)})`,
  )
}
