import { badRequest, conflict } from '../../../http/errors.js'
import type { Caller } from '../../../identity/caller.js'
import {
  AddressTaken,
  InvalidPortRequest,
  managementOverlap,
  type NetworkDriver,
  NoAddressLeft,
  PORT_OWNER,
  type Port,
  type Subnet,
} from '../../../network/driver.js'
import type { LoadBalancerSettings } from '../../options.js'
import { disabledOption, invalid, missingReference } from '../../schema/faults.js'
import { type AdditionalPlan, planAdditionalVips } from './additional-vips.js'
import { findSubnet, isIn, sameAddress } from './vip-addresses.js'
import { vipDeviceId, vipPortName } from './vip-port-name.js'

/** VIP attributes of a create body. */
export type VipRequest = {
  vip_address: string | null
  vip_port_id: string | null
  vip_network_id: string | null
  vip_subnet_id: string | null
  additional_vips: readonly { subnet_id: string; ip_address: string | null }[]
}

/** Where to place the VIP: on a port of the user, or on a port that we create. */
export type VipPlan = ({ kind: 'port'; port: Port; address: string } | { kind: 'allocate'; address: string | null }) & {
  networkId: string
  subnetId: string
  additional: AdditionalPlan[]
}

export type Vip = {
  address: string
  subnetId: string
  networkId: string
  portId: string
  ownsPort: boolean
  additional: { subnet_id: string; ip_address: string; port_id: string }[]
}

export type VipSettings = Pick<
  LoadBalancerSettings,
  'allow_vip_port_id' | 'allow_vip_network_id' | 'allow_vip_subnet_id' | 'valid_vip_networks' | 'denied_vip_networks'
>

/** In order of precedence. */
const VIP_SOURCES = ['vip_port_id', 'vip_network_id', 'vip_subnet_id'] as const

/** @throws ApiError 400 when a body places no VIP, or uses a disabled attribute for it */
export function requireVip(settings: VipSettings, request: VipRequest): void {
  for (const source of VIP_SOURCES) {
    const value = request[source]
    if (value !== null && !settings[`allow_${source}`]) throw disabledOption(source, value)
  }
  const allowed = VIP_SOURCES.filter(source => settings[`allow_${source}`])
  if (VIP_SOURCES.every(source => request[source] === null))
    throw invalid(`VIP must contain one of: ${allowed.join(', ')}.`)
}

/**
 * Looks up the port, network or subnet of the request with the caller's rights. A port precedes a network,
 * which precedes a subnet.
 * @param addresses number of free addresses that a subnet of our choice needs: one for the VIP and one per
 *   amphora
 * @throws ApiError 400 for objects that do not exist, do not match, are in use or are not allowed
 */
export async function planVip(
  { network, config }: { network: NetworkDriver; config: VipSettings },
  caller: Caller,
  request: VipRequest,
  addresses: number,
): Promise<VipPlan> {
  const main =
    request.vip_port_id !== null
      ? await planOnPort(network, caller, request.vip_port_id, request)
      : request.vip_network_id !== null
        ? await planOnNetwork(network, caller, request.vip_network_id, request, addresses)
        : await planOnSubnet(network, caller, request.vip_subnet_id ?? '', request)
  const { valid_vip_networks: valid, denied_vip_networks: denied } = config
  if ((valid.length > 0 && !valid.includes(main.networkId)) || denied.includes(main.networkId)) {
    throw invalid('Supplied VIP network_id is not allowed by the configuration of this deployment.')
  }
  const { subnetNetworkId, ...plan } = main
  const port = plan.kind === 'port' ? plan.port : null
  const place = { subnetId: plan.subnetId, networkId: subnetNetworkId, port }
  return { ...plan, additional: await planAdditionalVips(network, caller, request.additional_vips, place) }
}

/** `subnetNetworkId`: network of the VIP subnet; additional subnets must be on it too. */
type MainPlan = ({ kind: 'port'; port: Port; address: string } | { kind: 'allocate'; address: string | null }) & {
  networkId: string
  subnetId: string
  subnetNetworkId: string
}

const allocation = (networkId: string, subnet: Subnet, address: string | null): MainPlan => {
  if (subnet.overlapsManagement) throw badRequest(managementOverlap(subnet.id))
  if (address !== null && !isIn(subnet, address)) {
    throw invalid(`VIP address ${address} is not on subnet ${subnet.id}.`)
  }
  return { kind: 'allocate', networkId, subnetId: subnet.id, subnetNetworkId: subnet.networkId, address }
}

async function planOnSubnet(
  network: NetworkDriver,
  caller: Caller,
  id: string,
  { vip_address }: VipRequest,
): Promise<MainPlan> {
  const subnet = await findSubnet(network, caller, id, vip_address)
  return allocation(subnet.networkId, subnet, vip_address)
}

