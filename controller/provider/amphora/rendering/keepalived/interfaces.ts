import type { Interface } from '../../../../../amphora-agent/protocol/desired.js'
import type { LoadBalancerTree } from '../../../../load-balancer/tree/tree.js'
import type { Subnet } from '../../../../network/driver.js'
import { ProvisioningFault } from '../../../provider.js'
import type { AmphoraFacts, Card } from '../facts.js'
import { address, cidr, textOf } from '../quote.js'
import { byId } from '../wanted.js'

/** Where VIPs stand: on which card, in which subnets, and by which gateways replies leave. The main VIP is the first. */
export type VipPlacement = {
  interface: string
  vips: { address: string; subnet: string; gateway: string | null }[]
}

/** A card's name in the amphora follows from its port, so that it is the same after every plugging and restart. */
export function interfaceName(portId: string): string {
  return `eth-${portId.replaceAll('-', '').slice(0, 8).toLowerCase()}`
}

/**
 * @throws ProvisioningFault when no card is on the subnet of one of the VIPs
 */
export function placeVips(tree: LoadBalancerTree, cards: readonly Card[]): VipPlacement {
  const card = cards.find(({ purpose }) => purpose === 'vip')
  if (card === undefined) throw notPlugged(tree.vip.address)
  return {
    interface: interfaceName(card.port.id),
    vips: [tree.vip, ...tree.additionalVips].map(vip => {
      const subnet = card.subnets.find(({ id }) => id === vip.subnetId)
      if (subnet === undefined) throw notPlugged(vip.address)
      return {
        address: textOf(address(vip.address, 'The VIP address')),
        subnet: textOf(cidr(subnet.cidr, 'The subnet of the VIP')),
        gateway: gatewayOf(subnet),
      }
    }),
  }
}

const notPlugged = (vip: string) =>
  new ProvisioningFault('vip-not-plugged', `The amphora has no network card on the subnet of the VIP ${vip}.`)

/**
 * The cards of one amphora, the VIPs' first. Default routes lead by the gateways of the VIP card; a member card has its own subnets
 * and their host routes. VIPs are named on their card for a pair too, where keepalived adds and removes them: what is not named is taken away. Pure.
 */
export function renderInterfaces(tree: LoadBalancerTree, facts: AmphoraFacts): Interface[] {
  const { vips } = placeVips(tree, facts.cards)
  return [...facts.cards].sort(vipFirst).map(card => ({
    mac: card.port.macAddress.toLowerCase(),
    name: interfaceName(card.port.id),
    mtu: card.mtu,
    addresses: addressesOf(card),
    routes: [
      ...(card.purpose === 'vip' ? defaultRoutes(tree, card) : []),
      ...card.subnets.toSorted(byId).flatMap(hostRoutes),
    ],
    vips: card.purpose === 'vip' ? vips : [],
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

/** One for each family, by the gateway of the main VIP's subnet when that is of this family. */
function defaultRoutes(tree: LoadBalancerTree, { subnets }: Card): Interface['routes'] {
  const ordered = subnets.toSorted(
    (a, b) => Number(b.id === tree.vip.subnetId) - Number(a.id === tree.vip.subnetId) || byId(a, b),
  )
  return ([4, 6] as const).flatMap(family => {
    const gateways = ordered.filter(subnet => subnet.ipVersion === family).map(gatewayOf)
    const gateway = gateways.find(candidate => candidate !== null)
    return gateway === undefined ? [] : [{ destination: family === 4 ? '0.0.0.0/0' : '::/0', gateway }]
  })
}

function hostRoutes(subnet: Subnet): Interface['routes'] {
  const what = `A route of subnet ${subnet.id}`
  return subnet.hostRoutes
    .map(({ destination, nexthop }) => ({
      destination: textOf(cidr(destination, what)),
      gateway: textOf(address(nexthop, what)),
    }))
    .sort((a, b) => (a.destination < b.destination ? -1 : 1))
}

function gatewayOf(subnet: Subnet): string | null {
  return subnet.gatewayIp === null ? null : textOf(address(subnet.gatewayIp, `The gateway of subnet ${subnet.id}`))
}

function vipFirst(a: Card, b: Card): number {
  if (a.purpose !== b.purpose) return a.purpose === 'vip' ? -1 : 1
  return byId(a.port, b.port)
}
