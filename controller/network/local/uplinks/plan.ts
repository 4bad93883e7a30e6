import type { PhysicalNetworks } from '../../physical-networks.js'
import { FRAMES_SETS, framesTable, uplinkFabricEnd, uplinkHostEnd } from '../uplink-frames.js'

/** A network that leads to a physical network, as the tables have it. */
export type ProviderNetwork = {
  id: string
  mtu: number
  physicalNetwork: string
  /** The VLAN; null for a flat network. */
  segmentationId: number | null
  /** MAC addresses of all its ports. */
  macAddresses: readonly string[]
}

/** An interface as `ip -details -json link` reports it. */
export type DetailedLink = {
  ifindex: number
  ifname: string
  flags: readonly string[]
  mtu: number
  address: string
  link_type?: string
  master?: string
  ifalias?: string
  link_index?: number
  linkinfo?: { info_kind?: string; info_slave_kind?: string; info_data?: { id?: number; vlan_filtering?: number } }
}

/**
 * What joins a network's bridge to the host's interface: a veth pair and rules that pass frames (`frames`), a veth pair
 * that ends in a bridge of the host (`bridge`), or a VLAN device in the fabric (`vlan`).
 */
export type Uplink = { network: ProviderNetwork; bridge: string; fabricEnd: string; link: DetailedLink } & (
  | { kind: 'frames' | 'bridge'; hostEnd: string }
  | { kind: 'vlan'; id: number }
)

/** VLANs from and to these numbers. */
export type AdmittedVlans = readonly { first: number; last: number }[]

/** Why a network does not lead to its physical network. */
export type Problem = { networkId: string; physicalNetwork: string; reason: string; remedy: string }

export type Plan = {
  uplinks: Uplink[]
  problems: Problem[]
  /** Ends that stay: also those whose interface is away or down for a while. */
  kept: ReadonlySet<string>
}

/**
 * What each network's uplink is to be. Pure.
 * @param hostLinks the host's interfaces
 * @param bridgeOf name of a network's bridge in the fabric
 */
export function planUplinks(
  networks: readonly ProviderNetwork[],
  {
    physicalNetworks,
    hostLinks,
    filtered,
    instance,
    bridgeOf,
  }: {
    physicalNetworks: PhysicalNetworks
    hostLinks: readonly DetailedLink[]
    /** Of each bridge that filters VLANs, those that it passes to this host. */
    filtered: ReadonlyMap<string, AdmittedVlans>
    instance: string
    bridgeOf: (networkId: string) => string
  },
): Plan {
  const uplinks: Uplink[] = []
  const problems: Problem[] = []
  const kept = new Set<string>()
  for (const network of networks) {
    const refuse = (reason: string, remedy: string) =>
      problems.push({ networkId: network.id, physicalNetwork: network.physicalNetwork, reason, remedy })
    const name = physicalNetworks[network.physicalNetwork]?.interface
    if (name === undefined) {
      refuse(
        `network.physical_networks does not name ${network.physicalNetwork}`,
        `krater settings network.physical_networks=${network.physicalNetwork}:INTERFACE`,
      )
      continue
    }
    const { segmentationId } = network
    const fabricEnd = uplinkFabricEnd(network.id)
    const hostEnd = uplinkHostEnd(instance, network.id)
    kept.add(fabricEnd)
    if (segmentationId === null) kept.add(hostEnd)
    const { link, fault } = physicalInterface(name, hostLinks)
    if (fault !== null) refuse(fault.reason, fault.remedy)
    if (link === undefined || fault !== null) continue
    const ends = { network, bridge: bridgeOf(network.id), fabricEnd, link }
    if (segmentationId === null) {
      uplinks.push({ ...ends, kind: isBridge(link) ? 'bridge' : 'frames', hostEnd })
      continue
    }
    const rival = hostLinks.find(one => one.link_index === link.ifindex && vlanOf(one) === segmentationId)
    if (rival !== undefined) {
      refuse(
        `this machine itself uses VLAN ${segmentationId} of ${name}, as ${rival.ifname}`,
        `name ${rival.ifname} in network.physical_networks, and make a flat network on it`,
      )
      continue
    }
    const admitted = filtered.get(name)
    if (admitted?.every(({ first, last }) => segmentationId < first || segmentationId > last)) {
      refuse(
        `the bridge ${name} filters VLANs, and does not pass VLAN ${segmentationId} to this machine`,
        `bridge vlan add dev ${name} vid ${segmentationId} self; keep it in the configuration of ${name}`,
      )
      continue
    }
    uplinks.push({ ...ends, kind: 'vlan', id: segmentationId })
  }
  return { uplinks, problems, kept }
}

export const isBridge = ({ linkinfo }: DetailedLink): boolean => linkinfo?.info_kind === 'bridge'
export const isUp = ({ flags }: DetailedLink): boolean => flags.includes('UP')
const vlanOf = ({ linkinfo }: DetailedLink): number | undefined =>
  linkinfo?.info_kind === 'vlan' ? linkinfo.info_data?.id : undefined

type Fault = { reason: string; remedy: string }

/** The interface that a physical network names, and why it cannot carry networks; null if it can. Pure. */
export function physicalInterface(
  name: string,
  hostLinks: readonly DetailedLink[],
): { link: DetailedLink | undefined; fault: Fault | null } {
  const link = hostLinks.find(({ ifname }) => ifname === name)
  return { link, fault: link === undefined ? absent(name) : unusable(link) }
}

const absent = (name: string): Fault => ({
  reason: `this machine has no interface ${name}`,
  remedy: `ip link shows the interfaces; correct network.physical_networks, or bring ${name} back`,
})

