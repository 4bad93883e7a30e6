import type { Database } from '../database/connection.js'
import { execute, many, maybeOne } from '../database/query.js'
import { type Fragment, sql } from '../database/sql.js'
import { WAKE_CHANNEL } from '../load-balancer/change/wake-channel.js'
import type { Sighting } from './judge.js'

/**
 * How long before a host's last sign of life one of its amphorae must have been heard: those that had been silent before,
 * such as behind a firewall that somebody closed, show nothing. Hosts record once a second what they hear.
 */
const HEARD_SECONDS = 10

/** What the database has of the other hosts that are not known to be gone. */
export async function sightOthers(database: Database, hostId: string): Promise<Sighting[]> {
  return many(
    database,
    sql<Sighting>`
     SELECT host.id, host.last_seen_at::text AS sign,
            CASE WHEN host.amphorae_heard_at > host.last_seen_at - ${HEARD_SECONDS} * interval '1 second'
                 THEN host.amphorae_heard_at::text END AS heard,
            (SELECT count(*)::int FROM amphora JOIN amphora_health heard ON heard.amphora_id = amphora.id
              WHERE amphora.host_id = host.id AND amphora.load_balancer_id IS NOT NULL) AS amphorae
       FROM controller_host host WHERE host.id <> ${hostId} AND host.gone_at IS NULL`,
  )
}

/** Some VIPs of load balancers on a host that have served, by subnet. */
export async function vipsOn(
  database: Database,
  hostId: string,
  most: number,
): Promise<{ subnetId: string; addresses: string[] }[]> {
  return many(
    database,
    sql<{ subnetId: string; addresses: string[] }>`
     SELECT vip_subnet_id AS "subnetId", array_agg(vip_address) AS addresses
       FROM (SELECT vip_subnet_id, vip_address FROM load_balancer
              WHERE host_id = ${hostId} AND vip_subnet_id IS NOT NULL AND applied_generation > 0
              ORDER BY random() LIMIT ${most}) chosen
      GROUP BY vip_subnet_id`,
  )
}

/** Whether a process of the host with this name has given a sign of life recently. */
export async function isProcessAlive(database: Database, hostId: string, name: string): Promise<boolean> {
  const alive = sql`
    SELECT FROM controller_process
     WHERE host_id = ${hostId} AND name = ${name} AND last_seen_at > now() - interval '10 seconds' LIMIT 1`
  return (await maybeOne(database, alive)) !== undefined
}

/**
 * Declares a host gone. Its load balancers become due for every other host, as after a requested failover of all their
 * amphorae; what its workers still have under way is fenced off. Its warm amphorae are forgotten.
 * @param sign its last sign of life: nothing is done if there was a newer one
 * @returns whether it is gone now
 */
export async function declareGone(database: Database, hostId: string, sign: string | null): Promise<boolean> {
  const declared = await execute(
    database,
    sql`
     WITH gone AS (
       UPDATE controller_host SET gone_at = now()
        WHERE id = ${hostId} AND gone_at IS NULL AND last_seen_at IS NOT DISTINCT FROM ${sign}::timestamptz
        RETURNING id),
     forgotten AS (
       DELETE FROM amphora USING gone WHERE amphora.host_id = gone.id AND amphora.load_balancer_id IS NULL),
     lost AS (
       UPDATE amphora SET replace_generation = coalesce(amphora.replace_generation, lb.generation)
         FROM gone, load_balancer lb WHERE amphora.host_id = gone.id AND lb.id = amphora.load_balancer_id),
     moving AS (
       UPDATE load_balancer lb
          SET fence = fence + 1, lease_owner = NULL, lease_until = NULL, recheck_at = now(), retry_at = NULL, attempts = 0
         FROM gone WHERE lb.host_id = gone.id
        RETURNING pg_notify(${WAKE_CHANNEL}, lb.id::text)),
     woken AS (SELECT count(*) FROM moving)
     SELECT FROM gone, woken`,
  )
  return declared === 1
}

/** Since when others hold this host to be gone; null if they do not. */
export async function goneSince(database: Database, hostId: string): Promise<string | null> {
  const row = await maybeOne(
    database,
    sql<{ goneAt: string | null }>`SELECT gone_at::text AS "goneAt" FROM controller_host WHERE id = ${hostId}`,
  )
  return row?.goneAt ?? null
}

/** SQL: the machines of these amphorae (`machine`), with the rows that an amphora (`a`) and its load balancer (`lb`) may have. */
const machinesOf = (amphoraIds: readonly string[]): Fragment => sql`
  unnest(${[...amphoraIds]}::uuid[]) AS machine (id)
    LEFT JOIN amphora a ON a.id = machine.id
    LEFT JOIN load_balancer lb ON lb.id = a.load_balancer_id`

/**
 * SQL condition on those: the machine belongs on the host. Once another host has taken over the load balancer, it does
 * not, although the row of the amphora stays until its successor serves.
 */
const belongsOn = (hostId: string): Fragment => sql`
  (a.id IS NOT NULL AND (a.host_id IS NULL
     OR (a.host_id = ${hostId} AND (lb.id IS NULL OR lb.host_id IS NOT DISTINCT FROM a.host_id))))`

/** Those of these amphorae whose machine does not belong on the host: it has moved, is about to, or was deleted. */
export async function lostOf(database: Database, hostId: string, amphoraIds: readonly string[]): Promise<string[]> {
  const lost = await many(
    database,
    sql<{ id: string }>`SELECT machine.id FROM ${machinesOf(amphoraIds)} WHERE NOT ${belongsOn(hostId)}`,
  )
  return lost.map(({ id }) => id)
}

/**
 * The host is back: its workers may go on.
 * @param amphoraIds whose machines it has
 * @returns false if one of these is lost, or about to be, because another host is working on its load balancer; also if
 * the host was removed, or declared gone again
 */
export async function declareBack(
  database: Database,
  hostId: string,
  { goneAt, amphoraIds }: { goneAt: string; amphoraIds: readonly string[] },
): Promise<boolean> {
  const written = await execute(
    database,
    sql`
     UPDATE controller_host SET gone_at = NULL
      WHERE id = ${hostId} AND gone_at = ${goneAt}::timestamptz AND removed_at IS NULL
        AND NOT EXISTS (SELECT FROM ${machinesOf(amphoraIds)}
                         WHERE NOT ${belongsOn(hostId)} OR (a.host_id = ${hostId} AND lb.lease_until > now()))`,
  )
  return written > 0
}

/**
 * Binds machines that this host has, and that are bound to none, with their load balancers: an earlier version, which knew
 * no hosts, made them. Warm amphorae that nobody has are this host's too.
 * @param unbound compute drivers whose machines are bound to no host
 */
export async function adoptMachines(
  database: Database,
  hostId: string,
  { amphoraIds, unbound }: { amphoraIds: readonly string[]; unbound: readonly string[] },
): Promise<void> {
  await execute(
    database,
    sql`
     WITH adopted AS (
       UPDATE amphora SET host_id = ${hostId}
        WHERE host_id IS NULL AND (id = ANY(${[...amphoraIds]}::uuid[]) OR load_balancer_id IS NULL)
          AND NOT coalesce(compute_driver = ANY(${[...unbound]}::text[]), false)
        RETURNING load_balancer_id)
     UPDATE load_balancer SET host_id = ${hostId} FROM adopted
      WHERE load_balancer.id = adopted.load_balancer_id AND load_balancer.host_id IS NULL`,
  )
}
