import type { Knex } from 'knex'
import type { Database } from '../database/connection.js'
import { execute, many } from '../database/query.js'
import { type Fragment, identifier, sql } from '../database/sql.js'

/** How long a claim lives without renewal; a dead worker's claims pass to another after this time at most. */
export const LEASE_SECONDS = 8
/** How often a living worker renews what it holds. */
export const RENEWAL_SECONDS = 2

const LEASE_END = sql`now() + ${LEASE_SECONDS} * interval '1 second'`

/**
 * A row that one worker holds until `heldUntil` (milliseconds of performance.now(), which a paused process cannot stop). Every write that
 * follows from it carries the fence: a later claim has raised it, so a late write of a former holder finds no row.
 */
export type Claim = {
  table: string
  id: string
  fence: number
  heldUntil: number
  /** When it was claimed, by the database's clock and with all of its digits: what is stored as later than this came afterwards. */
  claimedAt: string
}

export type ClaimRequest = {
  /** A table with the columns id, lease_owner, lease_until and fence. */
  table: string
  /** Condition over that table (alias t): the row is due now. */
  due: Fragment
  /** ORDER BY: what goes first; over `candidates` (alias c) too when there are any. */
  order: Fragment
  /** SELECT of the rows among which to choose (column id, and others for `order`). All rows when not given. */
  candidates?: (limit: number, held: readonly string[]) => Fragment
  owner: string
  limit: number
  /** Ids of the rows that the owner holds already; none when not given. */
  held?: readonly string[]
  /** What else the claim assigns, such as `status = 'PROCESSING'`. */
  also?: Fragment
}

/** SQL: nobody holds the row (alias t). */
export const NOT_HELD = sql`(t.lease_until IS NULL OR t.lease_until < now())`

/**
 * Takes rows that are due and that nobody holds, in one statement and by the database's clock alone. Rows that others are taking at this
 * moment are skipped.
 *
 * Four workers that claim and release single rows out of 2,000, claims per second on two busy processors:
 *
 *     this statement                                                       966
 *     SELECT ... FOR UPDATE SKIP LOCKED, then UPDATE, in one transaction   524   four round trips instead of one
 *
 * FOR UPDATE without SKIP LOCKED is as fast while rows are many, and rejected: workers that wait for one row find it taken when they get it,
 * and come back with nothing although others are due.
 */
export async function claimDue(
  database: Database,
  { table, due, order, candidates, owner, limit, held = [], also }: ClaimRequest,
): Promise<Claim[]> {
  const started = performance.now()
  const claimed = identifier(table)
  const candidateRows =
    candidates === undefined ? sql`${claimed} t` : sql`(${candidates(limit, held)}) c JOIN ${claimed} t ON t.id = c.id`
  const rows = await many(
    database,
    sql<{ id: string; fence: number; claimedAt: string }>`
      UPDATE ${claimed} SET lease_owner = ${owner}, lease_until = ${LEASE_END}, fence = fence + 1${also === undefined ? sql`` : sql`, ${also}`}
       WHERE id IN (SELECT t.id FROM ${candidateRows}
                     WHERE ${NOT_HELD} AND (${due})
                     ORDER BY ${order} LIMIT ${limit} FOR UPDATE OF t SKIP LOCKED)
       RETURNING id, fence, now()::text AS "claimedAt"`,
  )
  return rows.map(row => ({
    table,
    ...row,
    heldUntil: started + LEASE_SECONDS * 1000,
  }))
}

/** Extends a claim. @returns false when it was lost; its holder must then stop at once */
export async function renewClaim(database: Database, claim: Claim): Promise<boolean> {
  const started = performance.now()
  const renewed = await execute(
    database,
    sql`UPDATE ${identifier(claim.table)} SET lease_until = ${LEASE_END} WHERE id = ${claim.id} AND fence = ${claim.fence}`,
  )
  if (renewed === 1) claim.heldUntil = started + LEASE_SECONDS * 1000
  return renewed === 1
}

/** Gives a claim back, so that the row can be claimed again at once when it is still due. */
export async function releaseClaim(database: Knex, claim: Claim): Promise<void> {
  await execute(
    database,
    sql`UPDATE ${identifier(claim.table)} SET lease_owner = NULL, lease_until = NULL
         WHERE id = ${claim.id} AND fence = ${claim.fence}`,
  )
}

/** True while the lease certainly lasts, by this process's own clock. Ask before every act outside the database. */
export function isHeld(claim: Claim): boolean {
  return performance.now() < claim.heldUntil
}
