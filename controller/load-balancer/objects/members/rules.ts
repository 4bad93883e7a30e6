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

export type MemberSettings = Pick<LoadBalancerSettings, 'reserved_ips' | 'host_member_ports' | 'host_member_udp_ports'>

/** Canonical form; IPv4-mapped IPv6 becomes IPv4. */
export const canonicalAddress = (address: string): string =>
  // isIPv4 accepts the canonical form only.
  isIPv4(address) ? address : ipaddr.process(address).toString()

const canonicalSets = new WeakMap<readonly string[], ReadonlySet<string>>()

/** Built once per list of the settings, because a request may have thousands of members. */
function canonicalSet(addresses: readonly string[]): ReadonlySet<string> {
  const known = canonicalSets.get(addresses)
  if (known !== undefined) return known
  const built = new Set(addresses.map(canonicalAddress))
  canonicalSets.set(addresses, built)
  return built
}

/**
 * Ranges that no member may use, with the reason. Inside an amphora, they lead to internal traffic of HAProxy, the
 * agent and the peer amphora; HAProxy replaces the unspecified address by the one that the client connected to.
 */
const FORBIDDEN_RANGES = new Map([
  ['loopback', 'a loopback address leads back to the load balancer itself'],
  ['unspecified', 'the unspecified address belongs to no server'],
  ['multicast', 'a multicast address belongs to no single server'],
  ['broadcast', 'a broadcast address belongs to no single server'],
])

/**
 * Checks the addresses of a member, such as that it is not the address of a cloud's metadata service.
 * @param host addresses of the controller's host
 * @throws ApiError 400
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
    const reason = reserved.has(parsed.toString())
      ? 'the operator has reserved it'
      : FORBIDDEN_RANGES.get(parsed.range())
    if (reason !== undefined) {
      throw badRequest(
        `${value} is not a valid option for ${option}: ${reason}. Use an address of the server on its network.`,
      )
    }
  }
  refuseHost(settings, host, address, protocol_port)
  if ((monitor_address ?? monitor_port ?? null) !== null) {
    refuseHost(settings, host, monitor_address ?? address, monitor_port ?? protocol_port)
  }
}

/** The same, for many members. @throws ApiError 400 */
export async function checkMembers(
  { config, network }: { config: MemberSettings; network: Pick<NetworkDriver, 'reachesHost'> },
  members: readonly Partial<MemberValues>[],
): Promise<void> {
  const hasAddress = ({ address, monitor_address }: Partial<MemberValues>) =>
    (address ?? monitor_address ?? null) !== null
  const isAtRisk = network.reachesHost && members.some(hasAddress)
  const host: HostAddresses = isAtRisk ? await hostAddresses() : new Map()
  await eachInSlices(members, values => checkMember(config, values, host))
}

/** Allows an unknown port at the public address; the host's packet filter then decides. @throws ApiError 400 */
function refuseHost(
  { host_member_ports, host_member_udp_ports }: MemberSettings,
  host: HostAddresses,
  address: string | null | undefined,
  port: number | null | undefined,
): void {
  const found = typeof address === 'string' ? host.get(canonicalAddress(address)) : undefined
  if (found === undefined) return
  if (found.isPublic && (typeof port !== 'number' || [...host_member_ports, ...host_member_udp_ports].includes(port)))
    return
  const place = typeof port === 'number' ? `${address} on port ${port}` : address
  const wayOut = found.isPublic ? ' `krater network open` on this machine opens a port to them.' : ''
  throw badRequest(`Members cannot use ${place}: this address belongs to the load balancing service.${wayOut}`)
}

/**
 * Looks up each distinct subnet once, with the caller's rights.
 * @throws ApiError 400 for the first subnet that the caller cannot see, or that would divert management traffic
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
