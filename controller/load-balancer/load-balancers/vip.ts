import ipaddr from 'ipaddr.js'
import { badRequest, conflict } from '../../http/errors.js'
import type { Caller } from '../../identity/caller.js'
import {
  AddressTaken,
  InvalidPortRequest,
  type NetworkDriver,
  NoAddressLeft,
  PORT_OWNER,
  type Port,
  type Subnet,
} from '../../network/driver.js'
import { invalid, missingReference } from '../faults.js'

/** What a create body says of the VIP. */
export type VipRequest = {
  vip_address: string | null
  vip_port_id: string | null
  vip_network_id: string | null
  vip_subnet_id: string | null
}

/** Where the VIP is to be: on a port of the user's, or on the first of these subnets that has room. */
export type VipPlan =
  | { kind: 'port'; port: Port; subnetId: string; address: string }
  | { kind: 'allocate'; networkId: string; subnetIds: string[]; address: string | null }

export type Vip = { address: string; subnetId: string; networkId: string; portId: string; ownsPort: boolean }

/** @throws ApiError 400 when a body says nothing of where the VIP is to be */
export function requireVip({ vip_port_id, vip_network_id, vip_subnet_id }: VipRequest): void {
  if (vip_port_id === null && vip_network_id === null && vip_subnet_id === null) {
    throw invalid('VIP must contain one of: vip_port_id, vip_network_id, vip_subnet_id.')
  }
}

/**
 * Looks up what the request names, with the caller's own rights; a port goes before a network, a network before a subnet.
 * @throws ApiError 400 for what does not exist, does not fit together or is in use
 */
export async function planVip(network: NetworkDriver, caller: Caller, request: VipRequest): Promise<VipPlan> {
  if (request.vip_port_id !== null) return planOnPort(network, caller, request.vip_port_id, request)
  if (request.vip_network_id !== null) return planOnNetwork(network, caller, request.vip_network_id, request)
  const subnet = await findSubnet(network, caller, request.vip_subnet_id ?? '')
  if (request.vip_address !== null && !isIn(subnet, request.vip_address)) {
    throw invalid(`VIP address ${request.vip_address} is not on subnet ${subnet.id}.`)
  }
  return { kind: 'allocate', networkId: subnet.networkId, subnetIds: [subnet.id], address: request.vip_address }
}

async function planOnPort(network: NetworkDriver, caller: Caller, id: string, request: VipRequest): Promise<VipPlan> {
  const port = await network.findPort(caller, id)
  if (port === null) throw missingReference('Port', id)
  if (port.deviceId !== '') throw invalid(`VIP port ${id} is already used by device ${port.deviceId}.`)
  const { vip_subnet_id: subnetId, vip_address: address } = request
  const fitting = port.fixedIps.filter(
    fixedIp =>
      (subnetId === null || fixedIp.subnetId === subnetId) &&
      (address === null || sameAddress(fixedIp.address, address)),
  )
  const [fixedIp] = fitting
  if (fixedIp === undefined) {
    const wanted =
      address !== null
        ? `the address ${address}`
        : subnetId !== null
          ? `an address on subnet ${subnetId}`
          : 'an address'
    throw invalid(`VIP port ${id} does not have ${wanted}.`)
  }
  if (fitting.length > 1 && subnetId === null) {
    throw invalid(`VIP port ${id} has several addresses: give vip_subnet_id or vip_address as well.`)
  }
  return { kind: 'port', port, subnetId: fixedIp.subnetId, address: address ?? fixedIp.address }
}

async function planOnNetwork(
  network: NetworkDriver,
  caller: Caller,
  id: string,
  request: VipRequest,
): Promise<VipPlan> {
  const found = await network.findNetwork(caller, id)
  if (found === null) throw missingReference('Network', id)
  const { vip_subnet_id: subnetId, vip_address: address } = request
  if (subnetId !== null) {
    const subnet = await findSubnet(network, caller, subnetId)
    if (!found.subnetIds.includes(subnetId)) throw invalid(`Subnet ${subnetId} is not on network ${id}.`)
    if (address !== null && !isIn(subnet, address))
      throw invalid(`VIP address ${address} is not on subnet ${subnetId}.`)
    return { kind: 'allocate', networkId: id, subnetIds: [subnetId], address }
  }
  const subnets = await network.subnets(found.subnetIds)
  if (subnets.length === 0) throw invalid(`Network ${id} has no subnets.`)
  const candidates = subnets
    .filter(subnet => address === null || isIn(subnet, address))
    .sort((a, b) => a.ipVersion - b.ipVersion)
  if (candidates.length === 0) throw invalid(`VIP address ${address} is not on any subnet of network ${id}.`)
  return { kind: 'allocate', networkId: id, subnetIds: candidates.map(subnet => subnet.id), address }
}

/**
 * Takes the VIP: binds the user's port, or makes one of our own.
 * @throws ApiError 409 when the address is taken or the subnet full, 400 when no subnet of the network has room
 */
export async function claimVip(
  network: NetworkDriver,
  plan: VipPlan,
  { loadBalancerId, projectId }: { loadBalancerId: string; projectId: string },
): Promise<Vip> {
  const deviceId = `lb-${loadBalancerId}`
  if (plan.kind === 'port') {
    const { port, subnetId, address } = plan
    try {
      await network.bindPort(port.id, { deviceId, deviceOwner: PORT_OWNER.vip })
    } catch (error) {
      if (error instanceof AddressTaken || error instanceof InvalidPortRequest) throw invalid(error.message)
      throw error
    }
    return { address, subnetId, networkId: port.networkId, portId: port.id, ownsPort: false }
  }
  for (const subnetId of plan.subnetIds) {
    try {
      const port = await network.ensurePort({
        networkId: plan.networkId,
        fixedIps: [plan.address === null ? { subnetId } : { subnetId, address: plan.address }],
        projectId,
        name: `octavia-${deviceId}`,
        deviceId,
        deviceOwner: PORT_OWNER.vip,
      })
      const address = plan.address ?? port.fixedIps[0]?.address
      if (address === undefined) throw new Error(`The network driver made port ${port.id} without an address`)
      return { address, subnetId, networkId: plan.networkId, portId: port.id, ownsPort: true }
    } catch (error) {
      if (error instanceof AddressTaken) throw conflict(error.message || `VIP address ${plan.address} is in use.`)
      if (error instanceof InvalidPortRequest) throw badRequest(error.message)
      if (!(error instanceof NoAddressLeft)) throw error
      if (plan.subnetIds.length === 1) throw conflict(error.message || `No address is left on subnet ${subnetId}.`)
    }
  }
  throw invalid(`No subnet of network ${plan.networkId} has a free address.`)
}

/** Gives the VIP back when the load balancer did not come to be. */
export async function releaseVip(network: NetworkDriver, { portId, ownsPort }: Vip): Promise<void> {
  if (ownsPort) await network.deletePort(portId)
  else await network.bindPort(portId, null)
}

async function findSubnet(network: NetworkDriver, caller: Caller, id: string): Promise<Subnet> {
  const subnet = await network.findSubnet(caller, id)
  if (subnet === null) throw missingReference('Subnet', id)
  return subnet
}

const isIn = ({ cidr }: Subnet, address: string): boolean => {
  const parsed = ipaddr.parse(address)
  const [network, length] = ipaddr.parseCIDR(cidr)
  return parsed.kind() === network.kind() && parsed.match(network, length)
}

const sameAddress = (one: string, other: string): boolean =>
  ipaddr.parse(one).toNormalizedString() === ipaddr.parse(other).toNormalizedString()
