import ipaddr from 'ipaddr.js'
import { badRequest } from '../../http/errors.js'
import type { Caller } from '../../identity/caller.js'
import type { NetworkDriver } from '../../network/driver.js'
import type { Created } from '../attributes.js'
import { invalid, missingReference } from '../faults.js'
import type { member } from './resource.js'

export type MemberValues = Created<typeof member.attributes>

/** Where cloud machines find their metadata service: never a place for tenants' traffic. */
const RESERVED_ADDRESSES: readonly string[] = ['169.254.169.254']

/** However it is spelt, as an IPv6 address that stands for an IPv4 one too. */
const isReserved = (address: string): boolean => RESERVED_ADDRESSES.includes(ipaddr.process(address).toString())

/** @throws ApiError 400 */
export function checkMember({ address, monitor_address, request_sriov }: Partial<MemberValues>): void {
  for (const [option, value] of [
    ['member address', address],
    ['member monitor_address', monitor_address],
  ] as const) {
    if (typeof value === 'string' && isReserved(value)) {
      throw badRequest(`${value} is not a valid option for ${option}`)
    }
  }
  if (request_sriov === true) throw invalid('The flavor of the load balancer does not allow SR-IOV members.')
}

/**
 * Looks each distinct subnet up once, with the caller's rights.
 * @throws ApiError 400 for the first that the caller cannot see
 */
export async function checkSubnets(
  network: NetworkDriver,
  caller: Caller,
  members: readonly Partial<MemberValues>[],
): Promise<void> {
  const ids = new Set(members.map(({ subnet_id }) => subnet_id))
  for (const id of ids) {
    if (typeof id === 'string' && (await network.findSubnet(caller, id)) === null) throw missingReference('Subnet', id)
  }
}

export const duplicateMember = ({ address, protocol_port }: Pick<MemberValues, 'address' | 'protocol_port'>): string =>
  `Another member on this pool is already using ip ${address} on protocol_port ${protocol_port}`
