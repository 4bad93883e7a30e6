import type { Database } from '../../../database/connection.js'
import { many } from '../../../database/query.js'
import { sql } from '../../../database/sql.js'
import { createLog } from '../../../log/log.js'
import type { Owner } from '../../../ovn/northbound/desired.js'
import { ensureAll } from '../../../ovn/northbound/ensure-all.js'
import type { Northbound } from '../../../ovn/northbound/northbound.js'
import { TransactionRefused } from '../../../ovsdb/errors.js'
import { loadBalancerOf, ownerOf } from '../../../provider/ovn/rows/load-balancer-rows.js'
import { claimDue, releaseClaim } from '../../../queue/claim.js'
import { keepClaim } from '../../../queue/keep-claim.js'
import { nameLeaseOwner, releaseDeadClaims } from '../../../queue/lease-owner.js'
import { readDesiredOf, type Tables } from './desired-now.js'
import { differing } from './survey.js'

/** For the workers, with the load balancers that they are at. The claim of a dead one is over before. */
const LIMIT_MS = 60_000
/** For others to finish what they are at, before another try. */
const PAUSE_MS = 1_000

/** Owners of rows that OVN refuses, and its words. */
type Refused = Map<Owner, string>

/**
 * Repairs the rows of owners, until they are as the tables say at that moment: others change both meanwhile, and
 * workers hold load balancers.
 * @returns what still differs, and what of it OVN refuses
 * @throws OvsdbUnreachable
 */
export async function repair(
  northbound: Northbound,
  tables: Tables,
  owners: readonly Owner[],
): Promise<{ late: readonly Owner[]; refused: Refused }> {
  const end = performance.now() + LIMIT_MS
  for (let late = owners; ; ) {
    const { unsure, refused } = await repairOnce(northbound, tables, late)
    late = await differing(northbound, (await readDesiredOf(tables, unsure)).desired, PAUSE_MS)
    if (late.every(owner => refused.has(owner)) || performance.now() > end) return { late, refused }
  }
}

/** @returns also the owners whose rows may not be as the tables say */
async function repairOnce(
  northbound: Northbound,
  tables: Tables,
  owners: readonly Owner[],
): Promise<{ unsure: Owner[]; refused: Refused }> {
  const known = await balancersOf(tables.database, owners)
  const others = owners.filter(owner => !known.has(owner))
  const { desired } = await readDesiredOf(tables, others)
  const done = await ensureAll(northbound, desired)
  const refused = new Map(done.refused.map(({ desired: { owner }, error }) => [owner, error.message]))
  // Nobody claims these: the tables may have changed since.
  const unsure = [...others]
  if (known.size > 0) await releaseDeadClaims(tables.database, 'load_balancer')
  for (const [owner, id] of known) {
    const reason = await repairBalancer(northbound, tables, { owner, id })
    if (reason !== null) unsure.push(owner)
    if (reason instanceof TransactionRefused) refused.set(owner, reason.message)
  }
  return { unsure, refused }
}

/** The owners that are load balancers of the tables, with their ids. */
async function balancersOf(database: Database, owners: readonly Owner[]): Promise<Map<Owner, string>> {
  const ids = owners.flatMap(owner => loadBalancerOf(owner) ?? [])
  const rows = await many(
    database,
    sql<{ id: string }>`SELECT id FROM load_balancer WHERE id::text = ANY(${ids}::text[]) ORDER BY created_at, id`,
  )
  return new Map(rows.map(({ id }) => [ownerOf(id), id]))
}

/**
 * Repairs a load balancer as a worker does, which holds it meanwhile.
 * @returns null once its rows are right; else why not: OVN refuses them, or they wait for a place or for somebody who holds it
 */
async function repairBalancer(
  northbound: Northbound,
  tables: Tables,
  { owner, id }: { owner: Owner; id: string },
): Promise<TransactionRefused | 'later' | null> {
  const { database } = tables
  const [claim] = await claimDue(database, {
    ...{ table: 'load_balancer', due: sql`t.id = ${id}`, order: sql`t.id`, limit: 1 },
    owner: nameLeaseOwner(),
  })
  if (claim === undefined) return 'later'
  const lost = new AbortController()
  const stopRenewal = keepClaim(database, claim, createLog('ovn', 'silent'), () => lost.abort())
  try {
    const { desired } = await readDesiredOf(tables, [owner])
    const { missingHolders } = await northbound.ensure(desired, { signal: lost.signal })
    return missingHolders.length > 0 ? 'later' : null
  } catch (error) {
    if (error instanceof TransactionRefused) return error
    if (lost.signal.aborted) return 'later'
    throw error
  } finally {
    stopRenewal()
    await releaseClaim(database, claim)
  }
}
