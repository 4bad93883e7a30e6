import type { OfferedProvider } from '../../load-balancer/schema/capabilities.js'
import { availabilityZoneKeys, flavorKeys } from '../../load-balancer/schema/profile-keys.js'

/** What the API offers for the provider that accepts everything. */
export const noopOffer: OfferedProvider = {
  name: 'noop_driver',
  description: 'Accepts every load balancer and carries nothing out.',
  capabilities: {},
  usesMachines: false,
  datagramsAcrossIpVersions: true,
  flavorKeys: flavorKeys(),
  availabilityZoneKeys: availabilityZoneKeys(),
}
