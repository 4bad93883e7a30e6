import type { Knex } from 'knex'
import { many } from '../../../database/query.js'
import { sql } from '../../../database/sql.js'
import type { Router, RouterPort } from '../routers/router.js'

type PortRow = RouterPort & { gateway: boolean }

type RouterRow = {
  id: string
  enable_snat: boolean
  routes: { destination: string; nexthop: string }[]
  ports: PortRow[]
  next_hops: string[]
  external_subnets: string[]
  floating_ips: { address: string; fixedAddress: string }[]
}

/** What every router should do that is administratively up, one statement for all. */
export async function readRouters(database: Knex): Promise<Router[]> {
  const rows = await many(
    database,
    sql<RouterRow>`
      SELECT router.id, router.enable_snat, router.routes,
             coalesce((
               SELECT json_agg(json_build_object(
                        'portId', port.id, 'networkId', port.network_id, 'mtu', network.mtu,
                        'macAddress', port.mac_address::text, 'gateway', router_port.gateway, 'addresses', (
                          SELECT coalesce(json_agg(host(fixed_ip.address) || '/' || masklen(subnet.cidr) ORDER BY fixed_ip.ordinal), '[]')
                            FROM fixed_ip JOIN subnet ON subnet.id = fixed_ip.subnet_id
                           WHERE fixed_ip.port_id = port.id)) ORDER BY port.created_at, port.id)
                 FROM router_port JOIN port ON port.id = router_port.port_id JOIN network ON network.id = port.network_id
                WHERE router_port.router_id = router.id AND port.admin_state_up), '[]') AS ports,
             ARRAY(
               SELECT DISTINCT ON (subnet.ip_version) host(subnet.gateway_ip)
                 FROM router_port
                 JOIN fixed_ip ON fixed_ip.port_id = router_port.port_id
                 JOIN subnet ON subnet.id = fixed_ip.subnet_id
                WHERE router_port.router_id = router.id AND router_port.gateway AND subnet.gateway_ip IS NOT NULL
                ORDER BY subnet.ip_version, fixed_ip.ordinal) AS next_hops,
             ARRAY(
               SELECT subnet.cidr::text
                 FROM router_port JOIN port ON port.id = router_port.port_id JOIN subnet ON subnet.network_id = port.network_id
                WHERE router_port.router_id = router.id AND router_port.gateway ORDER BY subnet.cidr) AS external_subnets,
             coalesce((
               SELECT json_agg(json_build_object('address', host(held.address), 'fixedAddress', host(floating_ip.fixed_ip_address))
                               ORDER BY held.address)
                 FROM floating_ip JOIN fixed_ip held ON held.port_id = floating_ip.floating_port_id
                WHERE floating_ip.router_id = router.id), '[]') AS floating_ips
        FROM router WHERE router.admin_state_up ORDER BY router.created_at, router.id`,
  )
  return rows.map(routerOf)
}

function routerOf({ id, enable_snat, routes, ports, next_hops, external_subnets, floating_ips }: RouterRow): Router {
  const gateway = ports.find(port => port.gateway)
  const own = gateway?.addresses.find(address => !address.includes(':'))?.split('/')[0]
  return {
    id,
    interfaces: ports.filter(port => !port.gateway).map(withoutRole),
    gateway:
      gateway === undefined
        ? null
        : {
            ...withoutRole(gateway),
            nextHops: next_hops,
            subnets: external_subnets,
            snatAddress: enable_snat && own !== undefined ? own : null,
          },
    floatingIps: gateway === undefined ? [] : floating_ips,
    routes: routes.map(({ destination, nexthop }) => ({ destination, nextHop: nexthop })),
  }
}

const withoutRole = ({ gateway: _, ...port }: PortRow): RouterPort => port
