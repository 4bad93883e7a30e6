import type { Database } from '../../../database/connection.js'
import { execute, maybeOne } from '../../../database/query.js'
import { type Fragment, json, sql } from '../../../database/sql.js'
import type { Claim } from '../../../queue/claim.js'
import type { Problem } from '../problem.js'
import type { Outcome } from './outcome.js'

const isHeldBy = ({ id, fence }: Claim): Fragment => sql`id = ${id} AND fence = ${fence} AND status = 'processing'`
const RELEASED = sql`lease_owner = NULL, lease_until = NULL`

const MAX_DETAIL = 500

/** Stores the result of a challenge. Fenced. */
export async function settleChallenge(database: Database, claim: Claim, outcome: Outcome): Promise<void> {
  const error: Problem | null =
    outcome.kind === 'valid' ? null : { type: outcome.type, detail: printable(outcome.detail).slice(0, MAX_DETAIL) }
  await execute(
    database,
    sql`UPDATE acme_challenge SET status = ${error === null ? 'valid' : 'invalid'}, settled_at = now(), retry_at = NULL, ${RELEASED},
               error = ${error === null ? null : json(error)}::jsonb WHERE ${isHeldBy(claim)}`,
  )
}

/** What the other side sent may hold anything. */
const printable = (text: string): string => text.replaceAll(/[^\x20-\x7e]/g, '?')

/** @returns seconds until the next attempt; null if the claim was lost. Fenced. */
export async function postponeChallenge(database: Database, claim: Claim, seconds: number): Promise<number | null> {
  const postponed = await maybeOne(
    database,
    sql`UPDATE acme_challenge SET retry_at = now() + ${seconds} * interval '1 second', attempts = attempts + 1, ${RELEASED}
         WHERE ${isHeldBy(claim)} RETURNING id`,
  )
  return postponed === undefined ? null : seconds
}

/** Takes a challenge whose authorization has ended without it from the queue. Fenced. */
export async function abandonChallenge(database: Database, claim: Claim): Promise<void> {
  await execute(database, sql`UPDATE acme_challenge SET status = 'pending', ${RELEASED} WHERE ${isHeldBy(claim)}`)
}
