import { sql } from '../../../database/sql.js'
import { FIXED_IPS } from '../../local/ports.js'
import { ownObjects } from '../../visibility.js'
import { type CommonRow, commonColumns, commonFilters, type Item, presentCommon } from '../resource.js'
import { type Source, tagFilters } from '../select.js'

export type Route = { destination: string; nexthop: string }

type FixedIp = { subnet_id: string; ip_address: string }

export type RouterRow = CommonRow & {
  admin_state_up: boolean
  enable_snat: boolean
  routes: Route[]
  gateway: { port_id: string; network_id: string; fixed_ips: FixedIp[] } | null
}

export const routerSource: Source<RouterRow> & { kind: 'router' } = {
  kind: 'router',
  table: 'router',
  select: sql<RouterRow>`${commonColumns('router')}, router.admin_state_up, router.enable_snat, router.routes,
    (SELECT json_build_object('port_id', port.id, 'network_id', port.network_id, 'fixed_ips', ${FIXED_IPS})
       FROM router_port JOIN port ON port.id = router_port.port_id
      WHERE router_port.router_id = router.id AND router_port.gateway) AS gateway`,
  from: sql`router`,
  visible: ownObjects('router'),
  columns: {
    ...commonFilters('router'),
    admin_state_up: { sql: sql`router.admin_state_up`, kind: 'boolean' },
    status: { constant: 'ACTIVE' },
    distributed: { constant: 'false' },
    ha: { constant: 'false' },
    flavor_id: { constant: null },
  },
  filters: tagFilters('router'),
}

export const presentRouter = (row: RouterRow): Item => ({
  ...presentCommon(row),
  admin_state_up: row.admin_state_up,
  status: 'ACTIVE',
  external_gateway_info: row.gateway && {
    network_id: row.gateway.network_id,
    enable_snat: row.enable_snat,
    external_fixed_ips: row.gateway.fixed_ips,
  },
  routes: row.routes,
  distributed: false,
  ha: false,
  availability_zones: [],
  availability_zone_hints: [],
  flavor_id: null,
})
