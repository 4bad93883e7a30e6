import type { Database } from '../../../database/connection.js'
import { execute } from '../../../database/query.js'
import { type Fragment, sql } from '../../../database/sql.js'
import type { Claim } from '../../../queue/claim.js'
import { type EventKind, eventCtes } from '../events.js'
import type { CertificatePlan, CertificateState } from '../plan.js'

const FREE = sql`lease_owner = NULL, lease_until = NULL, under_way = false`
const RELEASED = sql`${FREE}, lapsed_claims = 0`

/** Unless the certificate changed after the claim: then it stays due. */
const dueAfter = (claim: Claim, due: Fragment): Fragment =>
  sql`CASE WHEN due_at > ${claim.claimedAt}::timestamptz THEN due_at ELSE ${due} END`

const isHeldBy = ({ id, fence }: Claim): Fragment => sql`t.id = ${id} AND t.fence = ${fence}`

const timeOf = (time: number | null): Fragment => sql`to_timestamp(${time === null ? null : time / 1000}::float8)`

/** Sets when the certificate is due again, and ends the claim. Fenced. @param state with the CA's information */
export async function releaseUntil(
  database: Database,
  claim: Claim,
  plan: CertificatePlan,
  { window, infoAt }: Pick<CertificateState, 'window' | 'infoAt'>,
): Promise<void> {
  await execute(
    database,
    sql`UPDATE certificate t SET window_start = ${timeOf(window?.start ?? null)}, window_end = ${timeOf(window?.end ?? null)},
               info_at = ${timeOf(infoAt)}, renew_at = ${timeOf(plan.renewAt)}, due_at = ${dueAfter(claim, timeOf(plan.dueAt))}, ${RELEASED}
         WHERE ${isHeldBy(claim)}`,
  )
}

/** The row of an update of certificates (alias t), as events need it. */
const RETURNING = sql`RETURNING t.id, t.not_after, (SELECT c.version FROM container c WHERE c.id = t.id) AS version`

/** Records a notice before the expiry. Fenced. */
export async function recordNotice(
  database: Database,
  claim: Claim,
  level: number,
  { kind, message }: { kind: EventKind; message: string },
): Promise<void> {
  await execute(
    database,
    sql`WITH changed AS (UPDATE certificate t SET noticed_days = ${level} WHERE ${isHeldBy(claim)} ${RETURNING}),
        ${eventCtes(sql`changed`, kind, message)} SELECT 1 FROM changed`,
  )
}

export type FailedAttempt = {
  /** For tenants. */
  reason: string
  retryAt: number
  /** The CA wants no attempt before; null if it did not say. */
  holdUntil: number | null
  /** What follows from these. */
  plan: CertificatePlan
}

/** Records a failed attempt and ends the claim. Fenced. */
export async function recordFailedAttempt(
  database: Database,
  claim: Claim,
  { reason, retryAt, holdUntil, plan }: FailedAttempt,
): Promise<void> {
  await execute(
    database,
    sql`WITH changed AS (
          UPDATE certificate t
             SET attempts = attempts + 1, attempted_at = now(), last_error = ${reason}, retry_at = ${timeOf(retryAt)},
                 hold_until = coalesce(${timeOf(holdUntil)}, hold_until), renew_at = ${timeOf(plan.renewAt)},
                 due_at = ${dueAfter(claim, timeOf(plan.dueAt))}, ${RELEASED}
           WHERE ${isHeldBy(claim)} ${RETURNING}),
        ${eventCtes(sql`changed`, 'failed', reason)} SELECT 1 FROM changed`,
  )
}

/** Looks at a renewal in progress again after a pause, and ends the claim. Fenced. */
export async function postponeRenewal(database: Database, claim: Claim, seconds: number): Promise<void> {
  await execute(
    database,
    sql`UPDATE certificate t SET attempted_at = now(), due_at = now() + ${seconds} * interval '1 second', ${RELEASED}
         WHERE ${isHeldBy(claim)}`,
  )
}

/** Ends the claim of an attempt that was cut short, so that another worker can begin at once. Fenced. */
export async function abandon(database: Database, claim: Claim): Promise<void> {
  await execute(database, sql`UPDATE certificate t SET ${FREE} WHERE ${isHeldBy(claim)}`)
}
