import type { Database } from '../database/connection.js'
import { execute } from '../database/query.js'
import { sql } from '../database/sql.js'
import { WAKE_CHANNEL } from '../load-balancer/change/wake-channel.js'
import { backOffSeconds } from '../queue/back-off.js'

/** Enough for the first heartbeats of a host that has become free. */
const LATELY_SECONDS = 20
/** How long after that a try may have come too early for them. */
const UNHEARD_SECONDS = 5
/** How many try again for each host: a host carries one amphora, and a pair needs two. */
const TRIES_PER_HOST = 2

/**
 * Load balancers that found no free enrolled host try again at once when one has become free, those first that have waited
 * longest; one that has tried since leaves it to the others. Their back-off may have grown to minutes.
 * @returns how many
 */
export function retryOnFreedHosts(database: Database): Promise<number> {
  return execute(
    database,
    sql`
     WITH free AS (
       SELECT count(*) AS hosts, max(state_at) AS since FROM enrolled_host
        WHERE state = 'free' AND state_at > now() - ${LATELY_SECONDS} * interval '1 second' AND last_seen > state_at),
     waiting AS (
       SELECT id FROM load_balancer
        WHERE (SELECT hosts FROM free) > 0 AND fault->>'code' = 'no-free-host' AND retry_at > now()
          AND retry_at - ${backOffSeconds(sql`attempts`)} * interval '1 second'
              < (SELECT since FROM free) + ${UNHEARD_SECONDS} * interval '1 second'
        ORDER BY fault_since LIMIT (SELECT hosts * ${TRIES_PER_HOST} FROM free) FOR UPDATE SKIP LOCKED)
     UPDATE load_balancer SET retry_at = now() FROM waiting WHERE load_balancer.id = waiting.id
     RETURNING pg_notify(${WAKE_CHANNEL}, load_balancer.id::text)`,
  )
}
