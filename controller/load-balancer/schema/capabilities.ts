import { badRequest, notImplemented } from '../../http/errors.js'
import type { Resource } from './resource.js'

type Values = Readonly<Record<string, unknown>>

/**
 * The values of an attribute that a provider supports, or what is wrong with a value of an object with these values, as a
 * clause, or null.
 */
type Supported = readonly unknown[] | ((value: unknown, values: Values) => string | null)

/**
 * Values that a provider supports: resource (its key in bodies) -> attribute -> values. An attribute that is
 * not listed supports every valid value. `flavor` and `availability_zone` list keys of their profile data.
 */
export type SupportedValues = Readonly<Record<string, Readonly<Record<string, Supported>>>>

/**
 * A key that profile data may hold. `check` returns what is wrong with a value, or null. `missing` returns, as a clause,
 * that what a right value names does not exist, or null.
 */
export type ProfileKey = {
  name: string
  description: string
  check: (value: unknown) => string | null
  missing?: (value: unknown) => string | null
}

/** What the API needs to know about a provider. The worker has its implementation. */
export type ProviderCapabilities = {
  name: string
  description: string
  /** The provider that this name is an alias of. */
  aliasOf?: string
  supported: SupportedValues
  /** Which traffic reaches members whose IP version differs from that of every VIP: `streams` is all but UDP and SCTP. */
  acrossIpVersions: 'everything' | 'streams' | 'nothing'
  /** Whether it must know the subnet of a member: one that the request names, or one of the VIP's network. */
  needsMemberSubnets?: boolean
  /** Whether its load balancers run on machines, which limit connections and members. */
  usesMachines: boolean
  /** Whether it counts traffic. If not, statistics are null. Default: true. */
  countsTraffic?: boolean
  /** Why it has no VIPs on physical networks, and what to do instead, as a clause; absent if it has. */
  physicalVipProblem?: string
  /** Why it has no VIPs on ports with security groups, and what to do instead, as a clause; absent if it has. */
  filteredVipProblem?: string
  /** Why it fails no load balancer over, as a clause; absent if it does. */
  failoverProblem?: string
  /** Keys of flavor data and of availability zone data; null if the provider supports none. */
  flavorKeys: readonly ProfileKey[] | null
  availabilityZoneKeys: readonly ProfileKey[] | null
  /** Why there are no machines for the data of a flavor and an availability zone, as a sentence; null if there are. */
  machineProblem?: (flavorData: ProfileData, zoneData: ProfileData) => string | null
}

/** Data of a flavor or an availability zone; an empty object if there is none. */
export type ProfileData = Readonly<Record<string, unknown>>

/** What a provider needs that is not enabled everywhere, as a sentence. */
const NEEDS: Readonly<Record<string, string>> = {
  ovn: ' It needs networks in OVN: an installation with the setting network.driver=ovn.',
}

/** @throws ApiError 400 when the provider is not enabled */
export function enabledProvider(providers: readonly ProviderCapabilities[], name: string): ProviderCapabilities {
  const provider = providers.find(one => one.name === name)
  // A name may be one that every object has.
  const needs = Object.hasOwn(NEEDS, name) ? NEEDS[name] : ''
  if (provider === undefined) throw badRequest(`Provider '${name}' is not enabled.${needs}`)
  return provider
}

/**
 * Rejects valid values that a provider does not support.
 * @throws ApiError 501 that names provider and option
 */
export function refuseUnsupported(
  { name: provider, supported }: ProviderCapabilities,
  { label, singular }: Resource,
  values: Values,
): void {
  for (const [name, known] of Object.entries(supported[singular] ?? {})) {
    const value = values[name]
    if (value === undefined || value === null) continue
    const problem = typeof known === 'function' ? known(value, values) : problemAmong(known, value)
    if (problem === null) continue
    throw notImplemented(`Provider '${provider}' does not support a requested option: ${label} ${name} ${problem}`)
  }
}

/** Where a VIP is to be: whether its network leads to a physical one, and its port has security groups. */
type VipPlace = { isPhysical: boolean; isFiltered: boolean }

/** @throws ApiError 501 when the provider has no VIPs there */
export function refuseVipPlace(provider: ProviderCapabilities, { isPhysical, isFiltered }: VipPlace): void {
  const { name, physicalVipProblem, filteredVipProblem } = provider
  const refuse = (what: string, problem: string) =>
    notImplemented(`Provider '${name}' does not support a requested option: ${what}: ${problem}`)
  if (isPhysical && physicalVipProblem !== undefined) throw refuse('a VIP here', physicalVipProblem)
  if (isFiltered && filteredVipProblem !== undefined)
    throw refuse('a VIP port with security groups', filteredVipProblem)
}

/** @throws ApiError 501 when the provider fails no load balancer over */
export function refuseFailover({ name, failoverProblem }: ProviderCapabilities): void {
  if (failoverProblem === undefined) return
  throw notImplemented(`Provider '${name}' does not support a requested action: failover: ${failoverProblem}`)
}

function problemAmong(known: readonly unknown[], value: unknown): string | null {
  const shown = JSON.stringify(value)
  if (known.some(one => JSON.stringify(one) === shown)) return null
  return typeof value === 'string' ? `'${value}'` : 'is not supported'
}

/** Whether two names refer to the same provider. */
export const isSameProvider = (one: ProviderCapabilities, other: ProviderCapabilities): boolean =>
  (one.aliasOf ?? one.name) === (other.aliasOf ?? other.name)

/**
 * Rejects profile data that a provider does not support.
 * @param resource flavor or availability zone
 * @throws ApiError 501 when the provider supports no such data, or not a key or value of it; 400 when a value names what
 *   does not exist
 */
export function checkProfileData(
  { name: provider }: ProviderCapabilities,
  keys: readonly ProfileKey[] | null,
  { label }: Resource,
  data: ProfileData,
): void {
  if (keys === null) throw notImplemented(`Provider '${provider}' does not support a requested action: ${label} data`)
  for (const [name, value] of Object.entries(data)) {
    const key = keys.find(one => one.name === name)
    const reason = key === undefined ? 'Unknown key' : key.check(value)
    if (reason !== null) {
      throw notImplemented(
        `Provider '${provider}' does not support a requested option: ${label} data ${name.slice(0, 100)}: ${reason}`,
      )
    }
    const missing = key?.missing?.(value) ?? null
    if (missing !== null) throw badRequest(`${label} data ${name}: ${missing}`)
  }
}
