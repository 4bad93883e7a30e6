import type { Database } from '../../../database/connection.js'
import { maybeOne } from '../../../database/query.js'
import { sql } from '../../../database/sql.js'
import type { Claim } from '../../../queue/claim.js'
import type { CertificateState } from '../plan.js'

/** A claimed certificate. */
export type ClaimedCertificate = {
  id: string
  projectId: string
  creatorId: string
  orderId: string
  meta: unknown
  newKey: boolean
  caId: string
  pem: string | null
  names: readonly string[]
  notAfter: Date
  attempts: number
  lapsedClaims: number
  state: CertificateState
}

type Row = Omit<ClaimedCertificate, 'state'> & {
  notBefore: Date
  renew: boolean
  asked: boolean
  windowStart: Date | null
  windowEnd: Date | null
  infoAt: Date | null
  retryAt: Date | null
  holdUntil: Date | null
  noticedDays: number | null
}

/** The claimed certificate; null when it was deleted or another worker has claimed it since. */
export async function readCertificate(database: Database, claim: Claim): Promise<ClaimedCertificate | null> {
  const row = await maybeOne(
    database,
    sql<Row>`
     SELECT t.id, t.project_id AS "projectId", t.creator_id AS "creatorId", t.order_id AS "orderId", t.meta,
            t.new_key AS "newKey", t.ca_id AS "caId", t.pem, t.names, t.not_after AS "notAfter", t.attempts,
            t.lapsed_claims AS "lapsedClaims", t.not_before AS "notBefore", t.renew, t.asked_at IS NOT NULL AS asked,
            t.window_start AS "windowStart", t.window_end AS "windowEnd", t.info_at AS "infoAt", t.retry_at AS "retryAt",
            t.hold_until AS "holdUntil", t.noticed_days AS "noticedDays"
       FROM certificate t JOIN container c ON c.id = t.id AND c.deleted_at IS NULL
      WHERE t.id = ${claim.id} AND t.fence = ${claim.fence}`,
  )
  return row === undefined ? null : { ...row, state: stateOf(row) }
}

const timeOf = (date: Date | null): number | null => date?.getTime() ?? null

function stateOf(row: Row): CertificateState {
  const { windowStart, windowEnd } = row
  return {
    id: row.id,
    notBefore: row.notBefore.getTime(),
    notAfter: row.notAfter.getTime(),
    renew: row.renew,
    asked: row.asked,
    window:
      windowStart === null || windowEnd === null ? null : { start: windowStart.getTime(), end: windowEnd.getTime() },
    infoAt: timeOf(row.infoAt),
    retryAt: timeOf(row.retryAt),
    holdUntil: timeOf(row.holdUntil),
    noticedDays: row.noticedDays,
  }
}
