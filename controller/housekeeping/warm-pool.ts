import type { Database } from '../database/connection.js'
import { execute, many, maybeOne, one } from '../database/query.js'
import { assignments, type Bound, prepared, sql } from '../database/sql.js'
import { inTransaction } from '../database/transaction.js'
import type { Logger } from '../log/log.js'
import { limitsColumn } from '../provider/amphora/act/amphora-rows.js'
import { createMachine, deletePorts, type MachineParts, machineColumns } from '../provider/amphora/act/machine.js'
import { agentTarget, awaitAgent, probeAgent } from '../provider/amphora/agent/agent.js'
import { type Claim, claimDue, isHeld, releaseClaim } from '../queue/claim.js'
import { keepClaim } from '../queue/keep-claim.js'

export type WarmPool = {
  database: Database
  parts: MachineParts
  /** Amphorae to keep ready. */
  size: number
  owner: string
  log: Logger
  signal: AbortSignal
}

/** Failed starts of an amphora after which it is removed, and another made. */
const MOST_STARTS = 3
const AGENT_START_MS = 30_000
/** Amphorae that one housekeeper works at together. */
const AT_ONCE = 2
const FOR_NOBODY = { projectId: null, isRepair: false }

/** Amphorae of nobody that count as ready, or as becoming so. */
const IN_POOL = sql`load_balancer_id IS NULL AND status IN ('BOOTING', 'READY')`

/** Adds or takes away rows so that the pool has its size. Any number of housekeepers may do so at once. */
export async function sizeWarmPool({ database, size }: WarmPool): Promise<void> {
  if ((await countPool(database)) === size) return
  await inTransaction(database, async trx => {
    await execute(trx, sql`SELECT pg_advisory_xact_lock(hashtext('krater warm pool'))`)
    const missing = size - (await countPool(trx))
    if (missing > 0) {
      await execute(
        trx,
        sql`INSERT INTO amphora (id, status) SELECT gen_random_uuid(), 'BOOTING' FROM generate_series(1, ${missing}::int)`,
      )
    } else if (missing < 0) {
      await execute(
        trx,
        sql`UPDATE amphora SET status = 'PENDING_DELETE', updated_at = now()
          WHERE id IN (SELECT id FROM amphora WHERE ${IN_POOL} ORDER BY status, created_at DESC LIMIT ${-missing} FOR UPDATE SKIP LOCKED)`,
      )
    }
  })
}

async function countPool(database: Database): Promise<number> {
  const counted = sql<{ count: number }>`SELECT count(*)::int AS count FROM amphora WHERE ${IN_POOL}`
  return (await one(database, counted)).count
}

/**
 * Boots the pool's amphorae that are not ready yet and removes those that are to go, also where another housekeeper died over them. One
 * that fails is left to its lease, which is its pause before the next start.
 * @param failures failed starts by amphora id, kept by the caller from call to call
 * @returns when all that was claimed is done
 */
export async function tendWarmPool(pool: WarmPool, failures: Map<string, number>): Promise<void> {
  const claims = await claimDue(pool.database, {
    table: 'amphora',
    due: sql`t.load_balancer_id IS NULL AND t.status IN ('BOOTING', 'PENDING_DELETE', 'ERROR')`,
    order: sql`t.created_at`,
    owner: pool.owner,
    limit: AT_ONCE,
  })
  await Promise.all(claims.map(claim => tend(pool, claim, failures)))
}

async function tend(pool: WarmPool, claim: Claim, failures: Map<string, number>): Promise<void> {
  const { database, log, signal } = pool
  const lost = new AbortController()
  const letGo = keepClaim(database, claim, log, () => lost.abort())
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
    log.warn({ amphora: claim.id, err: error, count }, 'a warm amphora could not be tended')
    if (count < MOST_STARTS) return
    failures.delete(claim.id)
    await write(database, claim, { status: 'ERROR' }).catch(() => undefined)
  } finally {
    letGo()
  }
}

/** The housekeeper stops, or the amphora belongs to another by now. */
class Interrupted extends Error {}

async function boot({ database, parts }: WarmPool, claim: Claim, assertHeld: () => void): Promise<void> {
  const made = await parts.turns.take(FOR_NOBODY, () =>
    createMachine(parts, { amphoraId: claim.id, projectId: null }, assertHeld),
  )
  await write(database, claim, machineColumns(made))
  const target = agentTarget(parts.masterKey, claim.id, made.managementAddress)
  const { limits } = await awaitAgent(parts.agents, target, AGENT_START_MS, assertHeld)
  await write(database, claim, { status: 'READY', limits: limitsColumn(limits), lease_owner: null, lease_until: null })
}

async function remove({ database, parts }: WarmPool, claim: Claim, assertHeld: () => void): Promise<void> {
  await parts.turns.take(FOR_NOBODY, async () => {
    assertHeld()
    parts.agents.close(claim.id)
    await parts.compute.delete(claim.id)
  })
  await deletePorts(parts.network, claim.id, assertHeld)
  await execute(database, sql`DELETE FROM amphora WHERE id = ${claim.id} AND fence = ${claim.fence}`)
  await execute(database, sql`DELETE FROM amphora_health WHERE amphora_id = ${claim.id}`)
}

/** @throws Interrupted when the claim is no longer ours */
async function write(database: Database, claim: Claim, columns: Readonly<Record<string, Bound>>): Promise<void> {
  const written = await execute(
    database,
    sql`UPDATE amphora SET ${prepared(assignments(columns))}, updated_at = now()
         WHERE id = ${claim.id} AND fence = ${claim.fence} AND load_balancer_id IS NULL`,
  )
  if (written === 0) throw new Interrupted()
}

/** Warm amphorae whose machine does not run, or whose agent is silent, are started again; nobody waits for them. */
export async function checkWarmPool({ database, parts, log }: WarmPool): Promise<void> {
  const warm = await many(
    database,
    sql<{ id: string; address: string | null }>`
      SELECT id, lb_network_ip AS address FROM amphora WHERE status = 'READY' AND load_balancer_id IS NULL`,
  )
  for (const { id, address } of warm) {
    const machine = await parts.compute.find(id)
    const runs = machine?.state === 'running'
    if (runs && address !== null) {
      const agent = await probeAgent(parts.agents, agentTarget(parts.masterKey, id, address))
      if (agent.state === 'answers') continue
    }
    const status = runs ? 'PENDING_DELETE' : 'BOOTING'
    const marked = await execute(
      database,
      sql`UPDATE amphora SET status = ${status}, updated_at = now()
           WHERE id = ${id} AND status = 'READY' AND load_balancer_id IS NULL`,
    )
    if (marked === 1) log.info({ amphora: id, status }, 'a warm amphora is not ready any more')
  }
}
