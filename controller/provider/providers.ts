import type { ProviderCapabilities } from '../load-balancer/schema/capabilities.js'
import { amphoraCapabilities, octaviaCapabilities } from './amphora/capabilities.js'
import type { AmphoraProviderOptions } from './amphora/provider.js'
import { noopCapabilities } from './noop/capabilities.js'
import type { Provider } from './provider.js'

/** What the worker has for its providers; each takes what it needs. */
export type ProviderParts = AmphoraProviderOptions

type ProviderKind = {
  /** Of the provider, and of its other names. */
  capabilities: readonly ProviderCapabilities[]
  /** Loads its code: the API needs none of it. */
  open: (parts: ProviderParts) => Promise<Provider>
}

/** Every provider. A new one is a folder and its entry here. */
const providerKinds: readonly ProviderKind[] = [
  {
    capabilities: [amphoraCapabilities, octaviaCapabilities],
    open: async parts => (await import('./amphora/provider.js')).createAmphoraProvider(parts),
  },
  {
    capabilities: [noopCapabilities],
    open: async ({ network }) => (await import('./noop/provider.js')).createNoopProvider(network),
  },
]

/** What the API accepts for each provider, and what the worker can carry out. */
export const providerCapabilities: readonly ProviderCapabilities[] = providerKinds.flatMap(
  ({ capabilities }) => capabilities,
)

/** Every provider by each of its names. */
export async function openProviders(parts: ProviderParts): Promise<ReadonlyMap<string, Provider>> {
  const opened = providerKinds.map(async ({ capabilities, open }) => {
    const provider = await open(parts)
    return capabilities.map(({ name }): [string, Provider] => [name, { ...provider, name }])
  })
  return new Map((await Promise.all(opened)).flat())
}