/** Why an interface cannot carry a physical network; null if it can. */
function unusable(link: DetailedLink): Fault | null {
  const { ifname, master, link_type } = link
  if (master !== undefined && link.linkinfo?.info_slave_kind !== 'vrf') {
    return {
      reason: `${ifname} is a part of ${master}`,
      remedy: `name ${master} in network.physical_networks instead of ${ifname}`,
    }
  }
  if (link_type !== 'ether') {
    return {
      reason: `${ifname} is no Ethernet interface (${link_type})`,
      remedy: 'name an Ethernet interface or a bridge in network.physical_networks',
    }
  }
  if (!isUp(link)) return { reason: `${ifname} is down`, remedy: `ip link set dev ${ifname} up` }
  return null
}

/** Before other tools' filters at either hook see the frames of this host's machines. */
const INGRESS_PRIORITY = -500
/** After them: they see the host's own frames as they are. */
const EGRESS_PRIORITY = 500

/** Senders on the LAN that the network's bridge has to know; it forgets one after five minutes. */
const MAX_SENDERS = 4096
/**
 * Broadcast and multicast frames a second, which reach every port of the network. IPv4's have a share of their own: they
 * carry what other machines stream to each other, and must not crowd out the questions for addresses.
 */
const FLOODS = { ip: 'limit rate 1000/second burst 1000 packets', others: 'limit rate 2000/second burst 2000 packets' }

/**
 * nftables commands that pass frames from the host's interface to the uplink: of frames that come in, those for ports of
 * the network; of frames that the host sends, the same; of broadcast and multicast a copy. Frames that a port sent never
 * come back, and tagged frames belong to VLANs. What comes from many forged senders, or as a flood of broadcast, ends
 * here: the network's bridge would have to remember each sender, and copy the flood for each port. Pure.
 */
export function framesCommands({ hostEnd, link, network }: Uplink & { hostEnd: string }): string {
  const table = framesTable(hostEnd)
  const chains = ['from_interface', 'to_interface', 'to_all']
  const known = 'update @senders { ether saddr }'
  return `table ${table} {${FRAMES_SETS}  set senders { type ether_addr; size ${MAX_SENDERS}; flags dynamic,timeout; timeout 5m; }
${chains.map(chain => `  chain ${chain} { }\n`).join('')}}
${chains.map(chain => `delete chain ${table} ${chain}\n`).join('')}table ${table} {
  chain from_interface {
    type filter hook ingress device "${link.ifname}" priority ${INGRESS_PRIORITY}; policy accept;
    ether type { 8021q, 8021ad } accept
    ether daddr ${link.address} meta pkttype set host accept
    ether saddr @ours accept
    ether daddr @ours ${known} fwd to "${hostEnd}"
    ether daddr @ours drop
    meta pkttype { broadcast, multicast } jump to_all
  }
  chain to_all {
    ether type ip ${FLOODS.ip} ${known} dup to "${hostEnd}"
    ether type != ip ${FLOODS.others} ${known} dup to "${hostEnd}"
  }
  chain to_interface {
    type filter hook egress device "${link.ifname}" priority ${EGRESS_PRIORITY}; policy accept;
    ether type { 8021q, 8021ad } accept
    ether saddr @ours accept
    ether daddr @ours fwd to "${hostEnd}"
    ether daddr & 01:00:00:00:00:00 == 01:00:00:00:00:00 dup to "${hostEnd}"
  }
}
${network.macAddresses.length === 0 ? '' : `add element ${table} ours { ${network.macAddresses.join(', ')} }\n`}`
}

/** Makes one filter per entry: it matches these 32-bit words, and does this. */
type Filter = { matches: readonly string[]; actions: readonly string[] }

/**
 * The filters at the ingress of the uplink's host end: frames for the host go in at its interface, as if they had come
 * from there; broadcast and multicast go both ways; all others leave. Pure.
 */
export function ingressFilters({ ifname, address }: DetailedLink): Filter[] {
  const mac = address.replaceAll(':', '').toLowerCase()
  const leave = `Egress Redirect to device ${ifname}`
  const enter = `Ingress Redirect to device ${ifname}`
  return [
    // Words at an offset from the network header: the destination address begins 14 bytes before it.
    { matches: [`0000${mac.slice(0, 4)}/0000ffff at -16`, `${mac.slice(4)}/ffffffff at -12`], actions: [enter] },
    { matches: ['00000100/00000100 at -16'], actions: [`Egress Mirror to device ${ifname}`, enter] },
    { matches: ['00000000/00000000 at 0'], actions: [leave] },
  ]
}

/** The filters that `tc filter show` prints, in the same form. Pure. */
export function filtersShown(text: string): Filter[] {
  const filters = text.split(/^filter /m).map(part => ({
    matches: [...part.matchAll(/match (\S+ at -?\d+)/g)].map(([, match = '']) => match),
    actions: [...part.matchAll(/mirred \(([^)]*)\)/g)].map(([, action = '']) => action),
  }))
  return filters.filter(({ matches }) => matches.length > 0)
}

/** Lines for `tc -batch` that make exactly these filters. Pure. */
export function filterLines(hostEnd: string, filters: readonly Filter[]): string[] {
  return [
    `qdisc replace dev ${hostEnd} clsact`,
    `filter delete dev ${hostEnd} ingress`,
    ...filters.map(({ matches, actions }, at) => {
      const words = matches.map(match => `match u32 0x${match.replace('/', ' 0x')}`)
      const does = actions.map(action => `action mirred ${action.toLowerCase().replace('to device', 'dev')}`)
      return `filter add dev ${hostEnd} ingress pref ${at + 1} protocol all u32 ${words.join(' ')} flowid 1:1 ${does.join(' pipe ')}`
    }),
  ]
}
