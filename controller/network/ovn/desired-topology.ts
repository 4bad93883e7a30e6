import type { Knex } from 'knex'
import type { Desired, Owner } from '../../ovn/northbound/desired.js'
import { legMacAddress } from '../local/fabric.js'
import { readFilters } from '../local/security-groups/read-filters.js'
import { readRouters } from '../local/worker/read-routers.js'
import { readNetworks, readPorts, type StoredNetwork } from './read-topology.js'
import { balancerRows } from './rows/balancer-rows.js'
import { gatewaysOf, routerRows } from './rows/router-rows.js'
import { filterHolders, securityRows } from './rows/security-rows.js'
import { networkRows, portRows } from './rows/switch-rows.js'
import { type OvnNetwork, physicalNetworkOf } from './rows/topology.js'

/** What the rows depend on besides the tables of the network service. */
export type OvnPlace = {
  /** Of this installation. */
  instance: string
  /** The host's interface on a built-in network; null if it has none there. */
  hostLegOf: (builtIn: string) => string | null
  /** Whether each physical network has a name of its own in OVN; if not, its own name, and its VLAN. */
  isPhysicalByNetwork: boolean
  /** Names of hypervisors that may carry the gateways of routers. */
  gateways: () => readonly string[]
}

const OWNED = /^(network|port|router|balancer-router|security-group|filter)\//

/** Whether the network service makes an owner's rows. Others are the load balancer service's. */
export const isOfNetworks = (owner: Owner): boolean => OWNED.test(owner)

/** The rows of all networks, ports, routers and security groups that the tables have. */
export async function desiredTopology(database: Knex, place: OvnPlace): Promise<Desired[]> {
  const { instance } = place
  // A port's row was there before its network's is read, so no port lacks its network here.
  const [ports, routers, filters] = await Promise.all([
    readPorts(database),
    readRouters(database),
    readFilters(database),
  ])
  const networks = new Map((await readNetworks(database)).map(row => [row.id, networkOf(row, place)]))
  const filtered = new Set(filters.filters.map(({ portId }) => portId))
  const gateways = place.gateways()
  return [
    ...[...networks.values()].map(network => networkRows(network, instance)),
    ...ports.flatMap(port => {
      const network = networks.get(port.networkId)
      const holders = filtered.has(port.id) ? filterHolders(port.id, instance) : []
      return network === undefined ? [] : [portRows(port, network, instance, holders)]
    }),
    ...ports
      .filter(({ role }) => role === 'balancer')
      .flatMap(port => {
        const network = networks.get(port.networkId)
        return network === undefined ? [] : [balancerRows(port, network, routers, instance)]
      }),
    ...routers.map(router => routerRows(router, instance, gatewaysOf(router.id, gateways))),
    ...securityRows(filters, instance),
  ]
}

function networkOf(
  { builtIn, physical, ...network }: StoredNetwork,
  { hostLegOf, isPhysicalByNetwork }: OvnPlace,
): OvnNetwork {
  const name = builtIn === null ? null : hostLegOf(builtIn)
  const addresses = network.subnets.flatMap(({ gatewayIp }) => (gatewayIp === null ? [] : [gatewayIp]))
  return {
    ...network,
    physical:
      physical === null || !isPhysicalByNetwork ? physical : { name: physicalNetworkOf(network.id), vlan: null },
    hostLeg: name === null ? null : { name, macAddress: legMacAddress(name), addresses },
    isolated: builtIn === 'management',
  }
}
