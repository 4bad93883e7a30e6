import { badRequest, notImplemented } from '../http/errors.js'
import type { Resource } from './resource.js'

/**
 * What a provider can carry out, as a table: resource (its key in bodies) -> attribute -> the values with an effect. An attribute that is
 * not named takes every valid value.
 */
export type Capabilities = Readonly<Record<string, Readonly<Record<string, readonly unknown[]>>>>

/** A key that profile data may hold. `check` says what is wrong with a value, or null. */
export type ProfileKey = { name: string; description: string; check: (value: unknown) => string | null }

/** What the API must know of a provider; how it carries anything out is the worker's. */
export type OfferedProvider = {
  name: string
  description: string
  capabilities: Capabilities
  /** Keys of flavor data and of availability zone data; null when the provider has no such thing. */
  flavorKeys: readonly ProfileKey[] | null
  availabilityZoneKeys: readonly ProfileKey[] | null
}

/** @throws ApiError 400 when the provider is not enabled */
export function enabledProvider(providers: readonly OfferedProvider[], name: string): OfferedProvider {
  const provider = providers.find(offered => offered.name === name)
  if (provider === undefined) throw badRequest(`Provider '${name}' is not enabled.`)
  return provider
}

/**
 * Refuses valid values that a provider cannot carry out.
 * @throws ApiError 501 that names provider and option
 */
export function refuseUnsupported(
  { name: provider, capabilities }: OfferedProvider,
  { label, singular }: Resource,
  values: Readonly<Record<string, unknown>>,
): void {
  for (const [name, supported] of Object.entries(capabilities[singular] ?? {})) {
    const value = values[name]
    if (value === undefined || value === null) continue
    const shown = JSON.stringify(value)
    if (supported.some(known => JSON.stringify(known) === shown)) continue
    throw notImplemented(
      `Provider '${provider}' does not support a requested option: ${label} ${name} ${typeof value === 'string' ? `'${value}'` : 'is not supported'}`,
    )
  }
}
