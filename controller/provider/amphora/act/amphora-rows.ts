import type { HelloResult } from '../../../../amphora-agent/protocol/messages.js'
import type { PlacementRules, RecordedPlacement } from '../../../compute/placement.js'
import type { Database } from '../../../database/connection.js'
import { execute, many, one } from '../../../database/query.js'
import { assignments, json, prepared, sql } from '../../../database/sql.js'
import type { Claim } from '../../../queue/claim.js'
import { ClaimLost } from '../../provider.js'
import type { AmphoraRow, ObservedAgent } from '../plan/observation.js'

export type AmphoraRows = {
  amphorae: AmphoraRow[]
  /** The real state may have changed unnoticed: a recheck is due, or the last attempt failed. */
  suspicious: boolean
}

/** The amphorae of a claimed load balancer, in one query. @throws ClaimLost */
export async function readAmphorae(database: Database, claim: Claim): Promise<AmphoraRows> {
  const found = await many(
    database,
    sql<AmphoraRow & { suspicious: boolean }>`
     SELECT lb.attempts > 0 OR coalesce(lb.recheck_at <= now(), false) AS suspicious,
            a.id, a.status, a.role, a.lb_network_ip AS "managementAddress",
            a.applied_generation AS "appliedGeneration", a.applied_sha256 AS "appliedSha256",
            extract(epoch FROM now() - greatest(h.last_seen, a.updated_at, a.created_at))::float8 AS "silentSeconds",
            extract(epoch FROM now() - h.last_seen)::float8 AS "heardSeconds",
            CASE WHEN a.unreachable_since IS NULL THEN 0
                 ELSE extract(epoch FROM now() - greatest(a.unreachable_since, h.heard_since)) END::float8 AS "unreachableSeconds",
            coalesce(extract(epoch FROM now() - h.mismatched_since), 0)::float8 AS "mismatchedSeconds",
            coalesce((h.needs_apply OR h.mismatched_since > coalesce(a.updated_at, a.created_at)) AND h.last_seen > a.updated_at, false) AS "needsApply",
            a.replace_generation IS NOT NULL AS replacing, a.upgrade_to AS "upgradeTo", a.upgrade_fault->>'bundle' AS "upgradeFailed",
             coalesce(h.vrrp_master, false) AS "heldVip"
       FROM load_balancer lb
       LEFT JOIN amphora a ON a.load_balancer_id = lb.id
       LEFT JOIN amphora_health h ON h.amphora_id = a.id
      WHERE lb.id = ${claim.id} AND lb.fence = ${claim.fence}
      ORDER BY a.created_at, a.id`,
  )
  const [first] = found
  if (first === undefined) throw new ClaimLost()
  return { suspicious: first.suspicious, amphorae: found.flatMap(({ suspicious: _, ...row }) => (row.id ? [row] : [])) }
}

/** Within a statement, keeps the claim from passing to another worker until the statement ends. */
export const held = ({ id, fence }: Claim) =>
  sql`SELECT id FROM load_balancer WHERE id = ${id} AND fence = ${fence} FOR SHARE`

/** What an amphora's row records of its placement; the zone only if its load balancer asks for one, or it has none. */
export async function readPlacement(
  database: Database,
  { driver }: PlacementRules,
  amphoraId: string,
): Promise<RecordedPlacement> {
  return one(
    database,
    sql<RecordedPlacement>`
     SELECT coalesce(compute_driver, ${driver}) AS driver, coalesce(compute_flavor, ${driver}) AS flavor,
            CASE WHEN lb.id IS NULL THEN cached_zone ELSE profile.availability_zone_data::jsonb ->> 'compute_zone' END AS zone,
            image_tag AS "imageTag"
       FROM amphora a
       LEFT JOIN load_balancer lb ON lb.id = a.load_balancer_id
       LEFT JOIN availability_zone zone ON zone.name = lb.availability_zone
       LEFT JOIN availability_zone_profile profile ON profile.id = zone.availability_zone_profile_id
      WHERE a.id = ${amphoraId}`,
  )
}

export type AmphoraColumns = Partial<{
  status: string
  compute_id: string
  compute_driver: string
  compute_flavor: string
  cached_zone: string
  image_tag: string | null
  image_id: string | null
  agent_version: string
  agent_bundle: string | null
  upgrade_to: null
  upgrade_asked_at: null
  upgrade_fault: string | null
  lb_network_ip: string
  management_port_id: string | null
  unreachable_since: null
  vrrp_ip: string
  vrrp_port_id: string
  vrrp_interface: string
  ha_ip: string
  ha_port_id: string | null
  applied_generation: number
  applied_sha256: string | null
  applied_objects: string
  limits: string | null
}>

