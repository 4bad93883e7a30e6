import { boundTo, type Flavor, imageOf, placementOf, startLimitMs } from '../compute/placement.js'
import type { Database } from '../database/connection.js'
import { execute, many, maybeOne } from '../database/query.js'
import { assignments, type Bound, prepared, sql } from '../database/sql.js'
import { inTransaction } from '../database/transaction.js'
import type { Logger } from '../log/log.js'
import { readPlacement } from '../provider/amphora/act/amphora-rows.js'
import { createMachine, deletePorts, type MachineParts, machineColumns } from '../provider/amphora/act/machine.js'
import { renewAgent } from '../provider/amphora/act/upgrade.js'
import { agentTarget, awaitAgent, probeAgent } from '../provider/amphora/agent/agent.js'
import { type Claim, claimDue, isHeld, releaseClaim } from '../queue/claim.js'
import { keepClaim } from '../queue/keep-claim.js'

export type WarmPool = {
  database: Database
  parts: MachineParts
  owner: string
  log: Logger
  signal: AbortSignal
}

/** Failed starts after which an amphora is removed and another one created. */
const MAX_STARTS = 3
/** Amphorae that one housekeeper works on concurrently. */
const AT_ONCE = 2
const POOL_CAUSE = { projectId: null, isRepair: false }

/** SQL condition: the amphora is bound to this pool's host, or to none. */
const isOurs = ({ parts }: WarmPool) => sql`(host_id IS NULL OR host_id = ${parts.hostId}::uuid)`

/** SQL condition: the amphora is in the host's warm pool, ready or booting. */
const isInPool = (pool: WarmPool) =>
  sql`load_balancer_id IS NULL AND status IN ('BOOTING', 'READY') AND ${isOurs(pool)}`

/**
 * Adds or removes rows until the host's pool has as many of each flavor as the settings say. Safe for concurrent
 * housekeepers.
 */
export async function sizeWarmPool(pool: WarmPool): Promise<void> {
  const { database, parts } = pool
  const { flavors } = parts.placement
  if (differences(flavors, await countPool(pool, database)).length === 0) return
  await inTransaction(database, async trx => {
    await execute(trx, sql`SELECT pg_advisory_xact_lock(hashtext('krater warm pool'))`)
    for (const { flavor, driver, imageTag, missing } of differences(flavors, await countPool(pool, trx))) {
      if (missing > 0) {
        await execute(
          trx,
          sql`INSERT INTO amphora (id, status, compute_driver, compute_flavor, image_tag, host_id)
              SELECT gen_random_uuid(), 'BOOTING', ${driver}, ${flavor}, ${imageTag},
                     ${boundTo(parts.placement, driver, parts.hostId)}::uuid
                FROM generate_series(1, ${missing}::int)`,
        )
      } else {
        await execute(
          trx,
          sql`UPDATE amphora SET status = 'PENDING_DELETE', updated_at = now()
            WHERE id IN (SELECT id FROM amphora
                          WHERE ${isInPool(pool)} AND coalesce(compute_flavor, '') = ${flavor}
                            AND coalesce(compute_driver, '') = ${driver} AND image_tag IS NOT DISTINCT FROM ${imageTag}
                          ORDER BY status, created_at DESC LIMIT ${-missing} FOR UPDATE SKIP LOCKED)`,
        )
      }
    }
  })
}

/** Amphorae of one kind in the pool. `imageTag` is that of the image they run, or will. */
type Pooled = { flavor: string; driver: string; imageTag: string | null; count: number }

/**
 * By how many amphorae the pool lacks, or with a negative number exceeds, what it should have of each flavor. Those of a
 * flavor without an image tag may run any image: their driver has chosen it.
 */
function differences(flavors: ReadonlyMap<string, Flavor>, pool: readonly Pooled[]) {
  const wanted = [...flavors].map(([flavor, { driver, imageTag, warm }]) => {
    const found = pool.filter(
      one => one.flavor === flavor && one.driver === driver && (imageTag === null || one.imageTag === imageTag),
    )
    return { flavor, driver, imageTag, warm, found }
  })
  const useless = pool.filter(one => !wanted.some(({ found }) => found.includes(one)))
  return [
    ...wanted.flatMap(({ found, warm, ...kind }) => {
      const missing = warm - found.reduce((sum, { count }) => sum + count, 0)
      return missing >= 0 ? [{ ...kind, missing }] : surplusOf(found, -missing)
    }),
    ...surplusOf(useless, Number.POSITIVE_INFINITY),
  ].filter(({ missing }) => missing !== 0)
}

/** Takes `surplus` amphorae, or all, from the kinds in order. */
function surplusOf(kinds: readonly Pooled[], surplus: number) {
  let left = surplus
  return kinds.map(({ count, ...kind }) => {
    const taken = Math.min(count, left)
    left -= taken
    return { ...kind, missing: -taken }
  })
}

async function countPool(pool: WarmPool, database: Database): Promise<Pooled[]> {
  return many(
    database,
    sql<Pooled>`
      SELECT coalesce(compute_flavor, '') AS flavor, coalesce(compute_driver, '') AS driver, image_tag AS "imageTag", count(*)::int AS count
        FROM amphora WHERE ${isInPool(pool)} GROUP BY 1, 2, 3`,
  )
}

/**
 * Boots the pool's amphorae that are not ready and removes those marked for deletion, including those that a crashed
 * housekeeper left unfinished. After a failure, the lease stays and delays the next attempt.
 * @param failures failed starts by amphora id; the caller keeps it between calls
 */