async function planOnPort(network: NetworkDriver, caller: Caller, id: string, request: VipRequest): Promise<MainPlan> {
  const { vip_subnet_id: subnetId, vip_address: address, additional_vips } = request
  const port = await network.findPort(caller, id, [
    { subnetId, address },
    ...additional_vips.map(vip => ({ subnetId: vip.subnet_id, address: vip.ip_address })),
  ])
  if (port === null) throw missingReference('Port', id)
  if (port.deviceId !== '') throw invalid(`VIP port ${id} is already used by device ${port.deviceId}.`)
  const fitting = port.fixedIps.filter(
    fixedIp =>
      (subnetId === null || fixedIp.subnetId === subnetId) &&
      (address === null || sameAddress(fixedIp.address, address)) &&
      (subnetId !== null || !additional_vips.some(vip => vip.subnet_id === fixedIp.subnetId)),
  )
  const [fixedIp] = fitting
  if (fixedIp === undefined) {
    const desired =
      address !== null
        ? `the address ${address}`
        : subnetId !== null
          ? `an address on subnet ${subnetId}`
          : 'an address'
    throw invalid(`VIP port ${id} does not have ${desired}.`)
  }
  if (fitting.length > 1 && subnetId === null) {
    throw invalid(`VIP port ${id} has several addresses: specify vip_subnet_id or vip_address.`)
  }
  return {
    kind: 'port',
    port,
    networkId: port.networkId,
    subnetId: fixedIp.subnetId,
    subnetNetworkId: port.networkId,
    address: address ?? fixedIp.address,
  }
}

async function planOnNetwork(
  network: NetworkDriver,
  caller: Caller,
  id: string,
  request: VipRequest,
  addresses: number,
): Promise<MainPlan> {
  const found = await network.findNetwork(caller, id)
  if (found === null) throw missingReference('Network', id)
  const { vip_subnet_id: subnetId, vip_address: address, additional_vips } = request
  if (subnetId !== null) {
    const subnet = await findSubnet(network, caller, subnetId, address)
    if (!found.subnetIds.includes(subnetId)) throw invalid(`Subnet ${subnetId} is not on network ${id}.`)
    return allocation(id, subnet, address)
  }
  const subnets = await network.subnets(found.subnetIds)
  if (subnets.length === 0) throw invalid(`Network ${id} has no subnets.`)
  if (address !== null) {
    const subnet = subnets.find(candidate => isIn(candidate, address))
    if (subnet === undefined) throw invalid(`VIP address ${address} is not on any subnet of network ${id}.`)
    return allocation(id, subnet, address)
  }
  const candidates = subnets
    .filter(subnet => !additional_vips.some(vip => vip.subnet_id === subnet.id))
    .sort((a, b) => a.ipVersion - b.ipVersion)
  for (const subnet of candidates) {
    if ((await network.freeAddresses(subnet.id)) >= addresses) return allocation(id, subnet, null)
  }
  throw invalid(`No subnet of network ${id} has ${addresses} free addresses.`)
}

/**
 * Claims the VIP: binds the user's port, or creates a port with all addresses.
 * @throws ApiError 409 when an address is taken or a subnet is full, 400 when an address can never be allocated
 */
export async function claimVip(
  network: NetworkDriver,
  plan: VipPlan,
  { loadBalancerId, projectId }: { loadBalancerId: string; projectId: string },
): Promise<Vip> {
  const deviceId = vipDeviceId(loadBalancerId)
  const { networkId, subnetId, additional } = plan
  if (plan.kind === 'port') {
    const { port, address } = plan
    try {
      await network.bindPort(port.id, { deviceId, deviceOwner: PORT_OWNER.vip })
    } catch (error) {
      if (error instanceof AddressTaken || error instanceof InvalidPortRequest) throw invalid(error.message)
      throw error
    }
    return { address, subnetId, networkId, portId: port.id, ownsPort: false, additional: onPort(port, additional) }
  }
  const fixedIps = [{ subnetId, address: plan.address }, ...additional].map(({ subnetId, address }) =>
    address === null ? { subnetId } : { subnetId, address },
  )
  try {
    const port = await network.ensurePort({
      networkId,
      fixedIps,
      projectId,
      name: vipPortName(loadBalancerId),
      deviceId,
      deviceOwner: PORT_OWNER.vip,
    })
    const address = plan.address ?? addressOn(port, subnetId)
    return { address, subnetId, networkId, portId: port.id, ownsPort: true, additional: onPort(port, additional) }
  } catch (error) {
    if (error instanceof AddressTaken) throw conflict(error.message || `VIP address ${plan.address} is in use.`)
    if (error instanceof InvalidPortRequest) throw badRequest(error.message)
    if (error instanceof NoAddressLeft) throw conflict(error.message || `Subnet ${subnetId} has no free address.`)
    throw error
  }
}

const onPort = (port: Port, additional: readonly AdditionalPlan[]): Vip['additional'] =>
  additional.map(({ subnetId, address }) => ({
    subnet_id: subnetId,
    ip_address: address ?? addressOn(port, subnetId),
    port_id: port.id,
  }))

function addressOn({ id, fixedIps }: Port, subnetId: string): string {
  const fixedIp = fixedIps.find(candidate => candidate.subnetId === subnetId)
  if (fixedIp === undefined) throw new Error(`The network driver created port ${id} without an address on ${subnetId}`)
  return fixedIp.address
}

/** Releases the VIP when the load balancer could not be created. */
export async function releaseVip(network: NetworkDriver, { portId, ownsPort }: Vip): Promise<void> {
  if (ownsPort) await network.deletePort(portId)
  else await network.bindPort(portId, null)
}
