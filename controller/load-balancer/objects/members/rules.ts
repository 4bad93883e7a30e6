import { isIPv4 } from 'node:net'
import ipaddr from 'ipaddr.js'
import { badRequest } from '../../../http/errors.js'
import type { Caller } from '../../../identity/caller.js'
import { managementOverlap, type NetworkDriver } from '../../../network/driver.js'
import { eachInSlices } from '../../../process/slices.js'
import type { LoadBalancerSettings } from '../../options.js'
import type { Created } from '../../schema/attributes.js'
import { missingReference } from '../../schema/faults.js'
import { type HostAddresses, hostAddresses } from './host-addresses.js'
import type { member } from './resource.js'

export type MemberValues = Created<typeof member.attributes>

export type MemberSettings = Pick<LoadBalancerSettings, 'reserved_ips' | 'host_member_ports'>

/** One spelling of an address; an IPv6 address that stands for an IPv4 one is that one. */
export const canonical = (address: string): string =>
  // Of an IPv4 address this is the only spelling.
  isIPv4(address) ? address : ipaddr.process(address).toString()

const canonicalSets = new WeakMap<readonly string[], ReadonlySet<string>>()

/** Made once for each list of the settings: a request may have thousands of members. */
function canonicalSet(addresses: readonly string[]): ReadonlySet<string> {
  const known = canonicalSets.get(addresses)
  if (known !== undefined) return known
  const made = new Set(addresses.map(canonical))
  canonicalSets.set(addresses, made)
  return made
}

/**
 * Addresses of no other machine. From inside an amphora they lead to what HAProxy, the agent and the other amphora say to each other;
 * HAProxy takes the unspecified address for that which the client connected to.
 */
const NOBODYS = ['loopback', 'unspecified', 'multicast', 'broadcast']

/**
 * @param host the addresses of the controller's own machine
 * @throws ApiError 400 for an address that no member may have, such as that of the metadata service of clouds
 */
export function checkMember(settings: MemberSettings, values: Partial<MemberValues>, host: HostAddresses): void {
  const { address, monitor_address, protocol_port, monitor_port } = values
  const reserved = canonicalSet(settings.reserved_ips)
  for (const [option, value] of [
    ['member address', address],
    ['member monitor_address', monitor_address],
  ] as const) {
    if (typeof value !== 'string') continue
    const parsed = ipaddr.process(value)
    if (reserved.has(parsed.toString()) || NOBODYS.includes(parsed.range())) {
      throw badRequest(`${value} is not a valid option for ${option}`)
    }
  }
  refuseHost(settings, host, address, protocol_port)
  if ((monitor_address ?? monitor_port ?? null) !== null) {
    refuseHost(settings, host, monitor_address ?? address, monitor_port ?? protocol_port)
  }
}

/** The same for each of many. @throws ApiError 400 */
export async function checkMembers(settings: MemberSettings, members: readonly Partial<MemberValues>[]): Promise<void> {
  const hasAddress = ({ address, monitor_address }: Partial<MemberValues>) =>
    (address ?? monitor_address ?? null) !== null
  const host: HostAddresses = members.some(hasAddress) ? await hostAddresses() : new Map()
  await eachInSlices(members, values => checkMember(settings, values, host))
}

/** A port that is not known yet is left to the machine's filter. */
function refuseHost(
  { host_member_ports }: MemberSettings,
  host: HostAddresses,
  address: string | null | undefined,
  port: number | null | undefined,
): void {
  const found = typeof address === 'string' ? host.get(canonical(address)) : undefined
  if (found === undefined) return
  if (found.isPublicLeg && (typeof port !== 'number' || host_member_ports.includes(port))) return
  throw badRequest(
    `${address} is an address of the load balancer service's own machine: no member may be there but at the ports that the operator names (load_balancer.host_member_ports)`,
  )
}

/**
 * Looks each distinct subnet up once, with the caller's rights.
 * @throws ApiError 400 for the first that the caller cannot see, or that would draw management traffic away
 */
export async function checkSubnets(
  network: NetworkDriver,
  caller: Caller,
  members: readonly Partial<MemberValues>[],
): Promise<void> {
  const ids = new Set(members.map(({ subnet_id }) => subnet_id))
  for (const id of ids) {
    if (typeof id !== 'string') continue
    const subnet = await network.findSubnet(caller, id)
    if (subnet === null) throw missingReference('Subnet', id)
    if (subnet.overlapsManagement) throw badRequest(managementOverlap(id))
  }
}

export const duplicateMember = ({ address, protocol_port }: Pick<MemberValues, 'address' | 'protocol_port'>): string =>
  `Another member on this pool is already using ip ${address} on protocol_port ${protocol_port}`
