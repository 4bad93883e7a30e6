import type { ComputeDriverKind } from '../../compute/kind.js'
import type { ProviderCapabilities } from '../../load-balancer/schema/capabilities.js'
import { availabilityZoneKeys, flavorKeys } from '../../load-balancer/schema/profile-keys.js'
import { versionProblem } from './rendering/haproxy/tls.js'

const problemOfVersions = (versions: unknown) => versionProblem(Array.isArray(versions) ? versions : [])

/** Capabilities of the amphora provider with a compute driver. */
export const amphoraCapabilities = ({ offers }: Pick<ComputeDriverKind, 'offers'>): ProviderCapabilities => ({
  name: 'amphora',
  description: 'The Octavia Amphora driver.',
  supported: {
    loadbalancer: {
      vip_qos_policy_id: [],
    },
    // No driver with machines supports these.
    ...(offers === null
      ? {}
      : {
          flavor: { sriov_vip: [false], allow_member_sriov: [false] },
          availability_zone: { management_network: [] },
        }),
    listener: { tls_versions: problemOfVersions },
    pool: { tls_versions: problemOfVersions },
    l7policy: { listener_protocol: ['HTTP', 'TERMINATED_HTTPS'] },
  },
  usesMachines: true,
  datagramsAcrossIpVersions: false,
  flavorKeys: flavorKeys(offers === null ? {} : { compute_flavor: offers.flavors, amp_image_tag: [] }),
  availabilityZoneKeys: availabilityZoneKeys(
    offers === null ? {} : { volume_zone: [], ...(offers.zones === null ? {} : { compute_zone: offers.zones }) },
  ),
})

/** The same provider under the name that older clients use. */
export const octaviaCapabilities = (compute: Pick<ComputeDriverKind, 'offers'>): ProviderCapabilities => ({
  ...amphoraCapabilities(compute),
  name: 'octavia',
  description: 'Deprecated alias of the Octavia Amphora driver.',
  aliasOf: 'amphora',
})
