import type { LoadBalancerTree } from '../../../load-balancer/tree/tree.js'
import { managementOverlap, PORT_OWNER, type Port, type PortRequest, type Subnet } from '../../../network/driver.js'
import { ProvisioningFault } from '../../provider.js'

export const managementPortName = (amphoraId: string): string => `octavia-lb-mgmt-${amphoraId}`
const basePortName = (amphoraId: string) => `octavia-lb-vrrp-${amphoraId}`
const memberPortName = (amphoraId: string, networkId: string) => `octavia-lb-member-${amphoraId}-${networkId}`

/** A port that an amphora should have, and its purpose. The name identifies the port. */
export type DesiredPort = { purpose: 'vip' | 'member'; request: Omit<PortRequest, 'projectId'> }

/**
 * The ports of one amphora: the base port, with an address on each VIP's subnet, and one port per network with member
 * subnets that the base port is not on, with an address on each of these subnets.
 * @throws ProvisioningFault if a subnet no longer exists or overlaps the management network
 */
export function desiredPorts(tree: LoadBalancerTree, subnets: readonly Subnet[], amphoraId: string): DesiredPort[] {
  const device = { deviceId: amphoraId, deviceOwner: PORT_OWNER.amphora }
  const vips = vipSubnetIds(tree).map(id => requireSubnet(id, subnets, 'of a VIP'))
  const [base] = vips
  if (base === undefined) throw new ProvisioningFault('subnet-missing', 'The VIP has no subnet.')
  const byNetwork = new Map<string, Subnet[]>()
  for (const id of memberSubnetIds(tree)) {
    const subnet = requireSubnet(id, subnets, 'of a member')
    if (vips.includes(subnet)) continue
    byNetwork.set(subnet.networkId, [...(byNetwork.get(subnet.networkId) ?? []), subnet])
  }
  return [
    {
      purpose: 'vip',
      request: {
        ...device,
        name: basePortName(amphoraId),
        networkId: base.networkId,
        fixedIps: vips.map(({ id }) => ({ subnetId: id })),
        allowedAddresses: [tree.vip, ...tree.additionalVips].map(({ address }) => address),
      },
    },
    ...[...byNetwork].map(([networkId, onIt]): DesiredPort => {
      const fixedIps = onIt.map(subnet => ({ subnetId: subnet.id }))
      return {
        purpose: 'member',
        request: { ...device, name: memberPortName(amphoraId, networkId), networkId, fixedIps },
      }
    }),
  ]
}

/** Ids of the subnets of VIPs and members. A member without a subnet is reached through the default route. */
export function desiredSubnetIds(tree: LoadBalancerTree): string[] {
  return [...new Set([...vipSubnetIds(tree), ...memberSubnetIds(tree)])]
}

/** Ids of the networks of these subnets. */
export function desiredNetworkIds(tree: LoadBalancerTree, known: readonly Subnet[]): string[] {
  const desired = desiredSubnetIds(tree)
  return [...new Set(known.flatMap(({ id, networkId }) => (desired.includes(id) ? [networkId] : [])))]
}

/** The amphora's port with this name. */
export const portOf = ({ ports }: { ports: readonly Port[] }, { request }: DesiredPort): Port | undefined =>
  ports.find(port => port.name === request.name)

/** True if the port has an address on every desired subnet. */
export function covers(port: Port, { request }: DesiredPort): boolean {
  return request.fixedIps.every(({ subnetId }) => port.fixedIps.some(fixedIp => fixedIp.subnetId === subnetId))
}

/** The main VIP's subnet first. */
function vipSubnetIds({ vip, additionalVips }: LoadBalancerTree): string[] {
  const ids = [vip.subnetId, ...additionalVips.map(({ subnetId }) => subnetId).sort()]
  return [...new Set(ids.filter(id => id !== null))]
}

function memberSubnetIds(tree: LoadBalancerTree): string[] {
  const members = tree.pools.filter(pool => pool.change !== 'delete').flatMap(pool => pool.members)
  const ids = members.flatMap(({ change, subnetId }) => (change === 'delete' || subnetId === null ? [] : [subnetId]))
  return [...new Set(ids)].sort()
}

function requireSubnet(id: string, subnets: readonly Subnet[], whose: string): Subnet {
  const subnet = subnets.find(candidate => candidate.id === id)
  if (subnet?.overlapsManagement) throw new ProvisioningFault('subnet-overlaps-management', managementOverlap(id))
  if (subnet !== undefined) return subnet
  throw new ProvisioningFault('subnet-missing', `The subnet ${id} ${whose} no longer exists.`)
}
