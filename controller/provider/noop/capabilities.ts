import type { ProviderCapabilities } from '../../load-balancer/schema/capabilities.js'
import { availabilityZoneKeys, flavorKeys } from '../../load-balancer/schema/profile-keys.js'

/** Of the provider that accepts everything. */
export const noopCapabilities: ProviderCapabilities = {
  name: 'noop_driver',
  description: 'Accepts every load balancer and carries nothing out.',
  supported: {},
  usesMachines: false,
  datagramsAcrossIpVersions: true,
  flavorKeys: flavorKeys(),
  availabilityZoneKeys: availabilityZoneKeys(),
}
