import type { ProviderCapabilities } from '../../load-balancer/schema/capabilities.js'
import { availabilityZoneKeys, flavorKeys } from '../../load-balancer/schema/profile-keys.js'

/** Capabilities of the noop provider, which accepts everything. */
export const noopCapabilities: ProviderCapabilities = {
  name: 'noop_driver',
  description: 'Accepts every load balancer and implements none.',
  supported: {},
  usesMachines: false,
  acrossIpVersions: 'everything',
  flavorKeys: flavorKeys(),
  availabilityZoneKeys: availabilityZoneKeys(),
}
