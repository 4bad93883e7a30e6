import type { Database } from '../../../../database/connection.js'
import { many, one } from '../../../../database/query.js'
import { sql } from '../../../../database/sql.js'
import type { Candidate, Progress } from './plan-upgrade.js'

/** Amphorae of all load balancers, or of one, or with one image tag. */
export type Selection = { loadBalancerId: string | null; imageTag: string | null }

/**
 * @param standardDriver driver of amphorae that an earlier version made
 * @param hostId this controller host; null if it is none yet
 */
export const readCandidates = (
  database: Database,
  { loadBalancerId, imageTag }: Selection,
  standardDriver: string,
  hostId: string | null,
): Promise<Candidate[]> =>
  many(
    database,
    sql<Candidate>`
     SELECT a.id, a.status, a.load_balancer_id AS "loadBalancerId", lb.name AS "loadBalancerName",
            coalesce(h.vrrp_master, false) AS "holdsVip", a.replace_generation AS "replaceGeneration",
            a.agent_version AS "agentVersion", a.agent_bundle AS "agentBundle", a.upgrade_to AS "upgradeTo",
            coalesce(a.compute_driver, ${standardDriver}) AS driver, a.image_tag AS "imageTag", a.image_id AS "imageId",
            host.name AS elsewhere
       FROM amphora a
       LEFT JOIN load_balancer lb ON lb.id = a.load_balancer_id
       LEFT JOIN amphora_health h ON h.amphora_id = a.id
       LEFT JOIN controller_host host ON host.id = a.host_id AND a.host_id IS DISTINCT FROM ${hostId}::uuid
      WHERE (${loadBalancerId}::uuid IS NULL OR a.load_balancer_id = ${loadBalancerId}::uuid)
        AND (${imageTag}::text IS NULL OR a.image_tag = ${imageTag})
        AND lb.change IS DISTINCT FROM 'delete'
      ORDER BY a.created_at, a.id`,
  )

/** By the amphora's id; every amphora has an entry. */
export async function readProgress(
  database: Database,
  amphorae: readonly { id: string; loadBalancerId: string | null }[],
): Promise<ReadonlyMap<string, Progress>> {
  const ids = amphorae.map(({ id }) => id)
  const loadBalancers = amphorae.map(({ loadBalancerId }) => loadBalancerId)
  const rows = await many(
    database,
    sql<Progress & { id: string }>`
     SELECT asked.id, a.status, a.agent_bundle AS "agentBundle", a.upgrade_to AS "upgradeTo",
            a.upgrade_fault AS "upgradeFault", lb.applied_generation AS "appliedGeneration",
            lb.fault_generation AS "faultGeneration", lb.fault ->> 'text' AS "faultText"
       FROM unnest(${ids}::uuid[], ${loadBalancers}::uuid[]) AS asked (id, load_balancer_id)
       LEFT JOIN amphora a ON a.id = asked.id
       LEFT JOIN load_balancer lb ON lb.id = asked.load_balancer_id`,
  )
  return new Map(rows.map(({ id, ...progress }) => [id, progress]))
}

/** `own`: one with this agent runs; `others`: how many other agents workers have; `here`: one runs where these need it. */
export type Workers = { own: boolean; others: number; here: boolean }

/**
 * The workers that run now.
 * @param amphorae those to upgrade: only a worker of its host upgrades one that is bound
 */
export async function readWorkers(
  database: Database,
  bundle: string,
  hostId: string | null,
  amphorae: readonly Candidate[],
): Promise<Workers> {
  return one(
    database,
    sql<Workers>`
     SELECT coalesce(bool_or(sha256 = ${bundle}), false) AS own, (count(*) FILTER (WHERE sha256 <> ${bundle}))::int AS others,
            NOT EXISTS (SELECT FROM amphora WHERE id = ANY(${amphorae.map(({ id }) => id)}::uuid[]) AND host_id = ${hostId}::uuid)
            OR EXISTS (SELECT FROM controller_process
                        WHERE host_id = ${hostId}::uuid AND name = 'worker' AND last_seen_at > now() - interval '15 seconds') AS here
       FROM controller_bundle WHERE seen_at > now() - interval '15 seconds'`,
  )
}

/** Ids of load balancers with this id, or with this name. */
export const findLoadBalancers = async (database: Database, idOrName: string): Promise<string[]> =>
  (
    await many(
      database,
      sql<{
        id: string
      }>`SELECT id FROM load_balancer WHERE id::text = ${idOrName.toLowerCase()} OR name = ${idOrName}`,
    )
  ).map(({ id }) => id)
