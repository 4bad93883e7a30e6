import ipaddr from 'ipaddr.js'
import { badRequest } from '../../http/errors.js'
import type { Caller } from '../../identity/caller.js'
import type { NetworkDriver } from '../../network/driver.js'
import type { Created } from '../attributes.js'
import { missingReference } from '../faults.js'
import type { Settings } from '../settings.js'
import type { member } from './resource.js'

export type MemberValues = Created<typeof member.attributes>

export type MemberSettings = Pick<Settings, 'reserved_ips'>

/** One spelling of an address; an IPv6 address that stands for an IPv4 one is that one. */
const canonical = (address: string): string => ipaddr.process(address).toString()

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

/** @throws ApiError 400 for an address that no member may have, such as that of the metadata service of clouds */
export function checkMember(
  { reserved_ips }: MemberSettings,
  { address, monitor_address }: Partial<MemberValues>,
): void {
  const reserved = canonicalSet(reserved_ips)
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
