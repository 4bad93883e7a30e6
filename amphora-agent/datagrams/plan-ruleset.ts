import { canonical, familyOf, networkOf } from '../network/address.js'
import { FORWARDED_MARK, replyMark, TUNNEL_MARK } from '../network/marks.js'
import type { DatagramListener, DatagramPool, Datagrams } from '../protocol/datagrams.js'
import type { Interface } from '../protocol/desired.js'
import type { MemberStates } from './member-states.js'
import { hexadecimal, MEMBER_MASK, memberKey, type Numbers, SERVICE_MASK, serviceKey, serviceMark } from './numbers.js'
import { type Chain, type ElementSet, type NamedObject, type Ruleset, SIGNATURES } from './ruleset.js'
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

export type RulesetFacts = {
  datagrams: Datagrams
  interfaces: readonly Interface[]
  numbers: Numbers
  states: MemberStates
  loads: Loads
  /** What the table holds now: schedules change as little as they can. */
  before: Ruleset
}

/** Clients that a pool remembers, of each family; they cost about 10 MiB. When there are more, the newest are spread anew. */
const MOST_CLIENTS = 65_536
/** A flow over SCTP that ended counts for so long. */
const ENDED_SECONDS = 3

/** Numbers, not names: the machine may lack /etc/protocols. */
const PROTOCOL = { tcp: 6, udp: 17, sctp: 132 } as const

const FAMILIES = [4, 6] as const
type Family = (typeof FAMILIES)[number]
const ip = (family: Family): string => (family === 4 ? 'ip' : 'ip6')
const addressType = (family: Family): string => (family === 4 ? 'ipv4_addr' : 'ipv6_addr')
const proto = (family: Family): string => (family === 4 ? 'ipv4' : 'ipv6')

/** A router or a host tells by these that it could not deliver a packet of a flow. */
const ERRORS = [
  'icmp type { destination-unreachable, time-exceeded, parameter-problem }',
  'icmpv6 type { destination-unreachable, packet-too-big, time-exceeded, parameter-problem }',
]

const nameOf = (poolId: string): string => poolId.replaceAll('-', '')

export const countersOf = (service: number) =>
  ({
    begun: `begun_${service}`,
    received: `received_${service}`,
    sent: `sent_${service}`,
    refused: `refused_${service}`,
  }) as const

export const flowsOf = (service: number): string => `flows_${service}`

type Parts = {
  objects: [string, NamedObject][]
  sets: [string, ElementSet][]
  chains: [string, Chain<string[]>][]
}

/** The table for the desired state: which packets go where. Pure. */
export function planRuleset(facts: RulesetFacts): Ruleset<readonly string[]> {
  const { datagrams } = facts
  const pools = new Map(datagrams.pools.map(pool => [pool.id, planPool(pool, facts)]))
  const services = datagrams.listeners.map(listener => {
    const pool = datagrams.pools.find(({ id }) => id === listener.poolId) ?? null
    return planService(listener, pool, facts)
  })
  const parts = [...pools.values(), ...services, planCommon(facts)]
  return {
    objects: new Map(parts.flatMap(({ objects }) => objects)),
    sets: new Map(parts.flatMap(({ sets }) => sets)),
    chains: new Map(parts.flatMap(({ chains }) => chains)),
  }
}