export async function tendWarmPool(pool: WarmPool, failures: Map<string, number>): Promise<void> {
  const claims = await claimDue(pool.database, {
    table: 'amphora',
    due: sql`t.load_balancer_id IS NULL AND t.status IN ('BOOTING', 'PENDING_DELETE', 'ERROR') AND ${isOurs(pool)}`,
    order: sql`t.created_at`,
    owner: pool.owner,
    limit: AT_ONCE,
  })
  await Promise.all(claims.map(claim => tend(pool, claim, failures)))
}

async function tend(pool: WarmPool, claim: Claim, failures: Map<string, number>): Promise<void> {
  const { database, log, signal } = pool
  const lost = new AbortController()
  const stopRenewing = keepClaim(database, claim, log, () => lost.abort())
  const assertHeld = () => {
    if (signal.aborted || lost.signal.aborted || !isHeld(claim)) throw new Interrupted()
  }
  try {
    const row = await maybeOne(database, sql<{ status: string }>`SELECT status FROM amphora WHERE id = ${claim.id}`)
    if (row?.status !== 'BOOTING') return await remove(pool, claim, assertHeld)
    await boot(pool, claim, assertHeld)
    failures.delete(claim.id)
  } catch (error) {
    if (error instanceof Interrupted) return await releaseClaim(database, claim).catch(() => undefined)
    const count = (failures.get(claim.id) ?? 0) + 1
    failures.set(claim.id, count)
    log.warn({ amphora: claim.id, err: error, count }, 'starting or removing a warm amphora failed')
    if (count < MAX_STARTS) return
    failures.delete(claim.id)
    await write(database, claim, { status: 'ERROR' }).catch(() => undefined)
  } finally {
    stopRenewing()
  }
}

/** The housekeeper is stopping, or another one has claimed the amphora. */
class Interrupted extends Error {}

async function boot({ database, parts, log }: WarmPool, claim: Claim, assertHeld: () => void): Promise<void> {
  const placement = placementOf(parts.placement, await readPlacement(database, parts.placement, claim.id))
  const machine = await parts.turns.take(POOL_CAUSE, () =>
    createMachine(parts, { amphoraId: claim.id, projectId: null, placement, apart: [], networks: [] }, assertHeld),
  )
  await write(database, claim, machineColumns(machine))
  const target = agentTarget(parts.masterKey, claim.id, machine.managementAddress)
  const hello = await awaitAgent(parts.agents, target, startLimitMs(parts.placement, placement.driver), assertHeld)
  const { columns, failure } = await renewAgent(parts, target, hello, assertHeld)
  if (failure !== null) log.warn({ amphora: claim.id, failure }, 'a warm amphora keeps its agent')
  await write(database, claim, { status: 'READY', ...columns, lease_owner: null, lease_until: null })
}

async function remove({ database, parts }: WarmPool, claim: Claim, assertHeld: () => void): Promise<void> {
  await parts.turns.take(POOL_CAUSE, async () => {
    assertHeld()
    parts.agents.close(claim.id)
    await parts.compute.delete(claim.id)
  })
  await deletePorts(parts.network, claim.id, assertHeld)
  await execute(database, sql`DELETE FROM amphora WHERE id = ${claim.id} AND fence = ${claim.fence}`)
  await execute(database, sql`DELETE FROM amphora_health WHERE amphora_id = ${claim.id}`)
}

/** @throws Interrupted if the claim is lost */
async function write(database: Database, claim: Claim, columns: Readonly<Record<string, Bound>>): Promise<void> {
  const written = await execute(
    database,
    sql`UPDATE amphora SET ${prepared(assignments(columns))}, updated_at = now()
         WHERE id = ${claim.id} AND fence = ${claim.fence} AND load_balancer_id IS NULL`,
  )
  if (written === 0) throw new Interrupted()
}

/**
 * Restarts warm amphorae whose machine is not running, and replaces those whose agent does not answer, or whose image is
 * not the newest: no load balancer would take them.
 */
export async function checkWarmPool(pool: WarmPool): Promise<void> {
  const { database, parts, log } = pool
  const warm = await many(
    database,
    sql<{ id: string; address: string | null; driver: string; imageTag: string | null; imageId: string | null }>`
      SELECT id, lb_network_ip AS address, coalesce(compute_driver, '') AS driver, image_tag AS "imageTag", image_id AS "imageId"
        FROM amphora WHERE status = 'READY' AND load_balancer_id IS NULL AND ${isOurs(pool)}`,
  )
  const images = parts.images()
  for (const { id, address, driver, imageTag, imageId } of warm) {
    const image = imageOf(parts.placement, images, { driver, imageTag })
    const isOutdated = image !== null && image !== imageId
    const machine = await parts.compute.find(id)
    const runs = machine?.state === 'running'
    if (runs && !isOutdated && address !== null) {
      const agent = await probeAgent(parts.agents, agentTarget(parts.masterKey, id, address))
      if (agent.state === 'answers') continue
    }
    const status = runs ? 'PENDING_DELETE' : 'BOOTING'
    const marked = await execute(
      database,
      sql`UPDATE amphora SET status = ${status}, updated_at = now()
           WHERE id = ${id} AND status = 'READY' AND load_balancer_id IS NULL`,
    )
    if (marked === 1) log.info({ amphora: id, status, isOutdated }, 'a warm amphora is no longer ready')
  }
}
