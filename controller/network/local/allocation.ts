import type { Knex } from 'knex'
import { execute, one } from '../../database/query.js'
import { type Fragment, sql } from '../../database/sql.js'
import { NoAddressLeft } from '../driver.js'
import { reservedSpan } from './shared-addresses.js'

/** Random addresses to try before searching for a gap. */
const RANDOM_ATTEMPTS = 64
/** An attempt fails only when a concurrent caller takes the address first, so this limit is a backstop. */
const MAX_ATTEMPTS = 500

/** Whether the address is allocated in the subnet of alias `pool`, or one of those that others have. */
const isTaken = (address: Fragment, others: readonly string[]) =>
  sql`(${address} = ANY(${others}::inet[])
       OR EXISTS (SELECT 1 FROM fixed_ip other WHERE other.subnet_id = pool.subnet_id AND other.address = ${address}))`

/** The subnet's pools without the reserve at the end of the largest. */
const allocatablePools = (subnetId: string, reserve: number) =>
  sql`(SELECT subnet_id, first, last - reserved AS last, span - reserved AS span
         FROM (SELECT subnet_id, first, last, span, ${reservedSpan(subnetId, reserve)} AS reserved
                 FROM allocation_pool WHERE subnet_id = ${subnetId}) whole
        WHERE span > reserved)`

/**
 * Tries random addresses until one is free. Each costs one index look-up, so a subnet nine tenths full costs ten. The
 * order is not random(): PostgreSQL would reuse the sort key as the address's random() and try the lowest first.
 */
const randomAddress = (pools: Fragment, others: readonly string[]) => sql`
  SELECT pool.candidate AS address
    FROM (SELECT subnet_id, first + floor(random() * span)::bigint AS candidate
            FROM ${pools} pools, generate_series(1, ${RANDOM_ATTEMPTS}) ORDER BY gen_random_uuid()) pool
   WHERE NOT ${isTaken(sql`pool.candidate`, others)}
   LIMIT 1`

/** The first free address after a random position, else the pool's first. Walks the index only to the first gap. */
const gapAddress = (pools: Fragment, others: readonly string[]) => sql`
  SELECT gap.address
    FROM (SELECT subnet_id, first, last, first + floor(random() * span)::bigint AS start
            FROM ${pools} pools) pool
    CROSS JOIN LATERAL (
      (${gapAfter(sql`pool.start`, others)})
      UNION ALL
      SELECT pool.first WHERE NOT ${isTaken(sql`pool.first`, others)}
      UNION ALL
      (${gapAfter(sql`pool.first`, others)})
      UNION ALL
      SELECT other + 1 FROM unnest(${others}::inet[]) other
       WHERE other >= pool.first AND other < pool.last AND NOT ${isTaken(sql`other + 1`, others)}
    ) gap
   LIMIT 1`

function gapAfter(start: Fragment, others: readonly string[]): Fragment {
  return sql`SELECT taken.address + 1 AS address FROM fixed_ip taken
           WHERE taken.subnet_id = pool.subnet_id AND taken.address >= ${start} AND taken.address < pool.last
             AND NOT ${isTaken(sql`taken.address + 1`, others)}
           ORDER BY taken.address LIMIT 1`
}

/**
 * Gives the port a free address from the subnet's allocation pools. If two callers pick the same address, the primary
 * key of fixed_ip rejects one, which then retries.
 * @param reserve the number of addresses to leave alone at the end of the largest pool
 * @param others addresses that machines have which have no port
 * @throws NoAddressLeft
 */
export async function allocateAddress(
  trx: Knex,
  { subnetId, portId, reserve, others = [] }: { subnetId: string; portId: string; reserve: number; others?: string[] },
): Promise<void> {
  const pools = allocatablePools(subnetId, reserve)
  for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
    if ((await tryToPlace(trx, randomAddress(pools, others), subnetId, portId)).placed) return
    const { found, placed } = await tryToPlace(trx, gapAddress(pools, others), subnetId, portId)
    if (placed) return
    if (!found) throw new NoAddressLeft(`No more IP addresses are available in subnet ${subnetId}.`)
  }
  throw new Error(`Subnet ${subnetId} is contended: all ${MAX_ATTEMPTS} attempts to get an address failed`)
}

/** The number of free addresses in the subnet's allocation pools, without the reserve. */
export async function freeAddresses(database: Knex, subnetId: string, reserve: number): Promise<number> {
  const { free } = await one(
    database,
    sql<{ free: number }>`
     SELECT coalesce(sum(pool.span - taken.count), 0)::float8 AS free
       FROM ${allocatablePools(subnetId, reserve)} pool
       CROSS JOIN LATERAL (SELECT count(*) FROM fixed_ip
                            WHERE subnet_id = pool.subnet_id AND address BETWEEN pool.first AND pool.last) taken`,
  )
  return free
}

async function tryToPlace(
  trx: Knex,
  choice: Fragment,
  subnetId: string,
  portId: string,
): Promise<{ found: boolean; placed: boolean }> {
  return one(
    trx,
    sql<{ found: boolean; placed: boolean }>`
     WITH choice AS MATERIALIZED (${choice}),
          placed AS (INSERT INTO fixed_ip (subnet_id, address, port_id) SELECT ${subnetId}, address, ${portId} FROM choice
                     ON CONFLICT (subnet_id, address) DO NOTHING RETURNING 1)
     SELECT EXISTS (SELECT 1 FROM choice) AS found, EXISTS (SELECT 1 FROM placed) AS placed`,
  )
}

/** Gives the port exactly this address. @returns false if it is in use */
export async function claimAddress(trx: Knex, subnetId: string, portId: string, address: string): Promise<boolean> {
  const inserted = await execute(
    trx,
    sql`INSERT INTO fixed_ip (subnet_id, address, port_id) VALUES (${subnetId}, ${address}, ${portId})
        ON CONFLICT (subnet_id, address) DO NOTHING`,
  )
  return inserted === 1
}
