import { createHash } from 'node:crypto'
import type { Desired, DesiredRow } from '../../../ovn/northbound/desired.js'
import { gatewayRouterUuid, routerUuid, rowUuid, switchUuid } from '../../../ovn/northbound/row-uuid.js'
import { parseCidr } from '../../addresses.js'
import type { Router, RouterPort } from '../../local/routers/router.js'

export const routerOwner = (id: string): string => `router/${id}`

/** A chassis that may carry the gateways of routers; the one with the highest priority does. */
export type GatewayChassis = { name: string; priority: number }

/** As many as OVN's users have for a router. */
const MAX_GATEWAYS = 5

/** The chassis of a router's gateway, which is always the same, and those that take over, spread over all. */
export function gatewaysOf(routerId: string, names: readonly string[]): GatewayChassis[] {
  const rank = (name: string) => createHash('sha256').update(`${routerId} ${name}`).digest('hex')
  return names
    .map(name => ({ name, rank: rank(name) }))
    .sort((a, b) => (a.rank < b.rank ? -1 : 1))
    .slice(0, MAX_GATEWAYS)
    .map(({ name }, index) => ({ name, priority: MAX_GATEWAYS - index }))
}

/**
 * The rows of a router: its legs, routes and translations. Without a chassis for it, a router has no gateway. A
 * `Load_Balancer` that hangs on such a router would crash Open vSwitch, so one with a gateway is another logical router.
 */
export function routerRows(router: Router, instance: string, chassis: readonly GatewayChassis[]): Desired {
  const { id, interfaces, routes, floatingIps } = router
  const gateway = chassis.length === 0 ? null : router.gateway
  const uuid = gateway === null ? routerUuid(instance, id) : gatewayRouterUuid(instance, id)
  const held = (column: 'static_routes' | 'nat') => [{ table: 'Logical_Router', uuid, column }] as const
  const rows: DesiredRow[] = [
    {
      table: 'Logical_Router',
      uuid,
      row: { name: `krater-${id}`, enabled: true, options: {}, external_ids: { 'krater:router': id } },
      heldBy: [],
    },
    ...interfaces.flatMap(port => legRows(port, uuid, instance)),
    ...routes.map(
      ({ destination, nextHop }): DesiredRow => ({
        table: 'Logical_Router_Static_Route',
        uuid: rowUuid(instance, 'route', id, destination, nextHop),
        row: { ip_prefix: destination, nexthop: nextHop },
        heldBy: held('static_routes'),
      }),
    ),
  ]
  if (gateway !== null) {
    rows.push(...legRows(gateway, uuid, instance), ...gatewayRows(gateway, instance, chassis))
    rows.push(
      ...gateway.nextHops.map(
        (nextHop): DesiredRow => ({
          table: 'Logical_Router_Static_Route',
          uuid: rowUuid(instance, 'default route', id, nextHop),
          row: {
            ip_prefix: nextHop.includes(':') ? '::/0' : '0.0.0.0/0',
            nexthop: nextHop,
            output_port: legName(gateway),
          },
          heldBy: held('static_routes'),
        }),
      ),
    )
    const { snatAddress } = gateway
    if (snatAddress !== null)
      rows.push(
        ...interfaces
          .flatMap(port => port.addresses.filter(address => !address.includes(':')))
          .map(
            (address): DesiredRow => ({
              table: 'NAT',
              uuid: rowUuid(instance, 'snat', id, address),
              row: { type: 'snat', external_ip: snatAddress, logical_ip: parseCidr(address)?.text ?? address },
              heldBy: held('nat'),
            }),
          ),
      )
    rows.push(
      ...floatingIps.map(
        ({ address, fixedAddress }): DesiredRow => ({
          table: 'NAT',
          uuid: rowUuid(instance, 'floating ip', id, address),
          row: { type: 'dnat_and_snat', external_ip: address, logical_ip: fixedAddress },
          heldBy: held('nat'),
        }),
      ),
    )
  }
  return { owner: routerOwner(id), generation: 0, rows }
}

export const legName = ({ portId }: RouterPort): string => `krater-leg-${portId}`

/** A leg: the router's port, and the port of the network's switch that leads to it. */
function legRows(port: RouterPort, router: string, instance: string): DesiredRow[] {
  const name = legName(port)
  return [
    {
      table: 'Logical_Router_Port',
      uuid: rowUuid(instance, 'leg', port.portId),
      row: {
        name,
        mac: port.macAddress,
        networks: [...port.addresses].sort(),
        options: { gateway_mtu: String(port.mtu) },
        external_ids: { 'krater:port': port.portId },
      },
      heldBy: [{ table: 'Logical_Router', uuid: router, column: 'ports' }],
    },
    {
      table: 'Logical_Switch_Port',
      uuid: rowUuid(instance, 'port', port.portId),
      row: {
        name: port.portId,
        type: 'router',
        addresses: ['router'],
        options: { 'router-port': name },
        external_ids: { 'krater:port': port.portId },
      },
      heldBy: [{ table: 'Logical_Switch', uuid: switchUuid(instance, port.networkId), column: 'ports' }],
    },
  ]
}

function gatewayRows(gateway: RouterPort, instance: string, chassis: readonly GatewayChassis[]): DesiredRow[] {
  return chassis.map(({ name, priority }) => ({
    table: 'Gateway_Chassis',
    uuid: rowUuid(instance, 'gateway chassis', gateway.portId, name),
    row: { name: `${legName(gateway)}_${name}`, chassis_name: name, priority },
    heldBy: [
      { table: 'Logical_Router_Port', uuid: rowUuid(instance, 'leg', gateway.portId), column: 'gateway_chassis' },
    ],
  }))
}
