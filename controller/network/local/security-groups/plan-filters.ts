import { createHash } from 'node:crypto'
import { interfaceOf, legOf } from '../names.js'
import type { Filter, Filters, Rule, SecurityGroup } from './filters.js'
import { answersOf, answerText, chainOf, membersOf, ruleText } from './plan-rules.js'
import { PACKET, trackingCommands } from './plan-tracking.js'

/** The fabric's table of security groups, with its family. */
export const FILTER_TABLE = 'bridge krater_groups'

type AddressSet = { type: 'ipv4_addr' | 'ipv6_addr'; elements: readonly string[] }

/** Named parts of the table, each with its content: elements of a set, rules of a chain. */
export type FilterObjects = {
  sets: ReadonlyMap<string, AddressSet>
  chains: ReadonlyMap<string, readonly string[]>
  /** Elements of maps by the interface's name. */
  toPorts: ReadonlyMap<string, string>
  fromPorts: ReadonlyMap<string, string>
  projects: ReadonlyMap<string, string>
}

/** What the table should contain. Pure. */
export function filterObjects({ filters, groups, shares }: Filters): FilterObjects {
  const named = groups.flatMap(group => groupParts(group))
  const byPort = new Map<string, Filter[]>()
  for (const filter of filters) byPort.set(filter.portId, [...(byPort.get(filter.portId) ?? []), filter])
  const ports = [...byPort].map(([portId, own]) => ({ name: interfaceOf(portId), own, key: keyOf(own) }))
  const distinct = new Map(ports.map(({ key, own }) => [key, own]))
  const chains = [...distinct].flatMap(([key, own]) => portChains(key, own))
  return {
    sets: new Map(named.flatMap(({ sets }) => sets)),
    chains: new Map([...named.flatMap(({ chains }) => chains), ...chains]),
    toPorts: new Map(ports.map(({ name, key }) => [name, `to_${key}`])),
    fromPorts: new Map(ports.map(({ name, key }) => [name, `from_${key}`])),
    projects: new Map(
      shares.map(({ portId, projectId, isRouterLeg }) => [
        (isRouterLeg ? legOf : interfaceOf)(portId),
        projectMark(projectId),
      ]),
    ),
  }
}

/** Names what filters of a port say. Ports with equal filters share chains: many have the same groups. */
function keyOf(filters: readonly Filter[]): string {
  const content = filters.map(({ vips, groupIds, stateful }) => [vips, groupIds, stateful])
  return createHash('sha256').update(JSON.stringify(content)).digest('hex').slice(0, 16)
}

/** A number for the project, larger than any that stands for a destination. */
const projectMark = (projectId: string): string =>
  `0xff${createHash('sha256').update(projectId).digest('hex').slice(0, 6)}`

function groupParts({ id, rules, members }: SecurityGroup) {
  const set = (version: 4 | 6): [string, AddressSet] => [
    membersOf(id, version),
    {
      type: version === 4 ? 'ipv4_addr' : 'ipv6_addr',
      elements: members.filter(address => address.includes(':') === (version === 6)),
    },
  ]
  const chains = (direction: Rule['direction']): [string, string[]][] => {
    const own = rules.filter(rule => rule.direction === direction)
    return [
      [chainOf(id, direction), own.map(ruleText)],
      [answersOf(id, direction), own.flatMap(rule => answerText(rule) ?? [])],
    ]
  }
  return { sets: [set(4), set(6)], chains: [...chains('ingress'), ...chains('egress')] }
}

const ND = 'icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept'
/** What every machine needs to live on a network, whatever its groups say: address resolution, and DHCP. */
const ALWAYS_IN = [
  'meta protocol arp accept',
  ND,
  'icmpv6 type { nd-router-advert, mld-listener-query } accept',
  'udp sport 67 udp dport 68 accept',
  'udp sport 547 udp dport 546 accept',
]
const ALWAYS_OUT = [
  'meta protocol arp accept',
  ND,
  'icmpv6 type { nd-router-solicit, mld-listener-report, mld2-listener-report } accept',
  'udp sport 68 udp dport 67 accept',
  'udp sport 546 udp dport 547 accept',
]

