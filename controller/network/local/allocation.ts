import type { Knex } from 'knex'
import { NoAddressLeft } from '../driver.js'
import { KEPT } from './shared-addresses.js'

/** How many addresses are tried at random before the gaps between allocated ones are searched. */
const GUESSES = 64
/** Each failed attempt means that somebody else got an address meanwhile, so this is never reached in practice. */
const ATTEMPTS = 500

/** Trusted SQL over an alias `pool`. */
const isTaken = (address: string) =>
  `EXISTS (SELECT 1 FROM fixed_ip other WHERE other.subnet_id = pool.subnet_id AND other.address = ${address})`

/** The subnet's pools without what is kept at the end of the largest; binds the subnet, the reserve and the subnet. */
const POOLS = `(SELECT subnet_id, first, last - kept AS last, span - kept AS span
                  FROM (SELECT *, ${KEPT} AS kept FROM allocation_pool WHERE subnet_id = ?) whole
                 WHERE span > kept)`

/** Addresses at random until one is free: one index look-up each, so that a subnet nine tenths full costs ten. */
const GUESS = `
  SELECT pool.guess AS address
    FROM (SELECT subnet_id, first + floor(random() * span)::bigint AS guess
            FROM ${POOLS} pools, generate_series(1, ${GUESSES}) ORDER BY random()) pool
   WHERE NOT ${isTaken('pool.guess')}
   LIMIT 1`

/** The first free address after a random place, else after the beginning: walks the index only until there is a gap. */
const GAP = `
  SELECT gap.address
    FROM (SELECT subnet_id, first, last, first + floor(random() * span)::bigint AS start
            FROM ${POOLS} pools) pool
    CROSS JOIN LATERAL (
      (${gapAfter('pool.start')})
      UNION ALL
      SELECT pool.first WHERE NOT ${isTaken('pool.first')}
      UNION ALL
      (${gapAfter('pool.first')})
    ) gap
   LIMIT 1`

function gapAfter(start: string): string {
  return `SELECT taken.address + 1 AS address FROM fixed_ip taken
           WHERE taken.subnet_id = pool.subnet_id AND taken.address >= ${start} AND taken.address < pool.last
             AND NOT ${isTaken('taken.address + 1')}
           ORDER BY taken.address LIMIT 1`
}

/**
 * Gives the port a free address of the subnet's allocation pools. The primary key of fixed_ip decides between two that choose the
 * same address at once; the loser chooses again.
 * @param reserve how many addresses at the end of the pools are left alone
 * @throws NoAddressLeft
 */
export async function allocateAddress(trx: Knex, subnetId: string, portId: string, reserve: number): Promise<void> {
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    if ((await place(trx, GUESS, subnetId, portId, reserve)).placed) return
    const gap = await place(trx, GAP, subnetId, portId, reserve)
    if (gap.placed) return
    if (!gap.found) throw new NoAddressLeft(`No more IP addresses are available in subnet ${subnetId}.`)
  }
  throw new Error(`Subnet ${subnetId} is contended: ${ATTEMPTS} attempts lost`)
}

/** How many addresses of the subnet's allocation pools are free, of those that are chosen from when the reserve is left alone. */
export async function freeAddresses(database: Knex, subnetId: string, reserve: number): Promise<number> {
  const { rows } = await database.raw(
    `SELECT coalesce(sum(pool.span - taken.count), 0)::float8 AS free
       FROM ${POOLS} pool
       CROSS JOIN LATERAL (SELECT count(*) FROM fixed_ip
                            WHERE subnet_id = pool.subnet_id AND address BETWEEN pool.first AND pool.last) taken`,
    [subnetId, reserve, subnetId],
  )
  return (rows as { free: number }[])[0]?.free ?? 0
}

async function place(
  trx: Knex,
  choice: string,
  subnetId: string,
  portId: string,
  reserve: number,
): Promise<{ found: boolean; placed: boolean }> {
  const { rows } = await trx.raw(
    `WITH choice AS MATERIALIZED (${choice}),
          placed AS (INSERT INTO fixed_ip (subnet_id, address, port_id) SELECT ?, address, ? FROM choice
                     ON CONFLICT (subnet_id, address) DO NOTHING RETURNING 1)
     SELECT EXISTS (SELECT 1 FROM choice) AS found, EXISTS (SELECT 1 FROM placed) AS placed`,
    [subnetId, reserve, subnetId, subnetId, portId],
  )
  return rows[0]
}

/** Gives the port this very address. @returns false when it is in use */
export async function claimAddress(trx: Knex, subnetId: string, portId: string, address: string): Promise<boolean> {
  const { rows } = await trx.raw(
    'INSERT INTO fixed_ip (subnet_id, address, port_id) VALUES (?, ?, ?) ON CONFLICT (subnet_id, address) DO NOTHING RETURNING 1',
    [subnetId, address, portId],
  )
  return rows.length === 1
}
