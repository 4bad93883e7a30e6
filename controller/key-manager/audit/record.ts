import type { Knex } from 'knex'
import { query } from '../../database/query.js'

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

const COLUMNS = 'action, outcome, user_id, project_id, request_id, remote_address, target_type, target_id, detail'
const VALUES = '?, ?, ?, ?, ?, ?, ?, ?, ?::jsonb'
const addedTo = (detail: string) => `?, ?, ?, ?, ?, ?, ?, ?, coalesce(?::jsonb, '{}') || ${detail}`

function bindingsOf(actor: Actor, entry: AuditEntry): Knex.RawBinding[] {
  return [
    entry.action,
    entry.outcome,
    actor.userId,
    actor.projectId,
    actor.requestId,
    actor.remoteAddress,
    entry.targetType,
    entry.targetId,
    entry.detail === undefined ? null : JSON.stringify(entry.detail),
  ]
}

/**
 * An INSERT of a record for a WITH clause: the record then stands or falls with the change that it is about.
 * @param from name of another part of the WITH clause; there is one record for each of its rows
 * @param detail SQL of a jsonb over such a row, to be added to the detail of the entry
 */
export function auditInsert(
  actor: Actor,
  entry: AuditEntry,
  from: string,
  detail?: string,
): { sql: string; bindings: Knex.RawBinding[] } {
  return {
    sql: `INSERT INTO key_manager_audit.audit_record (${COLUMNS})
          SELECT ${detail === undefined ? VALUES : addedTo(detail)} FROM ${from}`,
    bindings: bindingsOf(actor, entry),
  }
}

/** Stores one record by itself. */
export async function recordAudit(database: Knex, actor: Actor, entry: AuditEntry): Promise<void> {
  await query(
    database,
    `INSERT INTO key_manager_audit.audit_record (${COLUMNS}) VALUES (${VALUES})`,
    bindingsOf(actor, entry),
  )
}