/** What all listeners share: where packets come in, and how they go on. */
function planCommon({ datagrams, interfaces, numbers, states }: RulesetFacts): Parts {
  const { vips, listeners, pools } = datagrams
  const number = (listener: DatagramListener) => numbers.services.given[serviceKey(listener)]!
  const targets = pools.flatMap(pool =>
    pool.members
      .filter(member => isUsable(pool, member, states))
      .map(member => ({
        family: familyOf(member.address),
        mark: hexadecimal(numbers.members.given[memberKey(pool.id, member)]!),
        place: `${canonical(member.address)} . ${member.port}`,
      })),
  )
  const destinations = <T>(family: Family, value: (listener: DatagramListener) => T) =>
    vips
      .filter(vip => familyOf(vip) === family)
      .flatMap(vip =>
        listeners.map(
          listener =>
            [`${canonical(vip)} . ${PROTOCOL[listener.protocol]} . ${listener.port}`, value(listener)] as const,
        ),
      )
  const replies = interfaces
    .flatMap(iface => iface.vips)
    .map((vip, index) => ({ vip: vip.address, mark: replyMark(index) }))
  const byService = (kind: 'received' | 'sent'): ElementSet => ({
    kind: 'map',
    declaration: 'type mark : counter',
    elements: new Map(
      listeners.map(listener => [
        hexadecimal(serviceMark(number(listener))),
        `"${countersOf(number(listener))[kind]}"`,
      ]),
    ),
  })
  const sets: [string, ElementSet][] = [
    ...FAMILIES.flatMap((family): [string, ElementSet][] => [
      [
        `served${family}`,
        {
          kind: 'set',
          declaration: `type ${addressType(family)} . inet_proto . inet_service`,
          elements: new Map(destinations(family, () => null)),
        },
      ],
      [
        `places${family}`,
        {
          kind: 'set',
          declaration: `type ${addressType(family)} . inet_service`,
          elements: new Map(targets.filter(target => target.family === family).map(({ place }) => [place, null])),
        },
      ],
      [
        `listeners${family}`,
        {
          kind: 'map',
          declaration: `type ${addressType(family)} . inet_proto . inet_service : verdict`,
          elements: new Map(destinations(family, listener => `goto listener_${number(listener)}`)),
        },
      ],
      [
        `refusing${family}`,
        {
          kind: 'map',
          declaration: `type ${addressType(family)} . inet_proto . inet_service : verdict`,
          elements: new Map(destinations(family, listener => `goto refuse_${number(listener)}`)),
        },
      ],
      [
        `targets${family}`,
        {
          kind: 'map',
          declaration: `type mark : ${addressType(family)} . inet_service`,
          elements: new Map(targets.filter(target => target.family === family).map(({ mark, place }) => [mark, place])),
        },
      ],
      [
        `replies${family}`,
        {
          kind: 'map',
          declaration: `type ${addressType(family)} : mark`,
          elements: new Map(
            replies.filter(({ vip }) => familyOf(vip) === family).map(({ vip, mark }) => [canonical(vip), mark]),
          ),
        },
      ],
    ]),
    [SIGNATURES, { kind: 'set', declaration: 'type mark', elements: 'dynamic' }],
    ['received', byService('received')],
    ['sent', byService('sent')],
    [
      'followed',
      {
        kind: 'map',
        declaration: 'type mark : verdict',
        elements: new Map(
          listeners
            .filter(listener => isFollowed(listener, pools.find(({ id }) => id === listener.poolId) ?? null))
            .map(listener => [hexadecimal(serviceMark(number(listener))), `jump follow_${number(listener)}`]),
        ),
      },
    ],
    [
      'interfaces',
      { kind: 'set', declaration: 'type ifname', elements: new Map(interfaces.map(({ name }) => [`"${name}"`, null])) },
    ],
  ]
  const ours = `ct status dnat ct mark & ${SERVICE_MASK} != 0`
  return {
    objects: [],
    sets,
    chains: [
      // Only what may belong to a flow is tracked. The rest would cost, and it would be lost when the table of connections
      // is full: VRRP and heartbeats, too.
      chain('untracked', 'type filter hook prerouting priority raw; policy accept', [
        `meta l4proto ${PROTOCOL.tcp} notrack accept`,
        ...FAMILIES.map(family => `${ip(family)} daddr . meta l4proto . th dport @served${family} accept`),
        ...FAMILIES.map(family => `${ip(family)} saddr . th sport @places${family} accept`),
        ...ERRORS.map(types => `${types} accept`),
        'notrack',
      ]),
      // Probes of members are tracked, so that no flow gets the port that a probe has.
      chain('untracked_own', 'type filter hook output priority raw; policy accept', [
        ...FAMILIES.map(
          family => `meta l4proto != ${PROTOCOL.tcp} ${ip(family)} daddr . th dport @places${family} accept`,
        ),
        'notrack',
      ]),
      chain('reply', 'type filter hook prerouting priority mangle; policy accept', [
        ...FAMILIES.map(
          family => `ct direction reply ${ours} meta mark set ct original ${ip(family)} daddr map @replies${family}`,
        ),
      ]),
      chain('prerouting', 'type nat hook prerouting priority dstnat; policy accept', [
        ...FAMILIES.map(
          family => `iifname @interfaces ${ip(family)} daddr . meta l4proto . th dport vmap @listeners${family}`,
        ),
      ]),
      chain('input', 'type filter hook input priority filter; policy accept', [
        ...FAMILIES.map(
          family => `iifname @interfaces ${ip(family)} daddr . meta l4proto . th dport vmap @refusing${family}`,
        ),
      ]),
      // Ahead of the handover's rules, which drop what has neither mark.
      chain('forward', 'type filter hook forward priority -5; policy drop', [
        `meta mark ${TUNNEL_MARK} accept`,
        `ct direction original counter name ct mark & ${SERVICE_MASK} map @received`,
        `ct direction reply counter name ct mark & ${SERVICE_MASK} map @sent`,
        `ct mark & ${SERVICE_MASK} vmap @followed`,
        `${ours} meta mark set ${FORWARDED_MARK} accept`,
      ]),
      // The member is often on the client's own network, but the client must not learn of it.
      chain('output', 'type filter hook output priority filter; policy accept', ['icmpv6 type nd-redirect drop']),
      chain('postrouting', 'type nat hook postrouting priority srcnat; policy accept', [`${ours} masquerade`]),
    ],
  }
}

const chain = (name: string, hook: string | null, rules: string[]): Parts['chains'][number] => [name, { hook, rules }]

