import type { ComputeOffers } from '../compute/offers.js'
import type { ProviderCapabilities } from '../load-balancer/schema/capabilities.js'
import { amphoraCapabilities, octaviaCapabilities } from './amphora/capabilities.js'
import type { AmphoraProviderOptions } from './amphora/provider.js'
import { noopCapabilities } from './noop/capabilities.js'
import type { Provider } from './provider.js'

/** What the worker passes to providers. Each uses what it needs. */
export type ProviderParts = AmphoraProviderOptions

type ProviderKind = {
  /** One entry per name of the provider, with what it supports on the machines that there are. */
  capabilities: Readonly<Record<string, (offers: ComputeOffers) => ProviderCapabilities>>
  /** Imports the provider's code, which the API does not need. */
  open: (parts: ProviderParts) => Promise<Provider>
}

/** Every provider. To add one, create a folder and add an entry here. */
const providerKinds: readonly ProviderKind[] = [
  {
    capabilities: { amphora: amphoraCapabilities, octavia: octaviaCapabilities },
    open: async parts => (await import('./amphora/provider.js')).createAmphoraProvider(parts),
  },
  {
    capabilities: { noop_driver: () => noopCapabilities },
    open: async ({ network }) => (await import('./noop/provider.js')).createNoopProvider(network),
  },
]

export const PROVIDER_NAMES: readonly string[] = providerKinds.flatMap(({ capabilities }) => Object.keys(capabilities))

/** What each provider supports on the machines that there are: the API accepts nothing else. */
export const providerCapabilities = (offers: ComputeOffers): ProviderCapabilities[] =>
  providerKinds.flatMap(({ capabilities }) => Object.values(capabilities).map(of => of(offers)))

/** Opens every provider and maps each of its names to it. */
export async function openProviders(parts: ProviderParts): Promise<ReadonlyMap<string, Provider>> {
  const opened = providerKinds.map(async ({ capabilities, open }) => {
    const provider = await open(parts)
    return Object.keys(capabilities).map((name): [string, Provider] => [name, { ...provider, name }])
  })
  return new Map((await Promise.all(opened)).flat())
}
