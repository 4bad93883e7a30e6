import type { ProfileKey } from './capabilities.js'
import { isObject } from './values.js'

/** Names that a provider accepts for some keys; other keys accept any name. */
type Known<K extends string> = Readonly<Partial<Record<K, readonly string[]>>>

/** Octavia's own words, which its test suite compares. */
const TOPOLOGY =
  'The load balancer topology. One of: SINGLE - One amphora per load balancer. ACTIVE_STANDBY - Two amphora per load balancer.'
const COMPUTE_ZONE = 'The compute availability zone.'

/** The keys of flavor data. */
export const flavorKeys = (known: Known<'compute_flavor' | 'amp_image_tag'> = {}): ProfileKey[] => [
  name('loadbalancer_topology', TOPOLOGY, ['SINGLE', 'ACTIVE_STANDBY']),
  name('compute_flavor', 'Compute flavor of the amphorae.', known.compute_flavor),
  name('amp_image_tag', 'Tag of the amphora image.', known.amp_image_tag),
  switchKey('sriov_vip', 'Whether the VIP uses an SR-IOV virtual function.'),
  switchKey('allow_member_sriov', 'Whether members may use SR-IOV virtual functions.'),
]

/** The keys of availability zone data. */
export const availabilityZoneKeys = (known: Known<'compute_zone' | 'volume_zone'> = {}): ProfileKey[] => [
  name('compute_zone', COMPUTE_ZONE, known.compute_zone),
  name('volume_zone', 'Volume zone of the amphorae.', known.volume_zone),
  name('management_network', 'Id of the management network of the amphorae.'),
  {
    name: 'valid_vip_networks',
    description: 'Ids of the networks that VIPs may use.',
    check: value => (isTexts(value) ? null : 'Value should be a list of strings'),
  },
]

function name(key: string, description: string, known?: readonly string[]): ProfileKey {
  const check = (value: unknown) => {
    if (typeof value !== 'string' || value === '') return 'Value should be a string'
    if (known === undefined || known.includes(value)) return null
    return known.length === 0 ? 'The provider offers no value' : `Value should be one of: ${known.join(', ')}`
  }
  return { name: key, description, check }
}

function switchKey(key: string, description: string): ProfileKey {
  return { name: key, description, check: value => (typeof value === 'boolean' ? null : 'Value should be a boolean') }
}

export const isTexts = (value: unknown): value is string[] =>
  Array.isArray(value) && value.every(item => typeof item === 'string')

/** Escapes that PostgreSQL rejects in JSON: NUL and unpaired surrogates. */
const UNSTORABLE = /\\u(0000|d[89a-f])/i

/** @returns null when the text is not a JSON object */
export function readProfileData(text: string): Readonly<Record<string, unknown>> | null {
  if (UNSTORABLE.test(text)) return null
  try {
    const data: unknown = JSON.parse(text)
    return isObject(data) ? data : null
  } catch {
    return null
  }
}
