import * as z from 'zod'
import type { DatagramMember, Datagrams } from '../protocol/datagrams.js'

/**
 * The mark of a connection names its service, a listener with its pool, in the upper 12 bits, and its member in the
 * lower 20. A mark of 0 is no flow of ours.
 */
const MEMBER_BITS = 20
const MOST_SERVICES = 2 ** 12 - 1
const MOST_MEMBERS = 2 ** MEMBER_BITS - 1

export const SERVICE_MASK = '0xfff00000'
export const MEMBER_MASK = '0x000fffff'

const allottedSchema = z.strictObject({ last: z.int().min(0), given: z.record(z.string(), z.int().positive()) })
export const numbersSchema = z.strictObject({
  services: allottedSchema,
  members: allottedSchema,
  /** How often the table was made, and its counters began at zero. */
  tables: z.int().min(0),
})

type Allotted = z.output<typeof allottedSchema>
/** The numbers in use, by what they name, and the one that was allotted last. */
export type Numbers = z.output<typeof numbersSchema>

export const serviceKey = ({ id, poolId }: { id: string; poolId: string | null }): string => `${id} ${poolId ?? ''}`

/** With the address: a member that moves gets a new number, and its flows begin anew. */
export const memberKey = (poolId: string, { id, address, port }: DatagramMember): string =>
  `${poolId} ${id} ${address} ${port}`

export const serviceMark = (service: number): number => service * 2 ** MEMBER_BITS
export const serviceOf = (mark: number): number => Math.floor(mark / 2 ** MEMBER_BITS)
export const memberOf = (mark: number): number => mark % 2 ** MEMBER_BITS

/** As nft prints it. */
export const hexadecimal = (mark: number): string => `0x${mark.toString(16).padStart(8, '0')}`

/** The first numbers. They begin anywhere, so that flows from before the numbers were lost do not pass for others. */
export const noNumbers = (random: () => number = Math.random): Numbers => ({
  services: { last: Math.floor(random() * MOST_SERVICES), given: {} },
  members: { last: Math.floor(random() * MOST_MEMBERS), given: {} },
  tables: 0,
})

/**
 * Keeps the numbers of what is still there, forgets the others, and allots new ones in turn, so that a number comes back
 * late.
 * @throws RangeError if there are more services or members than numbers
 */
export function allot(before: Numbers, { listeners, pools }: Datagrams): Numbers {
  const members = pools.flatMap(pool => pool.members.map(member => memberKey(pool.id, member)))
  return {
    services: allotted(before.services, listeners.map(serviceKey), MOST_SERVICES),
    members: allotted(before.members, members, MOST_MEMBERS),
    tables: before.tables,
  }
}

function allotted(before: Allotted, keys: readonly string[], most: number): Allotted {
  if (keys.length > most) throw new RangeError(`there are more than ${most} services or members`)
  const kept = keys.filter(key => before.given[key] !== undefined)
  const given: Record<string, number> = Object.fromEntries(kept.map(key => [key, before.given[key]!]))
  const taken = new Set(Object.values(given))
  let { last } = before
  for (const key of keys) {
    if (given[key] !== undefined) continue
    do last = (last % most) + 1
    while (taken.has(last))
    given[key] = last
    taken.add(last)
  }
  return { last, given }
}
