import * as z from 'zod'
import { attribute } from '../body.js'
import { conflict, invalidInput } from '../neutron-error.js'

const NETWORK_TYPES = ['local', 'flat', 'vlan'] as const
type NetworkType = (typeof NETWORK_TYPES)[number]

/** Where a network leads, as the columns of its row. */
export type ProviderColumns = {
  network_type: NetworkType
  physical_network: string | null
  segmentation_id: number | null
}

export const providerAttributes = {
  'provider:network_type': z.enum(NETWORK_TYPES, {
    error: issue => `${JSON.stringify(issue.input)} is not in ['${NETWORK_TYPES.join("', '")}']`,
  }),
  'provider:physical_network': attribute.text.nullable(),
  'provider:segmentation_id': attribute.integer(1, 4094).nullable(),
}

export const PROVIDER_ATTRIBUTES = Object.keys(providerAttributes) as (keyof typeof providerAttributes)[]

type Requested = { [Name in keyof typeof providerAttributes]?: z.output<(typeof providerAttributes)[Name]> | undefined }

/**
 * The provider attributes of a new network; without a request, it stays on this host.
 * @param known the names of the physical networks of this deployment
 * @throws NeutronError 400 if they do not go together or the physical network is unknown
 */
export function chooseProvider(requested: Requested, known: readonly string[]): ProviderColumns {
  const {
    'provider:network_type': given,
    'provider:physical_network': physical_network = null,
    'provider:segmentation_id': segmentation_id = null,
  } = requested
  if (given === undefined && (physical_network !== null || segmentation_id !== null)) {
    throw invalidInput('network_type required')
  }
  const network_type = given ?? 'local'
  const needs = { physical_network: network_type !== 'local', segmentation_id: network_type === 'vlan' }
  for (const [name, value] of Object.entries({ physical_network, segmentation_id })) {
    const needed = needs[name as keyof typeof needs]
    if (needed && value === null) throw invalidInput(`${name} required for ${network_type} provider network`)
    if (!needed && value !== null) throw invalidInput(`${name} prohibited for ${network_type} provider network`)
  }
  if (physical_network !== null && !known.includes(physical_network)) {
    throw invalidInput(`physical_network '${physical_network}' unknown for ${network_type} provider network`)
  }
  return { network_type, physical_network, segmentation_id }
}

/** The error for a physical network or VLAN that another network has. */
export const providerInUse = ({ network_type, physical_network, segmentation_id }: ProviderColumns) =>
  network_type === 'flat'
    ? conflict('FlatNetworkInUse', `Unable to create the flat network. Physical network ${physical_network} is in use.`)
    : conflict(
        'VlanIdInUse',
        `Unable to create the network. The VLAN ${segmentation_id} on physical network ${physical_network} is in use.`,
      )