/** What an amphora's row records of its agent. */
export const agentColumns = ({ agentVersion, bundle, limits }: HelloResult) => ({
  agent_version: agentVersion,
  agent_bundle: bundle ?? null,
  limits: limits === undefined ? null : json(limits),
})

/** Writes columns of one amphora of a claimed load balancer. @throws ClaimLost */
export async function updateAmphora(
  database: Database,
  claim: Claim,
  amphoraId: string,
  columns: AmphoraColumns,
): Promise<void> {
  const updated = await execute(
    database,
    sql`UPDATE amphora SET ${prepared(assignments({ ...columns, updated_at: sql`now()` }))}
         WHERE id = ${amphoraId} AND load_balancer_id = ${claim.id} AND EXISTS (${held(claim)})`,
  )
  if (updated === 0) throw new ClaimLost()
}

/** Marks an amphora for replacement, as a requested failover does. @throws ClaimLost */
export async function markForReplacement(database: Database, claim: Claim, amphoraId: string): Promise<void> {
  const marked = await execute(
    database,
    sql`
     UPDATE amphora a SET replace_generation = coalesce(a.replace_generation, lb.generation), updated_at = now()
       FROM load_balancer lb
      WHERE lb.id = ${claim.id} AND lb.fence = ${claim.fence} AND a.id = ${amphoraId} AND a.load_balancer_id = lb.id`,
  )
  if (marked === 0) throw new ClaimLost()
}

/** Records since when an agent has been unreachable, and which agent answers; writes nothing if nothing has changed. */
export async function recordAgent(database: Database, amphoraId: string, agent: ObservedAgent): Promise<void> {
  const isReached = agent.state !== 'unreachable'
  const { agentVersion: version = null, bundle = null } = agent.state === 'answers' ? agent : {}
  await execute(
    database,
    sql`UPDATE amphora
           SET unreachable_since = CASE WHEN ${isReached} THEN NULL ELSE coalesce(unreachable_since, now()) END,
               agent_version = coalesce(${version}, agent_version),
               agent_bundle = CASE WHEN ${version}::text IS NULL THEN agent_bundle ELSE ${bundle} END
         WHERE id = ${amphoraId}
           AND ((unreachable_since IS NULL) <> ${isReached}
             OR ${version}::text IS NOT NULL AND (agent_version, agent_bundle) IS DISTINCT FROM (${version}::text, ${bundle}::text))`,
  )
}

/** Deletes an amphora's rows; no error if there are none. */
export async function deleteAmphora(database: Database, claim: Claim, amphoraId: string): Promise<void> {
  await execute(
    database,
    sql`DELETE FROM amphora WHERE id = ${amphoraId} AND load_balancer_id = ${claim.id} AND EXISTS (${held(claim)})`,
  )
  await execute(database, sql`DELETE FROM amphora_health WHERE amphora_id = ${amphoraId}`)
}

/** Schedules a recheck of the load balancer in `seconds`, unless one is due sooner. @throws ClaimLost */
export async function recheckIn(database: Database, claim: Claim, seconds: number): Promise<void> {
  const { id, fence, claimedAt } = claim
  const scheduled = await execute(
    database,
    sql`
     UPDATE load_balancer
        SET recheck_at = least(CASE WHEN recheck_at > ${claimedAt}::timestamptz THEN recheck_at END, now() + ${seconds} * interval '1 second')
      WHERE id = ${id} AND fence = ${fence}`,
  )
  if (scheduled === 0) throw new ClaimLost()
}

/** Records a newly created VIP port. @throws ClaimLost */
export async function recordVipPort(database: Database, claim: Claim, portId: string): Promise<void> {
  const recorded = await execute(
    database,
    sql`
     WITH held AS (UPDATE load_balancer SET vip_port_id = ${portId} WHERE id = ${claim.id} AND fence = ${claim.fence} RETURNING id),
          amphorae AS (UPDATE amphora SET ha_port_id = ${portId} FROM held WHERE amphora.load_balancer_id = held.id)
     SELECT id FROM held`,
  )
  if (recorded === 0) throw new ClaimLost()
}

/** Makes a proof due of the certificates that the load balancer's listeners serve. */
export async function requestProof(database: Database, { id, fence }: Claim): Promise<void> {
  await execute(database, sql`UPDATE load_balancer SET proof_at = now() WHERE id = ${id} AND fence = ${fence}`)
}
