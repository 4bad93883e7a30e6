import type { Database } from '../../../database/connection.js'
import { execute, many } from '../../../database/query.js'
import { assignments, json, prepared, sql } from '../../../database/sql.js'
import { inTransaction } from '../../../database/transaction.js'
import type { MachineLimits } from '../../../load-balancer/tree/capacity.js'
import type { Claim } from '../../../queue/claim.js'
import { ClaimLost } from '../../provider.js'
import type { AmphoraRow } from '../plan/observation.js'
import { type Role, vrrpPriority } from '../plan/topology.js'

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
            a.replace_generation IS NOT NULL AS replacing, coalesce(h.vrrp_master, false) AS "heldVip"
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
const held = ({ id, fence }: Claim) => sql`SELECT id FROM load_balancer WHERE id = ${id} AND fence = ${fence} FOR SHARE`

/** SQL condition: an amphora is ready and not leased. */
const WARM = sql`load_balancer_id IS NULL AND status = 'READY' AND (lease_until IS NULL OR lease_until < now())`

/**
 * Assigns a warm amphora to the load balancer. Unless it is for a repair, a project's adoptions in the last minute must
 * not exceed the number of warm amphorae: a project that keeps creating load balancers leaves some to others and to
 * repairs.
 * @returns false if none is available
 */
export async function adoptWarmAmphora(
  database: Database,
  claim: Claim,
  { role, projectId, isRepair }: { role: Role; projectId: string; isRepair: boolean },
): Promise<boolean> {
  return inTransaction(database, async trx => {
    // Concurrent adoptions of one project would all see the same count.
    await execute(trx, sql`SELECT pg_advisory_xact_lock(hashtext('krater warm amphorae'), hashtext(${projectId}))`)
    const adopted = await execute(
      trx,
      sql`
       WITH held AS (${held(claim)}),
            had AS (SELECT count(*) AS count FROM amphora_adoption
                     WHERE project_id = ${projectId} AND created_at > now() - interval '1 minute'),
            warm AS (SELECT id FROM amphora
                      WHERE ${WARM} AND (${isRepair} OR (SELECT count FROM had) <= (SELECT count(*) FROM amphora WHERE ${WARM}))
                      ORDER BY created_at LIMIT 1 FOR UPDATE SKIP LOCKED),
            noted AS (INSERT INTO amphora_adoption (project_id) SELECT ${projectId} FROM held, warm)
       UPDATE amphora a SET load_balancer_id = held.id, status = 'ALLOCATED', role = ${role}, vrrp_priority = ${vrrpPriority(role)}, updated_at = now()
         FROM held, warm WHERE a.id = warm.id RETURNING a.id`,
    )
    return adopted === 1
  })
}

/** Inserts the row of a new amphora, which has no machine yet. @throws ClaimLost */
export async function insertAmphora(database: Database, claim: Claim, role: Role): Promise<void> {
  const inserted = await execute(
    database,
    sql`
     WITH held AS (${held(claim)})
     INSERT INTO amphora (id, load_balancer_id, status, role, vrrp_priority)
     SELECT gen_random_uuid(), held.id, 'BOOTING', ${role}, ${vrrpPriority(role)} FROM held`,
  )
  if (inserted === 0) throw new ClaimLost()
}

export type AmphoraColumns = Partial<{
  status: string
  compute_id: string
  compute_flavor: string
  cached_zone: string
  lb_network_ip: string
  management_port_id: string
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

/** Encodes an amphora's machine limits for its row. */
export const limitsColumn = (limits: MachineLimits | undefined): string | null =>
  limits === undefined ? null : json(limits)

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

/** Records since when an agent has been unreachable; null once it answers. */
export async function recordReach(database: Database, amphoraId: string, reached: boolean): Promise<void> {
  await execute(
    database,
    sql`UPDATE amphora SET unreachable_since = CASE WHEN ${reached} THEN NULL ELSE now() END
         WHERE id = ${amphoraId} AND (unreachable_since IS NULL) <> ${reached}`,
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
