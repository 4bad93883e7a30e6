import { hashOf, mixed } from './hash.js'

/** A member with its weight, which is not 0. */
export type Weighted = { id: string; weight: number }

/** Primes. A table has about fifty places per member, so that shares are right within some percent. */
const SIZES = [251, 1021, 4093, 16381] as const
const PLACES_PER_MEMBER = 50

/** The size depends on the number of members alone, so it stays when one goes down. */
export const tableSize = (members: number): number =>
  SIZES.find(size => size >= members * PLACES_PER_MEMBER) ?? SIZES.at(-1)!

/**
 * The member of each place of a Maglev table (Eisenbud et al., NSDI 2016), with weights. The places of members that do
 * not serve go to the others, so only their clients move, and back when they serve again. Pure.
 * @param members all, in any order; at least one
 * @param serving ids of those that serve; at least one
 */
export function maglevTable(members: readonly Weighted[], serving: ReadonlySet<string>): string[] {
  const sorted = [...members].sort((one, other) => (one.id < other.id ? -1 : 1))
  const owners = filledTable(sorted, tableSize(sorted.length))
  const others = sorted.filter(({ id }) => serving.has(id)).map(member => ({ ...member, hash: hashOf(member.id) }))
  return owners.map((owner, place) => (serving.has(owner) ? owner : substitute(place, others)))
}

function filledTable(members: readonly Weighted[], size: number): string[] {
  const table: (string | undefined)[] = Array.from({ length: size })
  const heaviest = Math.max(...members.map(({ weight }) => weight))
  const turns = members.map(({ id, weight }) => ({
    id,
    weight,
    due: 0,
    place: hashOf(`${id} offset`) % size,
    skip: (hashOf(`${id} skip`) % (size - 1)) + 1,
  }))
  let filled = 0
  for (let round = 1; filled < size; round++) {
    for (const turn of turns) {
      if (round * turn.weight < turn.due) continue
      turn.due += heaviest
      while (table[turn.place] !== undefined) turn.place = (turn.place + turn.skip) % size
      table[turn.place] = turn.id
      filled += 1
      if (filled === size) break
    }
  }
  return table as string[]
}

/** Rendezvous hashing with weights: another member that goes down takes none but its own places along. */
function substitute(place: number, members: readonly (Weighted & { hash: number })[]): string {
  let best = { id: '', score: Number.NEGATIVE_INFINITY }
  for (const { id, weight, hash } of members) {
    const score = -weight / Math.log((mixed(hash ^ Math.imul(place + 1, 0x9e3779b1)) + 0.5) / 2 ** 32)
    if (score > best.score) best = { id, score }
  }
  return best.id
}
