import type { Database } from '../../database/connection.js'
import { execute, many, maybeOne } from '../../database/query.js'
import { json, sql } from '../../database/sql.js'
import { SAME_MISMATCH_SECONDS } from '../../health-manager/record-repairs.js'
import { WAKE_CHANNEL } from '../../load-balancer/change/wake-channel.js'
import type { KnownCertificate } from './plan.js'

/** Which handshake it is. */
export type Place = {
  listenerId: string
  amphoraId: string
  /** The VIP, or '' for the amphora itself. */
  address: string
  /** '' for none. */
  name: string
  keyType: string
}

/** What one handshake showed. */
export type Result = Place & {
  /** Of what should be served. */
  digest: string
  /** What was seen instead, as a clause; null if all is well. */
  problem: string | null
}

/** Load balancers besides these whose proof is due; each is due again after the interval. */
export async function takeDue(
  database: Database,
  intervalSeconds: number,
  limit: number,
  besides: readonly string[],
): Promise<string[]> {
  const rows = await many(
    database,
    sql<{ id: string }>`
      UPDATE load_balancer SET proof_at = now() + ${intervalSeconds} * interval '1 second'
       WHERE id IN (SELECT id FROM load_balancer WHERE proof_at <= now() AND id <> ALL(${[...besides]}::uuid[])
                     ORDER BY proof_at LIMIT ${limit} FOR UPDATE SKIP LOCKED)
      RETURNING id`,
  )
  return rows.map(({ id }) => id)
}

/** Makes the next proof due earlier. */
export const proveSoon = (database: Database, id: string, seconds: number): Promise<number> =>
  execute(
    database,
    sql`UPDATE load_balancer SET proof_at = least(proof_at, now() + ${seconds} * interval '1 second') WHERE id = ${id}`,
  )

/** How many problems each amphora of a load balancer has, by its last handshakes. */
export async function problemCounts(database: Database, id: string): Promise<ReadonlyMap<string, number>> {
  const rows = await many(
    database,
    sql<{ amphoraId: string; problems: number }>`
      SELECT amphora_id AS "amphoraId", count(problem)::int AS problems
        FROM certificate_proof WHERE load_balancer_id = ${id} GROUP BY amphora_id`,
  )
  return new Map(rows.map(({ amphoraId, problems }) => [amphoraId, problems]))
}

/** There is nothing to prove until the next deployment. What was a problem is none any more. */
export const forget = (database: Database, id: string): Promise<number> =>
  execute(
    database,
    sql`
     WITH gone AS (DELETE FROM certificate_proof WHERE load_balancer_id = ${id} RETURNING problem),
     forgotten AS (
       UPDATE load_balancer SET proof_at = NULL WHERE id = ${id} AND NOT EXISTS (SELECT FROM gone WHERE problem IS NOT NULL)),
     rechecked AS (
       UPDATE load_balancer SET proof_at = NULL, recheck_at = now(), retry_at = least(retry_at, now())
        WHERE id = ${id} AND EXISTS (SELECT FROM gone WHERE problem IS NOT NULL)
       RETURNING pg_notify(${WAKE_CHANNEL}, id::text))
     SELECT FROM rechecked`,
  )

export type ServingAmphora = { id: string; address: string; holdsVip: boolean }

export const servingAmphorae = (database: Database, id: string): Promise<ServingAmphora[]> =>
  many(
    database,
    sql<ServingAmphora>`
      SELECT a.id, a.lb_network_ip AS address, coalesce(h.vrrp_master, false) AS "holdsVip"
        FROM amphora a LEFT JOIN amphora_health h ON h.amphora_id = a.id
       WHERE a.load_balancer_id = ${id} AND a.status = 'ALLOCATED' AND a.lb_network_ip IS NOT NULL
         AND a.replace_generation IS NULL`,
  )

export const knownCertificates = (database: Database, id: string): Promise<KnownCertificate[]> =>
  many(
    database,
    sql<KnownCertificate>`
      SELECT ref, digest, ARRAY(SELECT jsonb_array_elements_text(facts->'names')) AS names, facts->>'keyType' AS "keyType"
        FROM tls_material
       WHERE load_balancer_id = ${id} AND kind = 'certificate' AND digest IS NOT NULL AND facts IS NOT NULL`,
  )

/**
 * What a load balancer's amphorae should serve, as a text to compare.
 * @returns null while that is open: a worker is at it, a change waits, or certificates have to be looked up again
 */
export async function standing(database: Database, id: string): Promise<string | null> {
  const row = await maybeOne(
    database,
    sql<{ standing: string }>`
      SELECT jsonb_build_array(b.fence, b.generation, b.bound_sha256, (
               SELECT jsonb_object_agg(m.ref, m.digest) FROM tls_material m
                WHERE m.load_balancer_id = b.id AND m.kind = 'certificate'))::text AS standing
        FROM load_balancer b
       WHERE b.id = ${id} AND b.applied_generation = b.generation
         AND (b.lease_until IS NULL OR b.lease_until < now())
         AND NOT (b.bound_sha256 IS NOT DISTINCT FROM 'due' AND coalesce(b.recheck_at <= now(), false)
                  AND coalesce(b.retry_at <= now(), true))`,
  )
  return row?.standing ?? null
}

