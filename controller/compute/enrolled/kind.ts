import * as z from 'zod'
import { ComputeUnavailable } from '../driver.js'
import type { ComputeDriverKind } from '../kind.js'
import { createEnrolledDriver } from './driver.js'

const ownSettings = z.object({
  driver: z.string(),
  flavors: z.record(z.string(), z.object({ driver: z.string() })),
})

/** Hosts that run already, and that an operator has enrolled. */
export const enrolledKind: ComputeDriverKind = {
  name: 'enrolled',
  runsMachines: true,
  options: {},
  // Its zones are those of the hosts, so where it is used, availability zones may name any.
  isUsed: settings => {
    const { driver, flavors } = ownSettings.parse(settings)
    return [driver, ...Object.values(flavors).map(flavor => flavor.driver)].includes('enrolled')
  },
  offers: { flavors: ['enrolled'], zones: null },
  size: () => ({ memoryMiB: null, cores: null }),
  images: 'none',
  ownsManagement: true,
  startSeconds: 60,
  programs: [],
  check: async () => [],
  open: async ({ database, network, enrolled, log }) => {
    if (database === null || network === null || enrolled === null) {
      throw new ComputeUnavailable('Enrolled hosts are reached with the database and the keys of the controller only.')
    }
    return createEnrolledDriver({ database, network, ...enrolled, log })
  },
}
