import type { Interface } from '../../../../../amphora-agent/protocol/desired.js'
import type { LoadBalancerTree } from '../../../../load-balancer/tree/tree.js'
import type { Subnet } from '../../../../network/driver.js'
import { ProvisioningFault } from '../../../provider.js'
import { byId } from '../desired-objects.js'
import type { AmphoraFacts, PluggedInterface } from '../facts.js'
import { address, cidr, textOf } from '../quote.js'

/** The interface of the VIPs, and each VIP's subnet and gateway for replies. The main VIP comes first. */
export type VipPlacement = {
  interface: string
  vips: { address: string; subnet: string; gateway: string | null }[]
}

/** Derived from the port, so that an interface keeps its name when it is replugged or the machine restarts. */
export function interfaceName(portId: string): string {
  return `eth-${portId.replaceAll('-', '').slice(0, 8).toLowerCase()}`
}

const nameOf = ({ port }: PluggedInterface): string => interfaceName(port.id)

/**
 * @throws ProvisioningFault if no interface is on the subnet of a VIP
 */
export function placeVips(tree: LoadBalancerTree, interfaces: readonly PluggedInterface[]): VipPlacement {
  const nic = interfaces.find(({ purpose }) => purpose === 'vip')
  if (nic === undefined) throw notPlugged(tree.vip.address)
  return {
    interface: nameOf(nic),
    vips: [tree.vip, ...tree.additionalVips].map(vip => {
      const subnet = nic.subnets.find(({ id }) => id === vip.subnetId)
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
  new ProvisioningFault('vip-not-plugged', `The amphora has no network interface on the subnet of the VIP ${vip}.`)

/**
 * The interfaces of one amphora, the VIP interface first. Default routes use its gateways; a member interface has
 * only its subnets and their host routes. The VIPs are listed for a pair too, where keepalived adds and removes
 * them, because the agent removes unlisted addresses. Pure.
 */
export function renderInterfaces(tree: LoadBalancerTree, facts: AmphoraFacts): Interface[] {
  const { vips } = placeVips(tree, facts.interfaces)
  return [...facts.interfaces].sort(vipFirst).map(nic => ({
    mac: (nic.macAddress ?? nic.port.macAddress).toLowerCase(),
    name: nameOf(nic),
    mtu: nic.mtu,
    addresses: addressesOf(nic),
    routes: [
      ...(nic.purpose === 'vip' ? defaultRoutes(tree, nic) : []),
      ...nic.subnets.toSorted(byId).flatMap(hostRoutes),
    ],
    vips: nic.purpose === 'vip' ? vips : [],
  }))
}

function addressesOf(nic: PluggedInterface): string[] {
  return nic.port.fixedIps
    .flatMap(({ subnetId, address: host }) => {
      const prefix = nic.subnets.find(({ id }) => id === subnetId)?.cidr.split('/')[1]
      return prefix === undefined ? [] : [textOf(cidr(`${host}/${prefix}`, `An address of port ${nic.port.id}`))]
    })
    .sort()
}

/** One route per address family, preferably through the gateway of the main VIP's subnet. */
function defaultRoutes(tree: LoadBalancerTree, { subnets }: PluggedInterface): Interface['routes'] {
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

function vipFirst(a: PluggedInterface, b: PluggedInterface): number {
  if (a.purpose !== b.purpose) return a.purpose === 'vip' ? -1 : 1
  return byId(a.port, b.port)
}
