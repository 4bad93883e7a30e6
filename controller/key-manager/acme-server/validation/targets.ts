import { isIP } from 'node:net'
import { canonicalAddress, isForbiddenAddress, isOnNetwork } from '../rules/addresses.js'
import { invalid, type Outcome, unreachable } from './outcome.js'
import type { Reach, Route } from './reach.js'
import { LookUpFailed, type NameResolver } from './resolver.js'

/** An address that was checked, and the way to it. Whoever connects uses it and resolves nothing again. */
export type Target = { address: string; route: Route }

/** A name with more addresses is tried at the first of these only. */
const MAX_TARGETS = 3

export type Finding = { kind: 'targets'; targets: readonly Target[] } | { kind: 'refused'; outcome: Outcome }

/** The first address that must not be contacted, of all that a name has; null if none. Pure. */
export function forbiddenAmong(addresses: readonly string[], networks: readonly string[]): string | null {
  const isForbidden = (text: string): boolean => {
    const address = canonicalAddress(text)
    if (address === null || isForbiddenAddress(address)) return true
    return networks.some(network => isOnNetwork(address, network))
  }
  return addresses.find(isForbidden) ?? null
}

/**
 * The addresses of a host that the project can reach. One address that must not be contacted refuses them all: an
 * honest name has none.
 */
export async function findTargets(
  { resolver, reach }: { resolver: NameResolver; reach: Reach },
  projectId: string,
  host: string,
  signal: AbortSignal,
): Promise<Finding> {
  const refused = (outcome: Outcome): Finding => ({ kind: 'refused', outcome })
  let addresses: string[]
  try {
    addresses = isIP(host) === 0 ? await resolver.addresses(host, signal) : [host]
  } catch (error) {
    if (error instanceof LookUpFailed) return refused(unreachable('dns', error.message))
    throw error
  }
  if (addresses.length === 0) return refused(unreachable('dns', `${host} has no address.`))
  const forbidden = forbiddenAmong(addresses, await reach.forbidden())
  if (forbidden !== null) {
    return refused(invalid('connection', `${host} has the address ${forbidden}, which validations never contact.`))
  }
  const targets: Target[] = []
  for (const address of new Set(addresses.map(text => canonicalAddress(text) ?? text))) {
    const route = targets.length < MAX_TARGETS ? await reach.routeTo(projectId, address) : null
    if (route !== null) targets.push({ address, route })
  }
  if (targets.length > 0) return { kind: 'targets', targets }
  const all = addresses.slice(0, 5).join(', ')
  return refused(invalid('connection', `No network of the project has the address of ${host} (${all}).`))
}
