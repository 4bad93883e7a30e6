import ipaddr from 'ipaddr.js'
import { badRequest } from '../../../http/errors.js'
import type { Caller } from '../../../identity/caller.js'
import { managementOverlap, type NetworkDriver, type Subnet } from '../../../network/driver.js'
import { missingReference } from '../../schema/faults.js'

/**
 * @param address that the request has on it
 * @throws ApiError 400 for a subnet that the caller cannot see, or that overlaps the management network
 */
export async function findSubnet(
  network: NetworkDriver,
  caller: Caller,
  id: string,
  address: string | null,
): Promise<Subnet> {
  const subnet = await network.findSubnet(caller, id, address)
  if (subnet === null) throw missingReference('Subnet', id)
  if (subnet.overlapsManagement) throw badRequest(managementOverlap(id))
  return subnet
}

export const isIn = ({ cidr }: Subnet, address: string): boolean => {
  const parsed = ipaddr.parse(address)
  const [network, length] = ipaddr.parseCIDR(cidr)
  return parsed.kind() === network.kind() && parsed.match(network, length)
}

export const sameAddress = (one: string, other: string): boolean =>
  ipaddr.parse(one).toNormalizedString() === ipaddr.parse(other).toNormalizedString()
