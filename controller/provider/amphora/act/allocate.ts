import type { Placement } from '../../../compute/driver.js'
import { boundTo, imageOf, type PlacementRequest, resolvePlacement } from '../../../compute/placement.js'
import type { Database } from '../../../database/connection.js'
import { execute, one } from '../../../database/query.js'
import { sql } from '../../../database/sql.js'
import { inTransaction } from '../../../database/transaction.js'
import type { LoadBalancerTree } from '../../../load-balancer/tree/tree.js'
import type { Claim } from '../../../queue/claim.js'
import { ClaimLost, ProvisioningFault } from '../../provider.js'
import { type Role, vrrpPriority } from '../plan/topology.js'
import { held } from './amphora-rows.js'
import type { MachineParts } from './machine.js'

/**
 * Gives the load balancer an amphora for a role: a warm one that fits, else a new row.
 * @throws ProvisioningFault if the settings lack what its flavor or availability zone asks for; ClaimLost
 */
export async function allocateAmphora(
  {
    database,
    placement: rules,
    images,
    hostId,
  }: { database: Database } & Pick<MachineParts, 'placement' | 'images' | 'hostId'>,
  claim: Claim,
  { id, projectId, appliedGeneration }: Pick<LoadBalancerTree, 'id' | 'projectId' | 'appliedGeneration'>,
  role: Role,
): Promise<void> {
  const resolved = resolvePlacement(rules, await readPlacementRequest(database, id))
  if ('problem' in resolved) throw new ProvisioningFault('placement', resolved.problem)
  const { placement } = resolved
  const isRepair = appliedGeneration > 0
  const host = boundTo(rules, placement.driver, hostId)
  const image = imageOf(rules, images(), placement)
  if (await adoptWarmAmphora(database, claim, { role, projectId, isRepair, placement, image, host })) return
  await insertAmphora(database, claim, { role, placement, host })
}

/** SQL condition: an amphora is ready and not leased. */
const WARM = sql`load_balancer_id IS NULL AND status = 'READY' AND (lease_until IS NULL OR lease_until < now())`

/** CTE: from now on, the load balancer belongs to the host of its machines. */
const bound = (host: string | null) => sql`
  bound AS (UPDATE load_balancer SET host_id = ${host}::uuid FROM held
             WHERE load_balancer.id = held.id AND load_balancer.host_id IS DISTINCT FROM ${host}::uuid)`

/** What an amphora is to become. */
type Wanted = {
  role: Role
  placement: Placement
  /** The controller host to which its machine is bound. */
  host: string | null
}

/**
 * Assigns a warm amphora of the placement to the load balancer, if possible in another zone than the other one of the
 * pair. One that runs an older image than a new one would is not taken: whoever replaces an amphora may want just the
 * newer image. Unless it is for a repair, a project's adoptions in the last minute must not exceed the number of warm
 * amphorae: a project that keeps creating load balancers leaves some to others and to repairs.
 * @returns false if none is available
 */
async function adoptWarmAmphora(
  database: Database,
  claim: Claim,
  {
    role,
    projectId,
    isRepair,
    placement,
    image,
    host,
  }: Wanted & { projectId: string; isRepair: boolean; image: string | null },
): Promise<boolean> {
  const { driver, flavor, zone, imageTag } = placement
  const fits = sql`${WARM} AND compute_driver = ${driver} AND compute_flavor = ${flavor}
                   AND coalesce(cached_zone = ${zone}, ${zone}::text IS NULL)
                   AND coalesce(image_tag = ${imageTag}, ${imageTag}::text IS NULL)
                   AND coalesce(image_id = ${image}, ${image}::text IS NULL)
                   AND host_id IS NOT DISTINCT FROM ${host}::uuid`
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
                      WHERE ${fits} AND (${isRepair} OR (SELECT count FROM had) <= (SELECT count(*) FROM amphora WHERE ${fits}))
                      ORDER BY cached_zone IN (SELECT other.cached_zone FROM amphora other, held
                                                WHERE other.load_balancer_id = held.id AND other.role <> ${role}), created_at
                      LIMIT 1 FOR UPDATE SKIP LOCKED),
            noted AS (INSERT INTO amphora_adoption (project_id) SELECT ${projectId} FROM held, warm),
            ${bound(host)}
       UPDATE amphora a SET load_balancer_id = held.id, status = 'ALLOCATED', role = ${role}, vrrp_priority = ${vrrpPriority(role)}, updated_at = now()
         FROM held, warm WHERE a.id = warm.id RETURNING a.id`,
    )
    return adopted === 1
  })
}

/** Inserts the row of a new amphora, which has no machine yet. @throws ClaimLost */
async function insertAmphora(database: Database, claim: Claim, { role, placement, host }: Wanted): Promise<void> {
  const { driver, flavor, zone, imageTag } = placement
  const inserted = await execute(
    database,
    sql`
     WITH held AS (${held(claim)}),
          ${bound(host)}
     INSERT INTO amphora (id, load_balancer_id, status, role, vrrp_priority, compute_driver, compute_flavor, cached_zone, image_tag, host_id)
     SELECT gen_random_uuid(), held.id, 'BOOTING', ${role}, ${vrrpPriority(role)}, ${driver}, ${flavor}, ${zone}, ${imageTag}, ${host}::uuid
       FROM held`,
  )
  if (inserted === 0) throw new ClaimLost()
}

/** What a load balancer's flavor and availability zone ask for. */
async function readPlacementRequest(database: Database, loadBalancerId: string): Promise<PlacementRequest> {
  return one(
    database,
    sql<PlacementRequest>`
     SELECT flavor_profile.flavor_data::jsonb ->> 'compute_flavor' AS flavor,
            flavor_profile.flavor_data::jsonb ->> 'amp_image_tag' AS "imageTag",
            zone_profile.availability_zone_data::jsonb ->> 'compute_zone' AS zone
       FROM load_balancer lb
       LEFT JOIN flavor ON flavor.id = lb.flavor_id
       LEFT JOIN flavor_profile ON flavor_profile.id = flavor.flavor_profile_id
       LEFT JOIN availability_zone zone ON zone.name = lb.availability_zone
       LEFT JOIN availability_zone_profile zone_profile ON zone_profile.id = zone.availability_zone_profile_id
      WHERE lb.id = ${loadBalancerId}`,
  )
}
