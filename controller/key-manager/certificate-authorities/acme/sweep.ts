import { execute } from '../../../database/query.js'
import { sql } from '../../../database/sql.js'
import { challengesWhere, removeChallenge } from './challenge-rows.js'
import type { AcmeParts } from './issue.js'

const ABANDONED = sql`
  NOT EXISTS (SELECT FROM secret_order o
               WHERE o.id = p.id AND o.status IN ('PENDING', 'PROCESSING') AND o.deleted_at IS NULL)
  AND NOT EXISTS (SELECT FROM certificate t WHERE t.order_id = p.id)`

/** Removes what orders left that were deleted meanwhile, and withdraws challenges that nobody validates any more. */
export async function sweepAcme({
  service: { database },
  publishers,
  log,
}: Pick<AcmeParts, 'service' | 'publishers' | 'log'>): Promise<void> {
  await execute(database, sql`DELETE FROM pending_certificate p WHERE ${ABANDONED}`)
  await execute(database, sql`DELETE FROM acme_client_order WHERE created_at < now() - interval '1 day'`)
  const left = await challengesWhere(
    database,
    sql`p.expires_at < now() OR NOT EXISTS (SELECT FROM pending_certificate c WHERE c.id = p.request_id)`,
  )
  for (const challenge of left) {
    const publisher = publishers[challenge.type]
    await (publisher?.withdraw(challenge) ?? removeChallenge(database, challenge)).catch(error =>
      log.warn({ err: error, identifier: challenge.identifier }, 'a challenge could not be withdrawn yet'),
    )
  }
}
