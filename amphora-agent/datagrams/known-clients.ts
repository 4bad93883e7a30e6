import * as z from 'zod'
import { familyOf } from '../network/address.js'
import { run } from '../process/run.js'
import type { DatagramPool } from '../protocol/datagrams.js'
import { hexadecimal, memberKey, type Numbers } from './numbers.js'
import { clientsOf } from './plan-pool.js'
import { TABLE } from './ruleset.js'

/** A client that session persistence binds to a member. */
export const knownClientSchema = z.strictObject({
  poolId: z.uuid(),
  memberId: z.uuid(),
  /** The leading bits of the client's address that count, followed by zeros. */
  address: z.union([z.ipv4(), z.ipv6()]),
  /** After so many seconds without a packet it is forgotten. */
  secondsLeft: z.int().min(1),
})

export type KnownClient = z.output<typeof knownClientSchema>

/** Elements of one command. */
const PER_COMMAND = 500
const EXPIRING_SECONDS = 3

const elementSchema = z.tuple([z.object({ elem: z.object({ val: z.string(), expires: z.int() }) }), z.int()])
const listingSchema = z.object({
  nftables: z.array(z.object({ map: z.object({ elem: z.array(elementSchema).optional() }).optional() })),
})

/** Reads what the kernel has learned. @throws Error if nft fails */
export async function readClients(pools: readonly DatagramPool[], numbers: Numbers): Promise<KnownClient[]> {
  const clients: KnownClient[] = []
  for (const pool of pools.filter(({ persistence }) => persistence !== null)) {
    const members = new Map(pool.members.map(one => [numbers.members.given[memberKey(pool.id, one)], one.id]))
    for (const family of [4, 6] as const) {
      const { status, stdout, stderr } = await run('nft', [
        '-j',
        'list',
        'map',
        ...TABLE.split(' '),
        clientsOf(pool, family),
      ])
      if (status !== 0) throw new Error(`nft: ${stderr.trim().slice(0, 500)}`)
      const elements = listingSchema.parse(JSON.parse(stdout)).nftables.flatMap(({ map }) => map?.elem ?? [])
      for (const [{ elem }, number] of elements) {
        const memberId = members.get(number)
        if (memberId === undefined || elem.expires < 1) continue
        clients.push({ poolId: pool.id, memberId, address: elem.val, secondsLeft: elem.expires })
      }
    }
  }
  return clients
}

/** The input of `nft -f` that lets the kernel remember clients as the other amphora does. What differs little stays. Pure. */
export function learningText(
  clients: readonly KnownClient[],
  known: readonly KnownClient[],
  pools: readonly DatagramPool[],
  numbers: Numbers,
): string {
  const here = new Map(known.map(client => [placeOf(client), client]))
  const elements = new Map<string, { fresh: string[]; stale: string[] }>()
  for (const client of clients) {
    const { poolId, memberId, address, secondsLeft } = client
    const former = here.get(placeOf(client))
    const pool = pools.find(({ id }) => id === poolId)
    const member = pool?.members.find(({ id }) => id === memberId)
    if (!pool?.persistence || member === undefined) continue
    // An element that may expire meanwhile cannot be deleted safely; the next time it is gone.
    if (former !== undefined && former.secondsLeft < EXPIRING_SECONDS) continue
    if (former?.memberId === memberId && former.secondsLeft >= secondsLeft - pool.persistence.seconds / 5) continue
    const name = clientsOf(pool, familyOf(address))
    const mark = hexadecimal(numbers.members.given[memberKey(poolId, member)]!)
    const { fresh, stale } = elements.get(name) ?? { fresh: [], stale: [] }
    elements.set(name, { fresh, stale })
    fresh.push(`${address} timeout ${Math.min(secondsLeft, pool.persistence.seconds)}s : ${mark}`)
    if (former !== undefined) stale.push(address)
  }
  return [...elements]
    .flatMap(([name, { fresh, stale }]) => [...commands('delete', name, stale), ...commands('add', name, fresh)])
    .join('')
}

const placeOf = ({ poolId, address }: KnownClient): string => `${poolId} ${address}`

const commands = (verb: 'add' | 'delete', name: string, words: readonly string[]): string[] =>
  Array.from({ length: Math.ceil(words.length / PER_COMMAND) }, (_, piece) => {
    const some = words.slice(piece * PER_COMMAND, (piece + 1) * PER_COMMAND)
    return `${verb} element ${TABLE} ${name} { ${some.join(', ')} }\n`
  })
