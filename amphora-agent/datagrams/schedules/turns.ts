/** A member's number and weight, which is not 0. */
export type Share = { member: number; weight: number }

/** More places than this cost the kernel too much; weights are then rounded. */
const MOST_PLACES = 4096
/** Places of a schedule that follows the load, at least this many and two per member. */
const FEWEST_PLACES = 64

/**
 * The members of a cycle of turns: each has as many as its weight says, spread evenly. Pure.
 * @param before the former cycle; while all weights are the same, members keep their places in it
 */
export function weightedTurns(shares: readonly Share[], before: readonly number[]): number[] {
  const counts = reduced(shares)
  if (counts.every(({ weight }) => weight === 1)) return placed(before, counts)
  return counts
    .flatMap(({ member, weight }) =>
      Array.from({ length: weight }, (_, turn) => ({ member, at: (turn + 0.5) / weight })),
    )
    .sort((one, other) => one.at - other.at)
    .map(({ member }) => member)
}

/**
 * The members of a cycle of turns that brings each nearer to its share of the flows under way. Pure.
 * @param flows under way, by member
 * @param expected new flows until the next call
 */
export function leastLoadedTurns(
  shares: readonly Share[],
  flows: ReadonlyMap<number, number>,
  expected: number,
  before: readonly number[],
): number[] {
  const size = Math.min(MOST_PLACES, 2 ** Math.ceil(Math.log2(Math.max(FEWEST_PLACES, 2 * shares.length))))
  const perPlace = Math.max(1, expected / size)
  const queue = new LoadQueue(shares.map(share => ({ ...share, load: flows.get(share.member) ?? 0, turns: 0 })))
  for (let place = 0; place < size; place++) queue.serveLeast(perPlace)
  return placed(
    before,
    queue.members.map(({ member, turns }) => ({ member, weight: turns })),
  )
}

/** Without a common divisor, and scaled if there were too many turns. */
function reduced(shares: readonly Share[]): Share[] {
  const divisor = shares.reduce((common, { weight }) => greatestCommonDivisor(common, weight), 0)
  const total = shares.reduce((sum, { weight }) => sum + weight / divisor, 0)
  const scale = Math.min(1, MOST_PLACES / total)
  return shares.map(({ member, weight }) => ({
    member,
    weight: scale === 1 ? weight / divisor : Math.max(1, Math.round((weight / divisor) * scale)),
  }))
}

const greatestCommonDivisor = (one: number, other: number): number =>
  other === 0 ? one : greatestCommonDivisor(other, one % other)

/** Gives each member its number of places, and leaves what it may where it was. */
function placed(before: readonly number[], counts: readonly Share[]): number[] {
  const left = new Map(counts.map(({ member, weight }) => [member, weight]))
  const size = counts.reduce((sum, { weight }) => sum + weight, 0)
  const places = Array.from({ length: size }, (_, place) => {
    const member = before[place]
    const more = member === undefined ? 0 : (left.get(member) ?? 0)
    if (member === undefined || more === 0) return null
    left.set(member, more - 1)
    return member
  })
  const missing = [...left].flatMap(([member, more]) =>
    Array.from({ length: more }, (_, turn) => ({ member, at: (turn + 0.5) / more })),
  )
  missing.sort((one, other) => one.at - other.at)
  let next = 0
  return places.map(member => member ?? missing[next++]!.member)
}

type Loaded = Share & { load: number; turns: number }

/** A binary heap: the member with the least load for its weight is first. */
class LoadQueue {
  readonly members: Loaded[]

  constructor(members: Loaded[]) {
    this.members = members
    for (let i = Math.floor(members.length / 2) - 1; i >= 0; i--) this.#sink(i)
  }

  serveLeast(load: number): void {
    const [first] = this.members
    if (first === undefined) return
    first.turns += 1
    first.load += load
    this.#sink(0)
  }

  #sink(start: number): void {
    let at = start
    for (;;) {
      const children = [2 * at + 1, 2 * at + 2].filter(child => child < this.members.length)
      const least = children.reduce((best, child) => (this.#isBefore(child, best) ? child : best), at)
      if (least === at) return
      ;[this.members[at], this.members[least]] = [this.members[least]!, this.members[at]!]
      at = least
    }
  }

  /** With equal loads, the heavier member has the next flow. */
  #isBefore(one: number, other: number): boolean {
    const [a, b] = [this.members[one]!, this.members[other]!]
    return (a.load + 1) * b.weight < (b.load + 1) * a.weight
  }
}
