import type { Knex } from 'knex'
import { execute } from '../../database/query.js'
import { trusted, unprepared } from '../../database/sql.js'

/** A role without login. The service's role may only add and link records, and remove those past their retention. */
const OWNER = 'krater_key_manager_audit'
const SERVICE = 'krater_key_manager'
const INSERTED_COLUMNS =
  'action, outcome, user_id, project_id, request_id, remote_address, target_type, target_id, detail'

/**
 * Transfers the audit log to a separate role and schema. The key manager's role then can neither disable its
 * triggers nor drop it, as the owner of a schema could. Run as superuser after the key manager's migrations;
 * idempotent.
 */
export async function transferAuditLog(administrator: Knex): Promise<void> {
  const statement = trusted(`
    DO $$ BEGIN
      IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '${OWNER}') THEN CREATE ROLE ${OWNER} NOLOGIN; END IF;
      CREATE SCHEMA IF NOT EXISTS key_manager_audit AUTHORIZATION ${OWNER};
      IF to_regclass('key_manager.audit_record') IS NOT NULL THEN
        ALTER TABLE key_manager.audit_record SET SCHEMA key_manager_audit;
        ALTER TABLE key_manager.audit_anchor SET SCHEMA key_manager_audit;
        ALTER FUNCTION key_manager.removable_audit(timestamptz) SET SCHEMA key_manager_audit;
        ALTER FUNCTION key_manager.refuse_rewriting_audit() SET SCHEMA key_manager_audit;
        ALTER FUNCTION key_manager.refuse_moving_audit_anchor() SET SCHEMA key_manager_audit;
      END IF;
      ALTER TABLE key_manager_audit.audit_record OWNER TO ${OWNER};
      ALTER TABLE key_manager_audit.audit_anchor OWNER TO ${OWNER};
      -- Triggers run with the search path of the writer, who must not shadow these tables.
      ALTER FUNCTION key_manager_audit.removable_audit(timestamptz) OWNER TO ${OWNER};
      ALTER FUNCTION key_manager_audit.refuse_rewriting_audit() OWNER TO ${OWNER};
      ALTER FUNCTION key_manager_audit.refuse_rewriting_audit() SET search_path = key_manager_audit, pg_temp;
      ALTER FUNCTION key_manager_audit.refuse_moving_audit_anchor() OWNER TO ${OWNER};
      ALTER FUNCTION key_manager_audit.refuse_moving_audit_anchor() SET search_path = key_manager_audit, pg_temp;
      GRANT USAGE ON SCHEMA key_manager_audit TO ${SERVICE};
      GRANT SELECT, DELETE, INSERT (${INSERTED_COLUMNS}), UPDATE (position, hash) ON key_manager_audit.audit_record TO ${SERVICE};
      GRANT SELECT, INSERT, UPDATE ON key_manager_audit.audit_anchor TO ${SERVICE};
    END $$`)
  await execute(administrator, unprepared(statement))
}
