import type { ProfileKey } from './capabilities.js'
import { isObject } from './values.js'

/** Names that exist for some keys at the moment; null, and for other keys: any. */
type Known<K extends string> = Readonly<Partial<Record<K, () => readonly string[] | null>>>

/** Octavia's own words, which its test suite compares. */
const TOPOLOGY =
  'The load balancer topology. One of: SINGLE - One amphora per load balancer. ACTIVE_STANDBY - Two amphora per load balancer.'
const COMPUTE_ZONE = 'The compute availability zone.'

const TOPOLOGIES = ['SINGLE', 'ACTIVE_STANDBY']

const topology: ProfileKey = {
  name: 'loadbalancer_topology',
  description: TOPOLOGY,
  check: value => (TOPOLOGIES.some(one => one === value) ? null : `Value should be one of: ${TOPOLOGIES.join(', ')}`),
}

/** The keys of flavor data. */
export const flavorKeys = (known: Known<'compute_flavor' | 'amp_image_tag'> = {}): ProfileKey[] => [
  topology,
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

function name(key: string, description: string, known?: () => readonly string[] | null): ProfileKey {
  return {
    name: key,
    description,
    check: value => (typeof value === 'string' && value !== '' ? null : 'Value should be a string'),
    missing: value => {
      const names = known?.() ?? null
      if (names === null || names.some(one => one === value)) return null
      return names.length === 0
        ? `there is no ${value}, and nothing else to choose`
        : `there is no ${value}, only ${names.join(', ')}`
    },
  }
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
