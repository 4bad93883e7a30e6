import { isDeepStrictEqual } from 'node:util'
import type { Knex } from 'knex'
import type { Logger } from '../../../log/log.js'
import type { PhysicalNetworks } from '../../physical-networks.js'
import type { Fabric } from '../fabric.js'
import type { Problem, ProviderNetwork } from '../uplinks/plan.js'
import { providerNetworks } from '../uplinks/provider-networks.js'
import { Uplinks } from '../uplinks/uplinks.js'

/** How often uplinks of networks that nobody changed are compared with the kernel. */
const LOOK_MS = 10_000

/**
 * Keeps networks joined to their physical networks. A problem is logged when it appears and when it is gone.
 * @param now milliseconds of a clock that never goes back
 */
export function createUplinkKeeper(
  fabric: Fabric,
  { physicalNetworks, log }: { physicalNetworks: PhysicalNetworks; log: Logger },
  now = () => performance.now(),
): { keep: (database: Knex) => Promise<void> } {
  const uplinks = new Uplinks(fabric)
  let last: { networks: readonly ProviderNetwork[]; problems: readonly Problem[]; lookedAt: number } | null = null
  return {
    keep: async database => {
      const networks = await providerNetworks(database)
      const isSame = last !== null && isDeepStrictEqual(last.networks, networks)
      if (last !== null && isSame && now() - last.lookedAt < LOOK_MS) return
      const problems = await uplinks.ensure(() => providerNetworks(database), physicalNetworks)
      const before = last?.problems ?? []
      last = { networks, problems, lookedAt: now() }
      if (isDeepStrictEqual(before, problems)) return
      for (const problem of problems) log.warn(problem, 'a network does not lead to its physical network')
      if (problems.length === 0) log.info('all networks lead to their physical networks again')
    },
  }
}
