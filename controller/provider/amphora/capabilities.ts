import type { ComputeOffers } from '../../compute/offers.js'
import type { ProfileData, ProviderCapabilities } from '../../load-balancer/schema/capabilities.js'
import { availabilityZoneKeys, flavorKeys } from '../../load-balancer/schema/profile-keys.js'
import { versionProblem } from './rendering/haproxy/tls.js'

const problemOfVersions = (versions: unknown) => versionProblem(Array.isArray(versions) ? versions : [])

const nameIn = (data: ProfileData, key: string): string | null => {
  const value = data[key]
  return typeof value === 'string' ? value : null
}

/** Capabilities of the amphora provider with the machines that there are. */
export const amphoraCapabilities = (offers: ComputeOffers): ProviderCapabilities => ({
  name: 'amphora',
  description: 'The Octavia Amphora driver.',
  supported: {
    loadbalancer: {
      vip_qos_policy_id: [],
    },
    // No driver with machines supports these.
    ...(offers.runsMachines
      ? {
          flavor: { sriov_vip: [false], allow_member_sriov: [false] },
          availability_zone: { management_network: [] },
        }
      : {}),
    listener: { tls_versions: problemOfVersions },
    pool: { tls_versions: problemOfVersions },
    l7policy: { listener_protocol: ['HTTP', 'TERMINATED_HTTPS'] },
  },
  usesMachines: true,
  acrossIpVersions: 'streams',
  flavorKeys: flavorKeys({ compute_flavor: () => offers.flavors, amp_image_tag: offers.imageTags }),
  availabilityZoneKeys: availabilityZoneKeys({
    compute_zone: () => offers.zones,
    // Amphorae have no volumes: what they keep is on their own disks.
    volume_zone: () => (offers.runsMachines ? [] : null),
  }),
  machineProblem: (flavorData, zoneData) =>
    offers.problem({
      flavor: nameIn(flavorData, 'compute_flavor'),
      imageTag: nameIn(flavorData, 'amp_image_tag'),
      zone: nameIn(zoneData, 'compute_zone'),
    }),
})

/** The same provider under the name that older clients use. */
export const octaviaCapabilities = (offers: ComputeOffers): ProviderCapabilities => ({
  ...amphoraCapabilities(offers),
  name: 'octavia',
  description: 'Deprecated alias of the Octavia Amphora driver.',
  aliasOf: 'amphora',
})
