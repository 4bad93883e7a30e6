import type { ComputeOffers } from '../compute/offers.js'
import type { ProviderCapabilities } from '../load-balancer/schema/capabilities.js'
import type { Datapath } from '../network/ovn/own/daemons.js'
import { amphoraCapabilities, octaviaCapabilities } from './amphora/capabilities.js'
import type { AmphoraProviderOptions } from './amphora/provider.js'
import { noopCapabilities } from './noop/capabilities.js'
import { ovnCapabilities } from './ovn/capabilities.js'
import type { OvnProviderOptions } from './ovn/provider.js'
import type { Provider } from './provider.js'

/** What the worker passes to providers. Each uses what it needs. */
export type ProviderParts = AmphoraProviderOptions & {
  /** Null without networks in OVN. */
  ovn: Pick<OvnProviderOptions, 'networkDatabase' | 'northbound' | 'southbound' | 'health' | 'instance'> | null
}

/** What the API knows of the machines and networks that there are. */
export type ProviderOffers = {
  compute: ComputeOffers
  /** The datapath of OVN's switches; null without networks in OVN. */
  ovn: { datapath: Datapath | null } | null
}

type ProviderKind = {
  /** One entry per name of the provider, with what it supports where Krater runs; null if it cannot be used there. */
  capabilities: Readonly<Record<string, (offers: ProviderOffers) => ProviderCapabilities | null>>
  /** Imports the provider's code, which the API does not need. Null if it cannot be used. */
  open: (parts: ProviderParts) => Promise<Provider | null>
}

/** Every provider. To add one, create a folder and add an entry here. */
const providerKinds: readonly ProviderKind[] = [
  {
    capabilities: {
      amphora: ({ compute }) => amphoraCapabilities(compute),
      octavia: ({ compute }) => octaviaCapabilities(compute),
    },
    open: async parts => (await import('./amphora/provider.js')).createAmphoraProvider(parts),
  },
  {
    capabilities: { ovn: ({ ovn }) => (ovn === null ? null : ovnCapabilities(ovn.datapath)) },
    open: async ({ ovn, ...parts }) =>
      ovn === null ? null : (await import('./ovn/provider.js')).createOvnProvider({ ...parts, ...ovn }),
  },
  {
    capabilities: { noop_driver: () => noopCapabilities },
    open: async ({ network }) => (await import('./noop/provider.js')).createNoopProvider(network),
  },
]

export const PROVIDER_NAMES: readonly string[] = providerKinds.flatMap(({ capabilities }) => Object.keys(capabilities))

/** What each provider supports on the machines that there are: the API accepts nothing else. */
export const providerCapabilities = (offers: ProviderOffers): ProviderCapabilities[] =>
  providerKinds.flatMap(({ capabilities }) =>
    Object.values(capabilities)
      .map(of => of(offers))
      .filter(one => one !== null),
  )

/** Opens every provider and maps each of its names to it. */
export async function openProviders(parts: ProviderParts): Promise<ReadonlyMap<string, Provider>> {
  const opened = providerKinds.map(async ({ capabilities, open }) => {
    const provider = await open(parts)
    if (provider === null) return []
    return Object.keys(capabilities).map((name): [string, Provider] => [name, { ...provider, name }])
  })
  return new Map((await Promise.all(opened)).flat())
}
