import { HAPROXY_TRACK_FILE } from '../../../../../amphora-agent/protocol/paths.js'
import type { LoadBalancerTree } from '../../../../load-balancer/tree/tree.js'
import { ProvisioningFault } from '../../../provider.js'
import type { PairFacts } from '../facts.js'
import { address, type ConfigurationWord, cidr, hostCidr, identifier, integer, keywords } from '../quote.js'
import type { VipPlacement } from './interfaces.js'

/** Input of the template keepalived.hbs. */
export type KeepalivedModel = {
  loadBalancerId: ConfigurationWord
  routerId: ConfigurationWord
  instance: ConfigurationWord
  trackFile: ConfigurationWord
  interface: ConfigurationWord
  priority: ConfigurationWord
  ownAddress: ConfigurationWord
  peers: ConfigurationWord[]
  /** For source-based routing: replies from a VIP use its subnet's gateway, whatever routes members' networks add. */
  vips: VipModel[]
  /** VIPs of VRRP's own address family. They are in its packets. */
  announced: ConfigurationWord[]
  /** VIPs of the other family. keepalived adds and removes them together with the announced ones. */
  excluded: ConfigurationWord[]
}

type VipModel = {
  host: ConfigurationWord
  address: ConfigurationWord
  subnet: ConfigurationWord
  gateway: ConfigurationWord | null
  /** Routing table for this VIP's routes. */
  table: ConfigurationWord
}

/**
 * keepalived's configuration for one amphora of a pair. Pure.
 * @throws ProvisioningFault if a value cannot be written, there is no peer, or a VRRP address and the VIP are of
 *   different address families
 */
export function keepalivedModel(
  tree: LoadBalancerTree,
  amphoraId: string,
  pair: PairFacts,
  placement: VipPlacement,
): KeepalivedModel {
  const peers = pair.peers.map(peer => peer.address).sort()
  for (const speaker of [pair.vrrpAddress, ...peers]) requireSameFamily(speaker, tree.vip.address)
  if (peers.length === 0) {
    throw new ProvisioningFault('pair-incomplete', 'The VRRP address of the other amphora is unknown.')
  }
  const hosts = (desired: (vip: string) => boolean) =>
    placement.vips.filter(vip => desired(vip.address)).map(vip => hostCidr(vip.address, 'The VIP address'))
  return {
    loadBalancerId: identifier(tree.id, 'Load balancer id'),
    routerId: identifier(amphoraId, 'Amphora id'),
    instance: identifier(tree.id.replaceAll('-', ''), 'Load balancer id'),
    trackFile: keywords(HAPROXY_TRACK_FILE),
    interface: identifier(placement.interface, 'The name of the VIP interface'),
    priority: integer(pair.priority, 'The VRRP priority', 1, 254),
    ownAddress: address(pair.vrrpAddress, 'The VRRP address'),
    peers: peers.map(peer => address(peer, 'The VRRP address of a peer')),
    vips: placement.vips.map((vip, index) => ({
      host: hostCidr(vip.address, 'The VIP address'),
      address: address(vip.address, 'The VIP address'),
      subnet: cidr(vip.subnet, 'The subnet of the VIP'),
      gateway: vip.gateway === null ? null : address(vip.gateway, 'The gateway of the VIP subnet'),
      table: integer(FIRST_TABLE + index, 'A routing table', FIRST_TABLE, LAST_TABLE),
    })),
    announced: hosts(vip => isIpv6(vip) === isIpv6(pair.vrrpAddress)),
    excluded: hosts(vip => isIpv6(vip) !== isIpv6(pair.vrrpAddress)),
  }
}

/** Routing tables for keepalived's VIPs. The agent's own tables have higher numbers. */
const FIRST_TABLE = 1
const LAST_TABLE = 99

const isIpv6 = (text: string) => text.includes(':')

/** keepalived requires at least one VIP of VRRP's own address family. */
function requireSameFamily(speaker: string, vip: string): void {
  if (isIpv6(speaker) !== isIpv6(vip)) {
    throw new ProvisioningFault(
      'pair-family',
      `VRRP between addresses like ${speaker} cannot carry the VIP ${vip}, which is of another address family.`,
    )
  }
}
