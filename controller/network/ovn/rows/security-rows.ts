import type { Desired, DesiredRow, Holder } from '../../../ovn/northbound/desired.js'
import { rowUuid } from '../../../ovn/northbound/row-uuid.js'
import type { Filter, Filters, Rule, SecurityGroup } from '../../local/security-groups/filters.js'

export const groupOwner = (id: string): string => `security-group/${id}`
export const filterOwner = (portId: string): string => `filter/${portId}`

/** As Neutron's: what is allowed comes before what drops the rest. */
const ALLOW = 1_002
const DROP = 1_001
const TCP = 6
const UDP = 17
const SCTP = 132
const ICMP = 1
const ICMPV6 = 58
const WORDS: Readonly<Record<number, string>> = { [TCP]: 'tcp', [UDP]: 'udp', [SCTP]: 'sctp' }

const hexOf = (id: string): string => id.replaceAll('-', '')
/** A name is an identifier in ACLs. */
const addressSet = (groupId: string, version: 4 | 6): string => `krater_members${version}_${hexOf(groupId)}`
const filteredPorts = (portId: string): string => `krater_filtered_${hexOf(portId)}`

/** The rows of security groups and filters: for each group the addresses of its ports, for each filter its rules. */
export function securityRows({ filters, groups }: Filters, instance: string): Desired[] {
  const byId = new Map(groups.map(group => [group.id, group]))
  const ports = new Map<string, Filter[]>()
  for (const filter of filters) ports.set(filter.portId, [...(ports.get(filter.portId) ?? []), filter])
  return [
    ...groups.map(group => groupRows(group, instance)),
    ...[...ports].map(([portId, own]) => filterRows(portId, own, byId, instance)),
  ]
}

function groupRows({ id, members }: SecurityGroup, instance: string): Desired {
  const rows = ([4, 6] as const).map(
    (version): DesiredRow => ({
      table: 'Address_Set',
      uuid: rowUuid(instance, 'group members', id, String(version)),
      row: {
        name: addressSet(id, version),
        addresses: members.filter(member => member.includes(':') === (version === 6)).sort(),
        external_ids: { 'krater:security-group': id },
      },
      heldBy: [],
    }),
  )
  return { owner: groupOwner(id), generation: 0, rows }
}

function filterRows(
  portId: string,
  filters: readonly Filter[],
  groups: ReadonlyMap<string, SecurityGroup>,
  instance: string,
): Desired {
  const uuid = rowUuid(instance, 'filtered port', portId)
  const held: Holder[] = [{ table: 'Port_Group', uuid, column: 'acls' }]
  const acl = (direction: 'ingress' | 'egress', priority: number, match: string, action: string): DesiredRow => ({
    table: 'ACL',
    uuid: rowUuid(instance, 'filter rule', portId, direction, String(priority), match, action),
    row: {
      direction: direction === 'ingress' ? 'to-lport' : 'from-lport',
      ...{ priority, match, action, external_ids: { 'krater:port': portId } },
    },
    heldBy: held,
  })
  const side = (direction: 'ingress' | 'egress'): string =>
    `${direction === 'ingress' ? 'outport' : 'inport'} == @${filteredPorts(portId)}`
  const rules = filters.flatMap(({ vips, groupIds, stateful }) => {
    const about = (direction: 'ingress' | 'egress', version: 4 | 6): string[] => aboutVips(vips, direction, version)
    const allowed = groupIds
      .flatMap(id => groups.get(id)?.rules ?? [])
      .flatMap(rule =>
        about(rule.direction, rule.version).map(part =>
          acl(
            rule.direction,
            ALLOW,
            [side(rule.direction), part, matchOf(rule)].filter(Boolean).join(' && '),
            stateful ? 'allow-related' : 'allow-stateless',
          ),
        ),
      )
    const dropped = (['ingress', 'egress'] as const).flatMap(direction =>
      vips === null
        ? [acl(direction, DROP, `${side(direction)} && ip`, 'drop')]
        : ([4, 6] as const).flatMap(version =>
            about(direction, version).map(part => acl(direction, DROP, `${side(direction)} && ${part}`, 'drop')),
          ),
    )
    return [...allowed, ...dropped, ...(vips === null ? basics(side, acl) : [])]
  })
  return {
    owner: filterOwner(portId),
    generation: 0,
    rows: [
      {
        table: 'Port_Group',
        uuid,
        row: { name: filteredPorts(portId), external_ids: { 'krater:port': portId } },
        heldBy: [],
      },
      // Two groups of a port may have the same rule.
      ...new Map(rules.map(row => [row.uuid, row])).values(),
    ],
  }
}

/** The places that hold a port because it is filtered. */
export const filterHolders = (portId: string, instance: string): Holder[] => [
  { table: 'Port_Group', uuid: rowUuid(instance, 'filtered port', portId), column: 'ports' },
]

/** What a machine needs before any rule is about it: an address, and its neighbours. */
function basics(
  side: (direction: 'ingress' | 'egress') => string,
  acl: (direction: 'ingress' | 'egress', priority: number, match: string, action: string) => DesiredRow,
): DesiredRow[] {
  return [
    acl('egress', ALLOW, `${side('egress')} && ip4 && udp.src == 68 && udp.dst == 67`, 'allow'),
    acl('egress', ALLOW, `${side('egress')} && ip6 && udp.src == 546 && udp.dst == 547`, 'allow'),
    acl('egress', ALLOW, `${side('egress')} && (nd || nd_rs || mldv1 || mldv2)`, 'allow'),
    acl('ingress', ALLOW, `${side('ingress')} && (nd || nd_ra || mldv1 || mldv2)`, 'allow'),
  ]
}

/** One match for all of a port's traffic, or one for each VIP of that version. */
function aboutVips(vips: readonly string[] | null, direction: 'ingress' | 'egress', version: 4 | 6): string[] {
  if (vips === null) return [`ip${version}`]
  const own = vips.filter(vip => vip.includes(':') === (version === 6))
  return own.map(vip => `ip${version}.${direction === 'ingress' ? 'dst' : 'src'} == ${vip}`)
}

function matchOf({ direction, version, protocol, min, max, remote }: Rule): string {
  const other = `ip${version}.${direction === 'ingress' ? 'src' : 'dst'}`
  return [
    ...(remote === null
      ? []
      : [`${other} == ${'cidr' in remote ? remote.cidr : `$${addressSet(remote.groupId, version)}`}`]),
    ...(protocol === null ? [] : protocolMatches(protocol, version, min, max)),
  ].join(' && ')
}

function protocolMatches(protocol: number, version: 4 | 6, min: number | null, max: number | null): string[] {
  const word = WORDS[protocol]
  if (word !== undefined)
    return [
      word,
      ...(min === null ? [] : [min === max ? `${word}.dst == ${min}` : `${word}.dst >= ${min}`]),
      ...(max === null || min === max ? [] : [`${word}.dst <= ${max}`]),
    ]
  if (protocol === ICMP || protocol === ICMPV6) {
    const name = version === 4 ? 'icmp4' : 'icmp6'
    return [
      name,
      ...(min === null ? [] : [`${name}.type == ${min}`]),
      ...(max === null ? [] : [`${name}.code == ${max}`]),
    ]
  }
  return [`ip.proto == ${protocol}`]
}
