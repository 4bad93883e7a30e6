import { HAPROXY_TRACK_FILE } from '../../../../amphora-agent/protocol/paths.js'
import type { LoadBalancerTree } from '../../../load-balancer/tree.js'
import { ProvisioningFault } from '../../provider.js'
import type { PairFacts } from './facts.js'
import type { VipPlacement } from './interfaces.js'
import { address, type ConfigurationWord, cidr, hostCidr, identifier, integer, keywords } from './quote.js'

/** What the template keepalived.hbs writes. */
export type KeepalivedModel = {
  loadBalancerId: ConfigurationWord
  routerId: ConfigurationWord
  instance: ConfigurationWord
  trackFile: ConfigurationWord
  interface: ConfigurationWord
  priority: ConfigurationWord
  ownAddress: ConfigurationWord
  peers: ConfigurationWord[]
  /** Source-based routing of replies: by the VIP subnet's gateway, whatever routes the members' networks add. */
  vips: {
    host: ConfigurationWord
    address: ConfigurationWord
    subnet: ConfigurationWord
    gateway: ConfigurationWord | null
  }[]
}

/**
 * keepalived's configuration for one amphora of a pair. Pure.
 * @throws ProvisioningFault for a value that cannot be written, a pair without a peer, a VRRP address of another family than the VIP's
 */
export function keepalivedModel(
  tree: LoadBalancerTree,
  amphoraId: string,
  pair: PairFacts,
  placement: VipPlacement,
): KeepalivedModel {
  for (const speaker of [pair.vrrpAddress, ...pair.peerAddresses]) requireSameFamily(speaker, tree.vip.address)
  if (pair.peerAddresses.length === 0) {
    throw new ProvisioningFault('pair-incomplete', 'The VRRP address of the other amphora is not known.')
  }
  return {
    loadBalancerId: identifier(tree.id, 'Load balancer id'),
    routerId: identifier(amphoraId, 'Amphora id'),
    instance: identifier(tree.id.replaceAll('-', ''), 'Load balancer id'),
    trackFile: keywords(HAPROXY_TRACK_FILE),
    interface: identifier(placement.interface, 'The name of the VIP card'),
    priority: integer(pair.priority, 'The VRRP priority', 1, 254),
    ownAddress: address(pair.vrrpAddress, 'The VRRP address'),
    peers: [...pair.peerAddresses].sort().map(peer => address(peer, 'The VRRP address of a peer')),
    vips: [
      {
        host: hostCidr(tree.vip.address, 'The VIP address'),
        address: address(tree.vip.address, 'The VIP address'),
        subnet: cidr(placement.subnet, 'The subnet of the VIP'),
        gateway: placement.gateway === null ? null : address(placement.gateway, 'The gateway of the VIP subnet'),
      },
    ],
  }
}

/** keepalived wants at least one VIP of the family in which VRRP itself speaks. */
function requireSameFamily(speaker: string, vip: string): void {
  if (speaker.includes(':') !== vip.includes(':')) {
    throw new ProvisioningFault('pair-family', `VRRP cannot carry the VIP ${vip} between addresses like ${speaker}.`)
  }
}
