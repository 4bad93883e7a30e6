import type { OfferedProvider } from '../load-balancer/schema/capabilities.js'
import { amphoraOffer, octaviaOffer } from './amphora/capabilities.js'
import type { AmphoraProviderOptions } from './amphora/provider.js'
import { noopOffer } from './noop/capabilities.js'
import type { Provider } from './provider.js'

/** What the worker has for its providers; each takes what it needs. */
export type ProviderParts = AmphoraProviderOptions

type ProviderKind = {
  /** What the API offers: the provider, and its other names. */
  offers: readonly OfferedProvider[]
  /** Loads its code: the API needs none of it. */
  open: (parts: ProviderParts) => Promise<Provider>
}

/** Every provider. A new one is a folder and its entry here. */
const providerKinds: readonly ProviderKind[] = [
  {
    offers: [amphoraOffer, octaviaOffer],
    open: async parts => (await import('./amphora/provider.js')).createAmphoraProvider(parts),
  },
  {
    offers: [noopOffer],
    open: async ({ network }) => (await import('./noop/provider.js')).createNoopProvider(network),
  },
]

/** What the API offers; the worker carries each of them out. */
export const offeredProviders: readonly OfferedProvider[] = providerKinds.flatMap(({ offers }) => offers)

/** Every provider by each of its names. */
export async function openProviders(parts: ProviderParts): Promise<ReadonlyMap<string, Provider>> {
  const opened = providerKinds.map(async ({ offers, open }) => {
    const provider = await open(parts)
    return offers.map(({ name }): [string, Provider] => [name, { ...provider, name }])
  })
  return new Map((await Promise.all(opened)).flat())
}