const mark = (bit: string): string => `meta mark & ${bit} == ${bit}`

/** The chains of a port. Its own filter covers all of its traffic; those of VIPs what comes from or goes to these. */
function portChains(key: string, filters: readonly Filter[]): [string, string[]][] {
  const own = filters.find(({ vips }) => vips === null)
  if (own !== undefined) {
    return [...machineChains(`to_${key}`, own, 'ingress'), ...machineChains(`from_${key}`, own, 'egress')]
  }
  const held = filters.map((filter, at) => ({ filter, to: `to_${key}_${at}`, from: `from_${key}_${at}` }))
  return [
    ...held.flatMap(({ filter, to, from }) => vipChains(filter, { to, from })),
    [`to_${key}`, held.flatMap(({ filter, to }) => matches(filter, 'daddr').map(match => `${match} goto ${to}`))],
    [`from_${key}`, held.flatMap(({ filter, from }) => matches(filter, 'saddr').map(match => `${match} goto ${from}`))],
  ]
}

function machineChains(
  chain: string,
  { groupIds, stateful }: Filter,
  direction: Rule['direction'],
): [string, string[]][] {
  const answers = direction === 'ingress' ? 'egress' : 'ingress'
  const rules = [...groupIds.map(id => `jump ${chainOf(id, direction)}`), 'drop']
  const always = direction === 'ingress' ? ALWAYS_IN : ALWAYS_OUT
  if (!stateful) return [[chain, [...always, ...rules]]]
  return [
    [`${chain}_answers`, [...groupIds.map(id => `jump ${answersOf(id, answers)}`), 'drop']],
    [
      chain,
      [
        `${mark(PACKET.allowed)} accept`,
        ...always,
        `${mark(PACKET.answers)} goto ${chain}_answers`,
        `meta mark & ${PACKET.begins} == 0x0 drop`,
        ...rules,
      ],
    ],
  ]
}

/** A VIP never begins: whatever it sends is an answer, though the kernel may have seen nothing of the connection before. */
function vipChains({ groupIds, stateful }: Filter, { to, from }: { to: string; from: string }): [string, string[]][] {
  const known = stateful ? [`${mark(PACKET.allowed)} accept`] : []
  return [
    [to, [...known, ND, ...groupIds.map(id => `jump ${chainOf(id, 'ingress')}`), 'drop']],
    [from, [...known, ND, ...groupIds.map(id => `jump ${answersOf(id, 'ingress')}`), 'drop']],
  ]
}

function matches({ vips }: Filter, side: 'saddr' | 'daddr'): string[] {
  const four = (vips ?? []).filter(address => !address.includes(':'))
  const six = (vips ?? []).filter(address => address.includes(':'))
  return [
    ...(four.length === 0 ? [] : [`ip ${side} { ${four.join(', ')} }`]),
    ...(six.length === 0 ? [] : [`ip6 ${side} { ${six.join(', ')} }`]),
  ]
}

const DECLARATION = `table ${FILTER_TABLE} {
  map to_ports { type ifname : verdict; }
  map from_ports { type ifname : verdict; }
  map projects { type ifname : mark; }
  chain project { type filter hook prerouting priority -290; policy accept; }
  chain sent { type filter hook forward priority -201; policy accept; }
  chain received { type filter hook forward priority -200; policy accept; }
}
flush chain ${FILTER_TABLE} project
flush chain ${FILTER_TABLE} sent
flush chain ${FILTER_TABLE} received
add rule ${FILTER_TABLE} project meta mark set iifname map @projects
add rule ${FILTER_TABLE} sent iifname vmap @from_ports
add rule ${FILTER_TABLE} received oifname vmap @to_ports
`

const MAPS = ['projects', 'to_ports', 'from_ports'] as const

/** The table's parts that come and go: names of sets and chains, and each map's content by the interface's name. */
export type FilterParts = {
  sets: readonly string[]
  chains: readonly string[]
  maps: Readonly<Record<(typeof MAPS)[number], ReadonlyMap<string, string>>>
}