const isFollowed = ({ limit }: DatagramListener, pool: DatagramPool | null): boolean =>
  limit !== null || (pool !== null && pool.persistence !== null)

/** A listener with its pool: who may come, how many, and what is counted. */
function planService(listener: DatagramListener, pool: DatagramPool | null, { numbers }: RulesetFacts): Parts {
  const { protocol, limit, allowed, idleSeconds } = listener
  const number = numbers.services.given[serviceKey(listener)]!
  const counters = countersOf(number)
  const refuse = `counter name "${counters.refused}" drop`
  const idle = `idle_${idleSeconds}`
  const flows = flowsOf(number)
  const keepFlow = `update @${flows} { ct id timeout ${idleSeconds}s }`
  const begin = [
    `ct mark set meta mark | ${hexadecimal(serviceMark(number))}`,
    'meta mark set 0x00000000',
    ...(protocol === 'udp' ? [`ct timeout set "${idle}"`] : []),
    `counter name "${counters.begun}"`,
    ...FAMILIES.map(
      family =>
        `meta l4proto ${PROTOCOL[protocol]} dnat ${ip(family)} to ct mark & ${MEMBER_MASK} map @targets${family}`,
    ),
  ]
  const choose =
    pool === null ? [] : ['meta mark set 0x00000000', `jump pool_${nameOf(pool.id)}`, 'meta mark 0x00000000 return']
  const sets: [string, ElementSet][] = []
  if (limit !== null) {
    sets.push([
      flows,
      {
        kind: 'set',
        declaration: `typeof ct id; size ${Math.max(1, limit)}; flags dynamic,timeout`,
        elements: 'dynamic',
      },
    ])
  }
  if (allowed !== null) {
    for (const family of FAMILIES) {
      sets.push([
        `allowed${family}_${number}`,
        {
          kind: 'set',
          declaration: `type ${addressType(family)}; flags interval; auto-merge`,
          elements: new Map(allowed.filter(cidr => familyOf(cidr) === family).map(cidr => [networkOf(cidr), null])),
        },
      ])
    }
  }
  const admit =
    allowed === null ? [] : FAMILIES.map(family => `${ip(family)} saddr != @allowed${family}_${number} ${refuse}`)
  const isLimited = limit !== null && pool !== null
  return {
    objects: [
      ...Object.values(counters).map((name): Parts['objects'][number] => [name, { kind: 'counter', body: '' }]),
      ...(protocol === 'udp'
        ? [
            [
              idle,
              {
                kind: 'ct timeout',
                body: `protocol udp; policy = { unreplied : ${idleSeconds}, replied : ${idleSeconds} };`,
              },
            ] as Parts['objects'][number],
          ]
        : []),
    ],
    sets,
    chains: [
      chain(`listener_${number}`, null, [
        ...admit,
        ...choose,
        ...(pool === null
          ? []
          : limit === null
            ? begin
            : limit === 0
              ? [refuse]
              : [`${keepFlow} goto begin_${number}`, refuse]),
      ]),
      ...(isLimited && limit > 0 ? [chain(`begin_${number}`, null, begin)] : []),
      chain(`refuse_${number}`, null, [...admit, `counter name "${counters.refused}" reject`]),
      ...(pool !== null && isFollowed(listener, pool)
        ? [chain(`follow_${number}`, null, follow(protocol, limit === null ? null : { flows, keepFlow }, pool))]
        : []),
    ],
  }
}

/** Every packet of a flow keeps its place among the limited flows, and its client's among those that the pool knows. */
function follow(
  protocol: 'udp' | 'sctp',
  limited: { flows: string; keepFlow: string } | null,
  pool: DatagramPool,
): string[] {
  const { persistence } = pool
  const ended = ['shutdown-complete', 'abort'].map(
    kind => `sctp chunk ${kind} exists update @${limited?.flows} { ct id timeout ${ENDED_SECONDS}s } return`,
  )
  return [
    ...(persistence === null
      ? []
      : FAMILIES.map(
          family =>
            `ct direction original update @${clientsOf(pool, family)} { ${client(pool, family)} timeout ${persistence.seconds}s : ct mark & ${MEMBER_MASK} }`,
        )),
    ...(limited !== null && protocol === 'sctp' ? ended : []),
    ...(limited === null ? [] : [limited.keepFlow]),
  ]
}

const bitsOf = ({ persistence }: DatagramPool, family: Family): number =>
  persistence?.bits[family === 4 ? 'ipv4' : 'ipv6'] ?? 0

/** Another granularity makes other keys, so it has another map. */
export const clientsOf = (pool: DatagramPool, family: Family): string =>
  `clients${family}_${bitsOf(pool, family)}_${nameOf(pool.id)}`

/** The leading bits of the client's address. */
function client(pool: DatagramPool, family: Family): string {
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
function planPool(pool: DatagramPool, facts: RulesetFacts): Parts {
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
  { before, loads }: RulesetFacts,
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
