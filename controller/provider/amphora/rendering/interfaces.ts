import type { Interface } from '../../../../amphora-agent/protocol/desired.js'
import type { LoadBalancerTree } from '../../../load-balancer/tree.js'
import type { Subnet } from '../../../network/driver.js'
import { ProvisioningFault } from '../../provider.js'
import type { AmphoraFacts, Card } from './facts.js'
import { address, cidr, textOf } from './quote.js'
import { byId } from './wanted.js'

/** Where the VIP stands: on which card, in which subnet, and by which gateway replies leave. */
export type VipPlacement = { interface: string; subnet: string; gateway: string | null }

/** A card's name in the amphora follows from its port, so that it is the same after every plugging and restart. */
export function interfaceName(portId: string): string {
  return `eth-${portId.replaceAll('-', '').slice(0, 8).toLowerCase()}`
}

/**
 * @throws ProvisioningFault when no card is on the VIP's subnet
 */
export function placeVip(tree: LoadBalancerTree, cards: readonly Card[]): VipPlacement {
  const card = cards.find(({ purpose }) => purpose === 'vip')
  const subnet = card?.subnets.find(({ id }) => id === tree.vip.subnetId)
  if (card === undefined || subnet === undefined) {
    throw new ProvisioningFault('vip-not-plugged', 'The amphora has no network card on the subnet of the VIP.')
  }
  return {
    interface: interfaceName(card.port.id),
    subnet: textOf(cidr(subnet.cidr, 'The subnet of the VIP')),
    gateway: gatewayOf(subnet),
  }
}

/**
 * The cards of one amphora, the VIP's first. Default routes lead by the gateways of the VIP card; a member card has its own subnets
 * and their host routes. The VIP is named on its card for a pair too, where keepalived adds and removes it: what is not named is taken away. Pure.
 */
export function renderInterfaces(tree: LoadBalancerTree, facts: AmphoraFacts): Interface[] {
  const placement = placeVip(tree, facts.cards)
  return [...facts.cards].sort(vipFirst).map(card => ({
    mac: card.port.macAddress.toLowerCase(),
    name: interfaceName(card.port.id),
    mtu: card.mtu,
    addresses: addressesOf(card),
    routes: card.subnets.toSorted(byId).flatMap(subnet => routesOf(subnet, card.purpose === 'vip')),
    vips:
      card.purpose === 'vip'
        ? [
            {
              address: textOf(address(tree.vip.address, 'The VIP address')),
              subnet: placement.subnet,
              gateway: placement.gateway,
            },
          ]
        : [],
  }))
}

function addressesOf(card: Card): string[] {
  return card.port.fixedIps
    .flatMap(({ subnetId, address: host }) => {
      const prefix = card.subnets.find(({ id }) => id === subnetId)?.cidr.split('/')[1]
      return prefix === undefined ? [] : [textOf(cidr(`${host}/${prefix}`, `An address of port ${card.port.id}`))]
    })
    .sort()
}

function routesOf(subnet: Subnet, isDefault: boolean): Interface['routes'] {
  const what = `A route of subnet ${subnet.id}`
  const routes = subnet.hostRoutes
    .map(({ destination, nexthop }) => ({
      destination: textOf(cidr(destination, what)),
      gateway: textOf(address(nexthop, what)),
    }))
    .sort((a, b) => (a.destination < b.destination ? -1 : 1))
  const gateway = gatewayOf(subnet)
  if (!isDefault || gateway === null) return routes
  return [{ destination: subnet.ipVersion === 4 ? '0.0.0.0/0' : '::/0', gateway }, ...routes]
}

function gatewayOf(subnet: Subnet): string | null {
  return subnet.gatewayIp === null ? null : textOf(address(subnet.gatewayIp, `The gateway of subnet ${subnet.id}`))
}

function vipFirst(a: Card, b: Card): number {
  if (a.purpose !== b.purpose) return a.purpose === 'vip' ? -1 : 1
  return byId(a.port, b.port)
}
