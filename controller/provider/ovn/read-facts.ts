import type { Knex } from 'knex'
import { one } from '../../database/query.js'
import { sql } from '../../database/sql.js'
import { PORT_OWNER, ROUTER_PORT_OWNER, ROUTER_PORT_OWNERS } from '../../network/driver.js'
import type { Entrance } from './rows/facts.js'

/** What the tables of the network service say of a network with VIPs, and of what routers join to it. */
export type Surroundings = {
  /** Whether the network itself is up. */
  isUp: boolean
  /** Networks from which clients come: this one, and those that routers of their owners join to it. */
  clientNetworks: string[]
  /** Routers among those that have a gateway. */
  gatewayRouters: string[]
  /** Their legs on networks that are none of `clientNetworks`: their gateways, and those on networks of others. */
  entrances: Entrance[]
  /** Floating IPs that lead to VIPs, with those. */
  floatingIps: { address: string; vip: string }[]
  /**
   * Machines' ports at the addresses that were asked for: the project's own, and others on its networks. A probe passes
   * security groups, so nobody else's are probed.
   */
  machines: { address: string; portId: string; subnetId: string }[]
}

export type Place = {
  networkId: string
  /** Of the load balancer. */
  projectId: string
  /** Addresses on the network. */
  vips: readonly string[]
  /** Addresses on any of the networks that are found. */
  members: readonly string[]
  /** Subnets that members name. Machines elsewhere are looked for on the network of the VIPs only. */
  memberSubnets: readonly string[]
}

/**
 * Reads it in one statement. The order is always the same.
 *
 * OVN balances whatever a client network sends to a VIP's address. So a network belongs here only if whoever owns it
 * wants the VIP's network there: it is the same project's, or its owner's router joins it to a shared network. And no
 * router is crossed behind which the address is somebody else's.
 */
export function readSurroundings(
  database: Knex,
  { networkId, projectId, vips, members, memberSubnets }: Place,
): Promise<Surroundings> {
  const noMachine = [PORT_OWNER.vip, PORT_OWNER.probe, PORT_OWNER.balancer, ...ROUTER_PORT_OWNERS]
  const leadsElsewhere = sql`
    EXISTS (SELECT FROM router_port leg
              JOIN fixed_ip ON fixed_ip.port_id = leg.port_id
              JOIN subnet ON subnet.id = fixed_ip.subnet_id
             WHERE leg.router_id = router.id AND NOT leg.gateway AND subnet.network_id <> ${networkId}::uuid
               AND subnet.cidr >>= ANY(${[...vips]}::inet[]))`
  const holdsVip = sql`
    EXISTS (SELECT FROM subnet WHERE subnet.network_id = far.id AND subnet.cidr >>= ANY(${[...vips]}::inet[]))`
  return one(
    database,
    sql<Surroundings>`
      WITH RECURSIVE home AS (
        SELECT id, project_id, shared FROM network WHERE id = ${networkId}::uuid
      ), joined (network_id, is_way) AS (
        SELECT id, true FROM home
        UNION
        SELECT far.id, far.project_id = home.project_id AND NOT far.shared
          FROM home CROSS JOIN joined
          JOIN port near ON near.network_id = joined.network_id AND near.device_owner = ${ROUTER_PORT_OWNER.interface}
                        AND near.admin_state_up
          JOIN router_port near_leg ON near_leg.port_id = near.id AND NOT near_leg.gateway
          JOIN router ON router.id = near_leg.router_id AND router.admin_state_up
          JOIN router_port far_leg ON far_leg.router_id = router.id AND NOT far_leg.gateway
          JOIN port far_port ON far_port.id = far_leg.port_id AND far_port.admin_state_up
          JOIN network far ON far.id = far_port.network_id AND far.id <> home.id AND far.admin_state_up
         WHERE joined.is_way AND NOT ${leadsElsewhere} AND NOT ${holdsVip}
           AND (far.project_id = home.project_id AND NOT far.shared
                OR far.project_id = router.project_id
                   AND (far.project_id = home.project_id OR home.shared AND joined.network_id = home.id))
      ), ways AS (
        SELECT DISTINCT gateway.router_id FROM joined
          JOIN port ON port.network_id = joined.network_id AND port.device_owner = ${ROUTER_PORT_OWNER.interface}
                   AND port.admin_state_up
          JOIN router_port leg ON leg.port_id = port.id AND NOT leg.gateway
          JOIN router ON router.id = leg.router_id AND router.admin_state_up
          JOIN router_port gateway ON gateway.router_id = router.id AND gateway.gateway
          JOIN port outside ON outside.id = gateway.port_id AND outside.admin_state_up
          JOIN network ON network.id = outside.network_id AND network.admin_state_up
         WHERE joined.is_way AND NOT ${leadsElsewhere}
      )
      SELECT EXISTS (SELECT FROM network WHERE id = ${networkId}::uuid AND admin_state_up) AS "isUp",
             ARRAY(SELECT DISTINCT network_id::text FROM joined ORDER BY 1) AS "clientNetworks",
             ARRAY(SELECT DISTINCT router_id::text FROM ways ORDER BY 1) AS "gatewayRouters",
             coalesce((
               SELECT json_agg(json_build_object('networkId', port.network_id, 'macAddress', port.mac_address::text)
                               ORDER BY port.network_id, port.mac_address)
                 FROM router_port leg JOIN port ON port.id = leg.port_id AND port.admin_state_up
                 JOIN network ON network.id = port.network_id AND network.admin_state_up
                WHERE leg.router_id IN (SELECT router_id FROM ways)
                  AND port.network_id NOT IN (SELECT network_id FROM joined)), '[]') AS entrances,
             coalesce((
               SELECT json_agg(json_build_object('address', host(held.address), 'vip', host(floating_ip.fixed_ip_address))
                               ORDER BY held.address)
                 FROM floating_ip
                 JOIN fixed_ip held ON held.port_id = floating_ip.floating_port_id
                 JOIN subnet ON subnet.id = floating_ip.fixed_subnet_id
                WHERE subnet.network_id = ${networkId}::uuid AND floating_ip.router_id IN (SELECT router_id FROM ways)
                  AND floating_ip.fixed_ip_address = ANY(${[...vips]}::inet[])), '[]') AS "floatingIps",
             coalesce((
               SELECT json_agg(json_build_object('address', host(fixed_ip.address), 'portId', port.id, 'subnetId', fixed_ip.subnet_id)
                               ORDER BY fixed_ip.address, port.id)
                 FROM subnet JOIN fixed_ip ON fixed_ip.subnet_id = subnet.id JOIN port ON port.id = fixed_ip.port_id
                WHERE fixed_ip.address = ANY(${[...members]}::inet[]) AND (port.project_id = ${projectId}
                       OR EXISTS (SELECT FROM network WHERE network.id = port.network_id AND network.project_id = ${projectId}))
                  AND subnet.network_id IN (SELECT network_id FROM joined)
                  AND (subnet.network_id = ${networkId}::uuid OR fixed_ip.subnet_id = ANY(${[...memberSubnets]}::uuid[]))
                  AND port.device_owner <> ALL(${noMachine}::text[])), '[]') AS machines`,
  )
}
