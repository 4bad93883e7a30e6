import type { Database } from '../database/connection.js'
import { execute } from '../database/query.js'
import { json, sql } from '../database/sql.js'
import type { Found } from './found.js'

/** In place of a hash: the key manager must be told again. */
export const MUST_TELL = 'due'

/**
 * Before the key manager is told: it may hear of any of these, and be told of others once this process or the answer is
 * lost. Once it is there, `tend` makes the load balancer due.
 */
export async function storeUntold(
  database: Database,
  id: string,
  references: readonly Pick<Found, 'ref' | 'kind'>[],
): Promise<void> {
  const rows = references.map(({ ref, kind }) => ({ ref, kind }))
  await execute(
    database,
    sql`WITH untold AS (UPDATE load_balancer SET bound_sha256 = ${MUST_TELL} WHERE id = ${id} RETURNING id)
     INSERT INTO tls_material (load_balancer_id, ref, kind)
     SELECT untold.id, r.ref, r.kind
       FROM untold CROSS JOIN jsonb_to_recordset(${json(rows)}::jsonb) AS r (ref text, kind text)
     ON CONFLICT DO NOTHING`,
  )
}

/** Replaces what is known of a load balancer's references. Keeps the last facts of those that cannot be used any more. */
export async function storeFound(
  database: Database,
  id: string,
  found: readonly Found[],
  boundSha256: string,
): Promise<void> {
  const rows = found.map(({ ref, kind, digest = null, facts: known = null, reason = null }) => ({
    ref,
    kind,
    digest,
    facts: known,
    problem: reason,
  }))
  await execute(
    database,
    sql`WITH found AS (
       SELECT * FROM jsonb_to_recordset(${json(rows)}::jsonb)
                  AS f (ref text, kind text, digest text, facts jsonb, problem text)),
     gone AS (
       DELETE FROM tls_material m WHERE m.load_balancer_id = ${id}
          AND NOT EXISTS (SELECT FROM found f WHERE f.ref = m.ref AND f.kind = m.kind)),
     told AS (UPDATE load_balancer SET bound_sha256 = ${boundSha256} WHERE id = ${id} RETURNING id)
     INSERT INTO tls_material AS m (load_balancer_id, ref, kind, digest, facts, problem, problem_since)
     SELECT told.id, f.ref, f.kind, f.digest, f.facts, f.problem, CASE WHEN f.problem IS NOT NULL THEN now() END
       FROM told CROSS JOIN found f
     ON CONFLICT (load_balancer_id, ref, kind) DO UPDATE
        SET digest = coalesce(excluded.digest, m.digest), facts = coalesce(excluded.facts, m.facts),
            problem = excluded.problem, checked_at = now(),
            problem_since = CASE WHEN excluded.problem IS NOT NULL THEN coalesce(m.problem_since, now()) END`,
  )
}