/** What has changed with the latest results. */
export type Verdict = { amphoraId: string; problems: string[]; recovered: number }

/**
 * Stores the results of a load balancer. What a planned handshake showed before stays if it showed nothing now. If a
 * listener now serves something else than it should, or again what it should, that goes into the history, and the load
 * balancer is rechecked, which sets or clears its fault.
 */
export async function storeResults(
  database: Database,
  id: string,
  generation: number,
  planned: readonly Place[],
  results: readonly Result[],
): Promise<Verdict[]> {
  return many(
    database,
    sql<Verdict>`
     WITH results AS (
       SELECT * FROM jsonb_to_recordset(${json(results)}::jsonb)
                  AS r ("listenerId" uuid, "amphoraId" uuid, address text, name text, "keyType" text, digest text, problem text)),
     planned AS (
       SELECT * FROM jsonb_to_recordset(${json(planned)}::jsonb)
                  AS r ("listenerId" uuid, "amphoraId" uuid, address text, name text, "keyType" text)),
     before AS (SELECT * FROM certificate_proof WHERE load_balancer_id = ${id} FOR UPDATE),
     gone AS (
       DELETE FROM certificate_proof p WHERE p.load_balancer_id = ${id}
          AND NOT EXISTS (SELECT FROM planned r WHERE (r."listenerId", r."amphoraId", r.address, r.name, r."keyType")
                             = (p.listener_id, p.amphora_id, p.address, p.name, p.key_type))
       RETURNING p.problem),
     stored AS (
       INSERT INTO certificate_proof AS p
         (load_balancer_id, listener_id, amphora_id, address, name, key_type, digest, served_since, proven_at, problem, problem_since)
       SELECT lb.id, r."listenerId", r."amphoraId", r.address, r.name, r."keyType", r.digest,
              CASE WHEN r.problem IS NULL THEN now() END, CASE WHEN r.problem IS NULL THEN now() END,
              r.problem, CASE WHEN r.problem IS NOT NULL THEN now() END
         FROM load_balancer lb CROSS JOIN results r WHERE lb.id = ${id}
       ON CONFLICT (load_balancer_id, listener_id, amphora_id, address, name, key_type) DO UPDATE
          SET digest = excluded.digest, checked_at = now(), problem = excluded.problem,
              proven_at = coalesce(excluded.proven_at, p.proven_at),
              served_since = CASE WHEN excluded.problem IS NOT NULL THEN NULL
                                  WHEN p.digest = excluded.digest THEN coalesce(p.served_since, now()) ELSE now() END,
              problem_since = CASE WHEN excluded.problem IS NOT NULL THEN coalesce(p.problem_since, now()) END),
     compared AS (
       SELECT r."amphoraId", r.problem,
              r.problem IS NOT NULL AND b.problem IS NULL AS is_new, r.problem IS NULL AND b.problem IS NOT NULL AS is_over
         FROM results r LEFT JOIN before b ON (r."listenerId", r."amphoraId", r.address, r.name, r."keyType")
                                            = (b.listener_id, b.amphora_id, b.address, b.name, b.key_type)),
     verdicts AS (
       SELECT "amphoraId", coalesce(array_agg(DISTINCT problem) FILTER (WHERE is_new), '{}') AS problems,
              count(*) FILTER (WHERE is_over)::int AS recovered
         FROM compared GROUP BY "amphoraId" HAVING bool_or(is_new) OR bool_or(is_over)),
     told AS (
       INSERT INTO load_balancer_event (load_balancer_id, generation, kind, detail)
       SELECT ${id}::uuid, ${generation}::bigint, 'certificate', jsonb_build_object('certificate', jsonb_build_object(
                'amphora_id', "amphoraId",
                'notice', CASE WHEN problems <> '{}' THEN 'mismatch' ELSE 'served' END,
                'text', CASE WHEN problems <> '{}' THEN left(array_to_string(problems, '; '), 2000)
                             ELSE 'The amphora serves its certificates as it should again' END))
         FROM verdicts v
        WHERE problems = '{}' OR NOT EXISTS (
                SELECT FROM load_balancer_event e
                 WHERE e.load_balancer_id = ${id} AND e.kind = 'certificate'
                   AND e.detail->'certificate'->>'notice' = 'mismatch'
                   AND e.detail->'certificate'->>'amphora_id' = v."amphoraId"::text
                   AND e.detail->'certificate'->>'repaired_at' IS NOT NULL
                   AND e.created_at > now() - ${SAME_MISMATCH_SECONDS} * interval '1 second'
                   AND e.created_at > ALL (SELECT b.proven_at FROM before b
                                            WHERE b.amphora_id = v."amphoraId" AND b.proven_at IS NOT NULL))),
     rechecked AS (
       UPDATE load_balancer SET recheck_at = now(), retry_at = least(retry_at, now())
        WHERE id = ${id} AND (EXISTS (SELECT FROM verdicts) OR EXISTS (SELECT FROM gone WHERE problem IS NOT NULL))
       RETURNING pg_notify(${WAKE_CHANNEL}, id::text))
     SELECT "amphoraId", problems, recovered FROM verdicts LEFT JOIN (SELECT count(*) FROM rechecked) c ON true`,
  )
}
