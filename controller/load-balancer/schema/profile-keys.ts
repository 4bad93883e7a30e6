import type { ProfileKey } from './capabilities.js'
import { isObject } from './values.js'

/** Names that a provider knows for some of the keys; a key that is not named takes any. */
type Known<K extends string> = Readonly<Partial<Record<K, readonly string[]>>>

/** The keys of flavor data. */
export const flavorKeys = (known: Known<'compute_flavor' | 'amp_image_tag'> = {}): ProfileKey[] => [
  name(
    'loadbalancer_topology',
    'How many amphorae carry the load balancer: SINGLE is one, ACTIVE_STANDBY a pair of which one takes over from the other.',
    ['SINGLE', 'ACTIVE_STANDBY'],
  ),
  name('compute_flavor', 'The size of the amphorae, as the compute driver calls it.', known.compute_flavor),
  name('amp_image_tag', 'The tag of the image that the amphorae are made from.', known.amp_image_tag),
  truth('sriov_vip', 'Whether the VIP is on an SR-IOV virtual function.'),
  truth('allow_member_sriov', 'Whether members may be reached over SR-IOV virtual functions.'),
]

/** The keys of availability zone data. */
export const availabilityZoneKeys = (known: Known<'compute_zone' | 'volume_zone'> = {}): ProfileKey[] => [
  name('compute_zone', 'Where the amphorae run, as the compute driver calls it.', known.compute_zone),
  name('volume_zone', 'Where the volumes of the amphorae are.', known.volume_zone),
  name('management_network', 'Id of the network over which the controller reaches the amphorae.'),
  {
    name: 'valid_vip_networks',
    description: 'Ids of the networks that a VIP may be on.',
    check: value => (isTexts(value) ? null : 'Value should be a list of strings'),
  },
]

function name(key: string, description: string, known?: readonly string[]): ProfileKey {
  const check = (value: unknown) => {
    if (typeof value !== 'string' || value === '') return 'Value should be a string'
    if (known === undefined || known.includes(value)) return null
    return known.length === 0 ? 'There is nothing to choose from' : `Value should be one of: ${known.join(', ')}`
  }
  return { name: key, description, check }
}

function truth(key: string, description: string): ProfileKey {
  return { name: key, description, check: value => (typeof value === 'boolean' ? null : 'Value should be a boolean') }
}

export const isTexts = (value: unknown): value is string[] =>
  Array.isArray(value) && value.every(item => typeof item === 'string')

/** Escapes of characters that PostgreSQL does not take in JSON: NUL and halves of surrogate pairs. */
const UNSTORABLE = /\\u(0000|d[89a-f])/i

/** @returns null when the text holds no JSON object */
export function readProfileData(text: string): Readonly<Record<string, unknown>> | null {
  if (UNSTORABLE.test(text)) return null
  try {
    const data: unknown = JSON.parse(text)
    return isObject(data) ? data : null
  } catch {
    return null
  }
}
