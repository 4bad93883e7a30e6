import type { Desired, DesiredRow } from '../../../ovn/northbound/desired.js'
import { balancerRouterUuid, rowUuid, switchUuid } from '../../../ovn/northbound/row-uuid.js'
import { parseCidr } from '../../addresses.js'
import type { Router } from '../../local/routers/router.js'
import type { OvnNetwork, OvnPort } from './topology.js'

export const balancerOwner = (networkId: string): string => `balancer-router/${networkId}`

/**
 * The rows of a network's balancer router: what answers for the VIPs there, and leads to members on other networks. It
 * stands as long as its port does. The VIPs' own legs belong to their load balancers.
 * @param port where it is on the network
 */
export function balancerRows(
  port: OvnPort,
  network: OvnNetwork,
  routers: readonly Router[],
  instance: string,
): Desired {
  const { networkId } = port
  const uuid = balancerRouterUuid(instance, networkId)
  const name = `krater-balancer-${networkId}`
  const routes = new Map([...routersRoutes(networkId, routers), ...defaultRoutes(network)])
  const rows: DesiredRow[] = [
    {
      ...{ table: 'Logical_Router', uuid, heldBy: [] },
      row: { name, enabled: true, options: {}, external_ids: { 'krater:network': networkId } },
    },
    {
      table: 'Logical_Router_Port',
      uuid: rowUuid(instance, 'balancer leg', networkId),
      row: { name, mac: port.macAddress, networks: withPrefixes(port, network) },
      heldBy: [{ table: 'Logical_Router', uuid, column: 'ports' }],
    },
    {
      table: 'Logical_Switch_Port',
      uuid: rowUuid(instance, 'port', port.id),
      row: {
        ...{ name: port.id, type: 'router', addresses: ['router'], options: { 'router-port': name } },
        external_ids: { 'krater:port': port.id },
      },
      heldBy: [{ table: 'Logical_Switch', uuid: switchUuid(instance, networkId), column: 'ports' }],
    },
    ...[...routes].map(
      ([prefix, nextHop]): DesiredRow => ({
        table: 'Logical_Router_Static_Route',
        uuid: rowUuid(instance, 'balancer route', networkId, prefix),
        row: { ip_prefix: prefix, nexthop: nextHop, output_port: name },
        heldBy: [{ table: 'Logical_Router', uuid, column: 'static_routes' }],
      }),
    ),
  ]
  return { owner: balancerOwner(networkId), generation: 0, rows }
}

function withPrefixes({ addresses }: OvnPort, { subnets }: OvnNetwork): string[] {
  return addresses
    .flatMap(({ address, subnetId }) => {
      const cidr = subnets.find(({ id }) => id === subnetId)?.cidr
      return cidr === undefined ? [] : [`${address}/${cidr.split('/')[1]}`]
    })
    .sort()
}

/** By destination. */
const defaultRoutes = ({ subnets }: OvnNetwork): [string, string][] =>
  subnets.flatMap(({ ipVersion, gatewayIp }): [string, string][] =>
    gatewayIp === null ? [] : [[ipVersion === 4 ? '0.0.0.0/0' : '::/0', gatewayIp]],
  )

/** To the other networks of each router here, by its address on this one. */
function routersRoutes(networkId: string, routers: readonly Router[]): [string, string][] {
  return routers.flatMap(({ interfaces }) => {
    const here = interfaces.filter(leg => leg.networkId === networkId).flatMap(({ addresses }) => addresses)
    const there = interfaces.filter(leg => leg.networkId !== networkId).flatMap(({ addresses }) => addresses)
    return there.flatMap((address): [string, string][] => {
      const nextHop = here.find(one => one.includes(':') === address.includes(':'))?.split('/')[0]
      const destination = parseCidr(address)?.text
      return nextHop === undefined || destination === undefined ? [] : [[destination, nextHop]]
    })
  })
}
