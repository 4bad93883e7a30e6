import type { Knex } from 'knex'
import { execute, one } from '../../database/query.js'
import { type Fragment, sql } from '../../database/sql.js'
import { NoAddressLeft } from '../driver.js'
import { keptOf } from './shared-addresses.js'

/** How many addresses are tried at random before the gaps between allocated ones are searched. */
const GUESSES = 64
/** Each failed attempt means that somebody else got an address meanwhile, so this is never reached in practice. */
const ATTEMPTS = 500

/** SQL over an alias `pool`. */
const isTaken = (address: Fragment) =>
  sql`EXISTS (SELECT 1 FROM fixed_ip other WHERE other.subnet_id = pool.subnet_id AND other.address = ${address})`

/** The subnet's pools without what is kept at the end of the largest. */
const poolsOf = (subnetId: string, reserve: number) =>
  sql`(SELECT subnet_id, first, last - kept AS last, span - kept AS span
         FROM (SELECT subnet_id, first, last, span, ${keptOf(subnetId, reserve)} AS kept
                 FROM allocation_pool WHERE subnet_id = ${subnetId}) whole
        WHERE span > kept)`

/**
 * Addresses at random until one is free: one index look-up each, so that a subnet nine tenths full costs ten. The order is not
 * random(): PostgreSQL would take the value it sorts by for the random() of the address, and try the lowest first.
 */
const guess = (pools: Fragment) => sql`
  SELECT pool.guess AS address
    FROM (SELECT subnet_id, first + floor(random() * span)::bigint AS guess
            FROM ${pools} pools, generate_series(1, ${GUESSES}) ORDER BY gen_random_uuid()) pool
   WHERE NOT ${isTaken(sql`pool.guess`)}
   LIMIT 1`

/** The first free address after a random place, else after the beginning: walks the index only until there is a gap. */
const gap = (pools: Fragment) => sql`
  SELECT gap.address
    FROM (SELECT subnet_id, first, last, first + floor(random() * span)::bigint AS start
            FROM ${pools} pools) pool
    CROSS JOIN LATERAL (
      (${gapAfter(sql`pool.start`)})
      UNION ALL
      SELECT pool.first WHERE NOT ${isTaken(sql`pool.first`)}
      UNION ALL
      (${gapAfter(sql`pool.first`)})
    ) gap
   LIMIT 1`

function gapAfter(start: Fragment): Fragment {
  return sql`SELECT taken.address + 1 AS address FROM fixed_ip taken
           WHERE taken.subnet_id = pool.subnet_id AND taken.address >= ${start} AND taken.address < pool.last
             AND NOT ${isTaken(sql`taken.address + 1`)}
           ORDER BY taken.address LIMIT 1`
}

/**
 * Gives the port a free address of the subnet's allocation pools. The primary key of fixed_ip decides between two that choose the
 * same address at once; the loser chooses again.
 * @param reserve how many addresses at the end of the pools are left alone
 * @throws NoAddressLeft
 */
export async function allocateAddress(trx: Knex, subnetId: string, portId: string, reserve: number): Promise<void> {
  const pools = poolsOf(subnetId, reserve)
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    if ((await place(trx, guess(pools), subnetId, portId)).placed) return
    const last = await place(trx, gap(pools), subnetId, portId)
    if (last.placed) return
    if (!last.found) throw new NoAddressLeft(`No more IP addresses are available in subnet ${subnetId}.`)
  }
  throw new Error(`Subnet ${subnetId} is contended: ${ATTEMPTS} attempts lost`)
}

/** How many addresses of the subnet's allocation pools are free, of those that are chosen from when the reserve is left alone. */
export async function freeAddresses(database: Knex, subnetId: string, reserve: number): Promise<number> {
  const { free } = await one(
    database,
    sql<{ free: number }>`
     SELECT coalesce(sum(pool.span - taken.count), 0)::float8 AS free
       FROM ${poolsOf(subnetId, reserve)} pool
       CROSS JOIN LATERAL (SELECT count(*) FROM fixed_ip
                            WHERE subnet_id = pool.subnet_id AND address BETWEEN pool.first AND pool.last) taken`,
  )
  return free
}

async function place(
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

/** Gives the port this very address. @returns false when it is in use */
export async function claimAddress(trx: Knex, subnetId: string, portId: string, address: string): Promise<boolean> {
  const inserted = await execute(
    trx,
    sql`INSERT INTO fixed_ip (subnet_id, address, port_id) VALUES (${subnetId}, ${address}, ${portId})
        ON CONFLICT (subnet_id, address) DO NOTHING`,
  )
  return inserted === 1
}
