import type { Caller } from '../../../identity/caller.js'
import type { NetworkDriver, Port } from '../../../network/driver.js'
import { invalid } from '../../schema/faults.js'
import { findSubnet, isIn, sameAddress } from './vip-addresses.js'

/** An additional address of the VIP port; null lets the network choose. */
export type AdditionalPlan = { subnetId: string; address: string | null }

/**
 * Looks up the subnets of additional addresses with the caller's rights. They must differ, and be on the
 * network of the VIP.
 * @param main location of the VIP; `port` if the user provides it, which must then have these addresses
 * @throws ApiError 400 when an object does not exist or does not match
 */
export async function planAdditionalVips(
  network: NetworkDriver,
  caller: Caller,
  desired: readonly { subnet_id: string; ip_address: string | null }[],
  main: { subnetId: string; networkId: string; port: Port | null },
): Promise<AdditionalPlan[]> {
  const plans: AdditionalPlan[] = []
  const taken = new Set([main.subnetId])
  for (const { subnet_id: subnetId, ip_address: address } of desired) {
    const subnet = await findSubnet(network, caller, subnetId, address)
    if (taken.has(subnetId)) {
      throw invalid(`Duplicate VIP subnet specified: ${subnetId}. Only one IP can be bound per subnet.`)
    }
    taken.add(subnetId)
    if (subnet.networkId !== main.networkId) throw invalid('All VIP subnets must belong to the same network.')
    if (address !== null && !isIn(subnet, address)) {
      throw invalid(`Additional VIP address ${address} is not on subnet ${subnetId}.`)
    }
    plans.push({ subnetId, address: main.port === null ? address : addressOf(main.port, subnetId, address) })
  }
  return plans
}

function addressOf({ id, fixedIps }: Port, subnetId: string, desired: string | null): string {
  const fixedIp = fixedIps.find(
    candidate => candidate.subnetId === subnetId && (desired === null || sameAddress(candidate.address, desired)),
  )
  if (fixedIp === undefined) {
    throw invalid(
      `VIP port ${id} does not have ${desired === null ? 'an address' : `the address ${desired}`} on subnet ${subnetId}.`,
    )
  }
  return desired ?? fixedIp.address
}
