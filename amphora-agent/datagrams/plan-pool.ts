import { canonical } from '../network/address.js'
import type { DatagramPool } from '../protocol/datagrams.js'
import { addressType, FAMILIES, type Family, ip, proto } from './families.js'
import type { MemberStates } from './member-states.js'
import { hexadecimal, memberKey, type Numbers } from './numbers.js'
import { chain, type ElementSet, type Parts, type Ruleset } from './ruleset.js'
import { hashOf } from './schedules/hash.js'
import { maglevTable, tableSize } from './schedules/maglev.js'
import { leastLoadedTurns, weightedTurns } from './schedules/turns.js'
import { isUsable, type Serving, servingMembers } from './serving.js'

/** What is under way, for LEAST_CONNECTIONS. */
export type Loads = {
  /** Flows by member number. */
  flows: ReadonlyMap<number, number>
  /** New flows until the schedule follows again, within a second or so, by pool id. */
  expected: ReadonlyMap<string, number>
}

export type PoolFacts = {
  numbers: Numbers
  states: MemberStates
  loads: Loads
  /** What the table holds now: schedules change as little as they can. */
  before: Ruleset
}

/** Clients that a pool remembers, of each family; they cost about 10 MiB. When there are more, the newest are spread anew. */
const MOST_CLIENTS = 65_536

/** What a pool's chain and sets are named after. */
export const nameOf = (poolId: string): string => poolId.replaceAll('-', '')

const bitsOf = ({ persistence }: DatagramPool, family: Family): number =>
  persistence?.bits[family === 4 ? 'ipv4' : 'ipv6'] ?? 0

/** Another granularity makes other keys, so it has another map. */
export const clientsOf = (pool: DatagramPool, family: Family): string =>
  `clients${family}_${bitsOf(pool, family)}_${nameOf(pool.id)}`

/** The leading bits of the client's address. */
export function client(pool: DatagramPool, family: Family): string {
  const bits = bitsOf(pool, family)
  const whole = family === 4 ? 32 : 128
  return bits === whole ? `${ip(family)} saddr` : `${ip(family)} saddr & ${maskOf(bits, family)}`
}

function maskOf(bits: number, family: Family): string {
  const [size, count] = family === 4 ? [8, 4] : [16, 8]
  const groups = Array.from({ length: count }, (_, i) => {
    const ones = Math.min(size, Math.max(0, bits - i * size))
    return 2 ** size - 2 ** (size - ones)
  })
  return family === 4 ? groups.join('.') : canonical(groups.map(group => group.toString(16)).join(':'))
}

/** How a pool chooses: it leaves the member's number in the packet's mark, or 0 if none serves. */
export function planPool(pool: DatagramPool, facts: PoolFacts): Parts {
  const { numbers, states } = facts
  const name = nameOf(pool.id)
  const numberOf = (member: DatagramPool['members'][number]) => numbers.members.given[memberKey(pool.id, member)]!
  const usable = pool.members.filter(member => isUsable(pool, member, states))
  const schedules = FAMILIES.map(family =>
    planSchedule(pool, family, servingMembers(pool, family, states), numberOf, facts),
  )
  const known = pool.persistence === null ? [] : FAMILIES
  const sets: [string, ElementSet][] = [
    ...known.map((family): [string, ElementSet] => [
      clientsOf(pool, family),
      {
        kind: 'map',
        declaration: `type ${addressType(family)} : mark; size ${MOST_CLIENTS}; flags dynamic,timeout`,
        elements: 'dynamic',
      },
    ]),
    ...(pool.persistence === null
      ? []
      : [
          [
            `usable_${name}`,
            {
              kind: 'set',
              declaration: 'type mark',
              elements: new Map(usable.map(member => [hexadecimal(numberOf(member)), null])),
            },
          ] as [string, ElementSet],
        ]),
    ...schedules.flatMap(schedule => (schedule === null ? [] : [schedule.set])),
  ]
  return {
    objects: [],
    sets,
    chains: [
      chain(`pool_${name}`, null, [
        ...known.map(family => `meta mark set ${client(pool, family)} map @${clientsOf(pool, family)}`),
        ...(pool.persistence === null ? [] : [`meta mark @usable_${name} return`]),
        // The element is of a member that left: an update would keep it.
        ...known.map(
          family =>
            `meta mark != 0x00000000 delete @${clientsOf(pool, family)} { ${client(pool, family)} : meta mark }`,
        ),
        ...(pool.persistence === null ? [] : ['meta mark set 0x00000000']),
        ...schedules.flatMap(schedule => (schedule === null ? [] : [schedule.rule])),
      ]),
    ],
  }
}

type Schedule = { rule: string; set: [string, ElementSet] }

/** @returns null if no member serves */
function planSchedule(
  pool: DatagramPool,
  family: Family,
  { serving, candidates }: Serving,
  numberOf: (member: DatagramPool['members'][number]) => number,
  { before, loads }: PoolFacts,
): Schedule | null {
  if (serving.length === 0) return null
  const name = `schedule${family}_${nameOf(pool.id)}`
  const former = placesOf(before.sets.get(name))
  const shares = serving.map(member => ({ member: numberOf(member), weight: member.weight }))
  const rule = (selector: string) => `meta nfproto ${proto(family)} meta mark set ${selector} map @${name}`
  const made = (selector: string, places: readonly number[]): Schedule => ({
    rule: rule(selector),
    set: [
      name,
      {
        kind: 'map',
        // Also for hashes: nft crashes when it lists a map that was declared with one.
        declaration: 'typeof numgen inc mod 2 : meta mark',
        elements: new Map(places.map((member, place) => [String(place), hexadecimal(member)])),
      },
    ],
  })
  if (pool.algorithm === 'ROUND_ROBIN' || pool.algorithm === 'LEAST_CONNECTIONS') {
    const places =
      pool.algorithm === 'ROUND_ROBIN'
        ? weightedTurns(shares, former)
        : leastLoadedTurns(shares, loads.flows, loads.expected.get(pool.id) ?? 0, former)
    return made(`numgen inc mod ${places.length}`, places)
  }
  const numbers = new Map(serving.map(member => [member.id, numberOf(member)]))
  const places = maglevTable(candidates, new Set(numbers.keys())).map(id => numbers.get(id)!)
  const source = pool.algorithm === 'SOURCE_IP' ? `${ip(family)} saddr` : `${ip(family)} saddr . th sport`
  return made(`jhash ${source} mod ${tableSize(candidates.length)} seed ${hexadecimal(hashOf(pool.id))}`, places)
}

/** The members of a schedule in the order of their places. */
function placesOf(set: ElementSet | undefined): number[] {
  if (set === undefined || typeof set.elements === 'string') return []
  const places = [...set.elements].map(([place, member]) => [Number(place), Number(member)] as const)
  return places.sort(([one], [other]) => one - other).map(([, member]) => member)
}
