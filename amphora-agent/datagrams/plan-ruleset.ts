import { canonical, familyOf, networkOf } from '../network/address.js'
import { FORWARDED_MARK, replyMark, TUNNEL_MARK } from '../network/marks.js'
import type { DatagramListener, DatagramPool, Datagrams } from '../protocol/datagrams.js'
import type { Interface } from '../protocol/desired.js'
import { addressType, FAMILIES, type Family, ip } from './families.js'
import { hexadecimal, MEMBER_MASK, memberKey, SERVICE_MASK, serviceKey, serviceMark } from './numbers.js'
import { client, clientsOf, nameOf, type PoolFacts, planPool } from './plan-pool.js'
import { chain, type ElementSet, type Parts, type Ruleset, SIGNATURES } from './ruleset.js'
import { isUsable } from './serving.js'

export type RulesetFacts = PoolFacts & {
  datagrams: Datagrams
  interfaces: readonly Interface[]
}

/** A flow over SCTP that ended counts for so long. */
const ENDED_SECONDS = 3

/** Numbers, not names: the machine may lack /etc/protocols. */
const PROTOCOL = { tcp: 6, udp: 17, sctp: 132 } as const

/** A router or a host tells by these that it could not deliver a packet of a flow. */
const ERRORS = [
  'icmp type { destination-unreachable, time-exceeded, parameter-problem }',
  'icmpv6 type { destination-unreachable, packet-too-big, time-exceeded, parameter-problem }',
]

export const countersOf = (service: number) =>
  ({
    begun: `begun_${service}`,
    received: `received_${service}`,
    sent: `sent_${service}`,
    refused: `refused_${service}`,
  }) as const

export const flowsOf = (service: number): string => `flows_${service}`

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
