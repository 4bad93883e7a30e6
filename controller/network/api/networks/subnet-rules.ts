import {
  type AddressRange,
  type Cidr,
  contains,
  defaultGateway,
  defaultPools,
  hostRange,
  parseAddress,
} from '../../addresses.js'
import { conflict, invalidInput, NeutronError } from '../neutron-error.js'

/** The subnet's gateway. Without a request, the first host address; null disables it. @throws NeutronError 400 */
export function chooseGateway(cidr: Cidr, requested: string | null | undefined): string | null {
  if (requested === undefined) return cidr.first === cidr.last ? null : defaultGateway(cidr)
  checkGateway(cidr, requested)
  return requested
}

export function checkGateway(cidr: Cidr, gateway: string | null): void {
  if (gateway === null) return
  const { first, last } = hostRange(cidr)
  const address = parseAddress(gateway)
  if (address === null || address.version !== cidr.version || address.value < first || address.value > last) {
    throw invalidInput('Gateway is not valid on subnet')
  }
}

/** The subnet's pools. Without a request, all host addresses but the gateway. @throws NeutronError 400, 409 */
export function choosePools(
  cidr: Cidr,
  gateway: string | null,
  requested: readonly AddressRange[] | undefined,
): readonly AddressRange[] {
  const pools = requested ?? defaultPools(cidr, gateway)
  checkPools(cidr, gateway, pools)
  return pools
}

export function checkPools(cidr: Cidr, gateway: string | null, pools: readonly AddressRange[]): void {
  const { first, last } = hostRange(cidr)
  const ranges = pools.map(pool => {
    const [start, end] = [parseAddress(pool.start), parseAddress(pool.end)]
    const text = `${pool.start}-${pool.end}`
    if (start === null || end === null || start.version !== end.version || start.value > end.value) {
      throw new NeutronError(400, 'InvalidAllocationPool', `The allocation pool ${text} is not valid.`)
    }
    if (!contains(cidr, pool.start) || start.value < first || end.value > last) {
      const message = `The allocation pool ${text} spans beyond the subnet cidr ${cidr.text}.`
      throw new NeutronError(400, 'OutOfBoundsAllocationPool', message)
    }
    const router = gateway === null ? null : parseAddress(gateway)!.value
    if (router !== null && start.value <= router && router <= end.value) {
      const message = `Gateway ip ${gateway} conflicts with allocation pool ${text}.`
      throw conflict('GatewayConflictWithAllocationPools', message)
    }
    return { start: start.value, end: end.value, text }
  })
  const sorted = ranges.sort((a, b) => (a.start < b.start ? -1 : 1))
  for (const [index, next] of sorted.slice(1).entries()) {
    const before = sorted[index]!
    if (before.end < next.start) continue
    const message = `Found overlapping allocation pools: ${before.text} ${next.text} for subnet ${cidr.text}.`
    throw conflict('OverlappingAllocationPools', message)
  }
}