/**
 * The commands that bring the table to what it should contain, in one transaction. They leave alone what is not present:
 * another process may be adding it. Pure.
 * @param known what it contains already, as applied earlier; null if that is not sure
 * @param present the parts that it has
 */
export function filterCommands(desired: FilterObjects, known: FilterObjects | null, present: FilterParts): string {
  const isNew = <T>(part: ReadonlyMap<string, T> | undefined, name: string, value: T): boolean =>
    JSON.stringify(part?.get(name)) !== JSON.stringify(value)
  const sets = [...desired.sets].filter(([name, set]) => isNew(known?.sets, name, set))
  const chains = [...desired.chains].filter(([name, rules]) => isNew(known?.chains, name, rules))
  const goneChains = present.chains.filter(name => !desired.chains.has(name))
  const goneSets = present.sets.filter(name => !desired.sets.has(name))
  return `${trackingCommands(generationOf(desired))}${DECLARATION}${[
    ...addition({ sets, chains }),
    ...elementChanges('projects', present, desired.projects),
    ...elementChanges('to_ports', present, desired.toPorts),
    ...elementChanges('from_ports', present, desired.fromPorts),
    ...goneChains.map(name => `flush chain ${FILTER_TABLE} ${name}`),
    ...goneChains.map(name => `delete chain ${FILTER_TABLE} ${name}`),
    ...goneSets.map(name => `delete set ${FILTER_TABLE} ${name}`),
  ].join('\n')}\n`
}

/** The commands that put a filter in force and leave all others alone. Pure. */
export function additionCommands({ sets, chains, toPorts, fromPorts, projects }: FilterObjects): string {
  return `${DECLARATION}${[
    ...addition({ sets: [...sets], chains: [...chains] }),
    ...elements('projects', projects),
    ...elements('to_ports', toPorts),
    ...elements('from_ports', fromPorts),
  ].join('\n')}\n`
}

/** A number that changes with what filters say, so that connections from before are judged again. */
function generationOf({ sets, chains }: FilterObjects): number {
  const content = JSON.stringify([[...sets].sort(), [...chains].sort()])
  return createHash('sha256').update(content).digest().readUInt32BE() | 1
}

type Parts = {
  sets: readonly [string, AddressSet][]
  chains: readonly [string, readonly string[]][]
}

/** Everything is declared before anything refers to it. */
const addition = ({ sets, chains }: Parts): string[] => [
  ...sets.flatMap(([name, { type, elements: list }]) => [
    `add set ${FILTER_TABLE} ${name} { type ${type}; flags interval; auto-merge; }`,
    `flush set ${FILTER_TABLE} ${name}`,
    ...(list.length === 0 ? [] : [`add element ${FILTER_TABLE} ${name} { ${list.join(', ')} }`]),
  ]),
  ...chains.flatMap(([name]) => [`add chain ${FILTER_TABLE} ${name}`, `flush chain ${FILTER_TABLE} ${name}`]),
  ...chains.flatMap(([name, rules]) => rules.map(rule => `add rule ${FILTER_TABLE} ${name} ${rule}`)),
]

/** An element with another value than desired goes first. */
function elementChanges(
  map: (typeof MAPS)[number],
  { maps }: FilterParts,
  desired: ReadonlyMap<string, string>,
): string[] {
  const present = maps[map]
  const gone = [...present.keys()].filter(name => present.get(name) !== desired.get(name))
  const missing = new Map([...desired].filter(([name, value]) => present.get(name) !== value))
  return [
    ...(gone.length === 0
      ? []
      : [`delete element ${FILTER_TABLE} ${map} { ${gone.map(name => `"${name}"`).join(', ')} }`]),
    ...elements(map, missing),
  ]
}

const elements = (map: (typeof MAPS)[number], content: ReadonlyMap<string, string>): string[] => {
  if (content.size === 0) return []
  const verdict = map === 'projects' ? '' : 'jump '
  const list = [...content].map(([name, value]) => `"${name}" : ${verdict}${value}`)
  return [`add element ${FILTER_TABLE} ${map} { ${list.join(', ')} }`]
}
