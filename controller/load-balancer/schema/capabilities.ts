import { badRequest, notImplemented } from '../../http/errors.js'
import type { Resource } from './resource.js'

/**
 * What a provider can carry out, as a table: resource (its key in bodies) -> attribute -> the values with an effect. An attribute that is
 * not named takes every valid value. `flavor` and `availability_zone` speak of the keys of their profile's data.
 */
export type SupportedValues = Readonly<Record<string, Readonly<Record<string, readonly unknown[]>>>>

/** A key that profile data may hold. `check` says what is wrong with a value, or null. */
export type ProfileKey = { name: string; description: string; check: (value: unknown) => string | null }

/** What the API must know of a provider; how it carries anything out is the worker's. */
export type ProviderCapabilities = {
  name: string
  description: string
  /** The provider that this is only another name of. */
  aliasOf?: string
  supported: SupportedValues
  /** Whether UDP and SCTP reach members whose IP version no VIP of the load balancer has. */
  datagramsAcrossIpVersions: boolean
  /** Whether machines carry its load balancers, which bound connections and members. */
  usesMachines: boolean
  /** Keys of flavor data and of availability zone data; null when the provider has no such thing. */
  flavorKeys: readonly ProfileKey[] | null
  availabilityZoneKeys: readonly ProfileKey[] | null
}

/** @throws ApiError 400 when the provider is not enabled */
export function enabledProvider(providers: readonly ProviderCapabilities[], name: string): ProviderCapabilities {
  const provider = providers.find(one => one.name === name)
  if (provider === undefined) throw badRequest(`Provider '${name}' is not enabled.`)
  return provider
}

/**
 * Refuses valid values that a provider cannot carry out.
 * @throws ApiError 501 that names provider and option
 */
export function refuseUnsupported(
  { name: provider, supported }: ProviderCapabilities,
  { label, singular }: Resource,
  values: Readonly<Record<string, unknown>>,
): void {
  for (const [name, taken] of Object.entries(supported[singular] ?? {})) {
    const value = values[name]
    if (value === undefined || value === null) continue
    const shown = JSON.stringify(value)
    if (taken.some(known => JSON.stringify(known) === shown)) continue
    throw notImplemented(
      `Provider '${provider}' does not support a requested option: ${label} ${name} ${typeof value === 'string' ? `'${value}'` : 'is not supported'}`,
    )
  }
}

/** Whether two names stand for one provider. */
export const isSameProvider = (one: ProviderCapabilities, other: ProviderCapabilities): boolean =>
  (one.aliasOf ?? one.name) === (other.aliasOf ?? other.name)

/**
 * Refuses profile data that a provider cannot read.
 * @param resource the flavor or the availability zone that the data is for
 * @throws ApiError 501 when it has no such data at all, or does not know a key or a value
 */
export function checkProfileData(
  { name: provider }: ProviderCapabilities,
  keys: readonly ProfileKey[] | null,
  { label }: Resource,
  data: Readonly<Record<string, unknown>>,
): void {
  if (keys === null) throw notImplemented(`Provider '${provider}' does not support a requested action: ${label} data`)
  for (const [name, value] of Object.entries(data)) {
    const wrong = keys.find(key => key.name === name)?.check
    const reason = wrong === undefined ? 'There is no such key' : wrong(value)
    if (reason === null) continue
    throw notImplemented(
      `Provider '${provider}' does not support a requested option: ${label} data ${name.slice(0, 100)}: ${reason}`,
    )
  }
}
