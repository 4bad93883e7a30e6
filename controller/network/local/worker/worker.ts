import type { Database } from '../../../database/connection.js'
import type { Logger } from '../../../log/log.js'
import type { PhysicalNetworks } from '../../physical-networks.js'
import { failuresOf, startRounds } from '../../rounds.js'
import type { Fabric } from '../fabric.js'
import { legsOf } from '../routers/plan-router.js'
import type { Router } from '../routers/router.js'
import { readFilters } from '../security-groups/read-filters.js'
import { providerNetworks } from '../uplinks/provider-networks.js'
import { createFilterKeeper } from './keep-filters.js'
import { createPortKeeper } from './keep-ports.js'
import { createRouterKeeper } from './keep-routers.js'
import { createUplinkKeeper } from './keep-uplinks.js'
import { readRouters } from './read-routers.js'
import { requireRightDatabase } from './right-database.js'

export type NetworkWorkerOptions = {
  /** Connected with the network service's role. */
  database: Database
  /** For the listening connection. */
  databaseUrl: string
  fabric: Fabric
  physicalNetworks: PhysicalNetworks
  /** Keeps the host's own interfaces on the built-in networks, and the rules around them. */
  keepHost: () => Promise<void>
  /** Whether this host has the routers with a leg on a network that spans hosts; another one has them otherwise. */
  hasSpanningRouters: () => Promise<boolean>
  log: Logger
}

/**
 * Carries out what the tables of the network service say, until stopped: reads it, compares it with the kernel, and
 * repairs what differs. A round follows every change of the tables, and every sweep. What fails is tried again in the
 * next one, and holds up nothing else. A crash leaves nothing that the next round does not find.
 */
export async function startNetworkWorker({
  database,
  databaseUrl,
  fabric,
  physicalNetworks,
  keepHost,
  hasSpanningRouters,
  log,
}: NetworkWorkerOptions): Promise<{ stop: () => Promise<void> }> {
  const filters = createFilterKeeper(fabric, log)
  const ports = createPortKeeper(fabric, log)
  const routers = createRouterKeeper(fabric, log)
  const uplinks = createUplinkKeeper(fabric, { physicalNetworks, log })

  const keepPorts = (): Promise<void> =>
    filters.keep(async () => {
      const desired = await readFilters(database)
      // A port that is not among these because it is gone is unplugged before it loses its filters.
      await ports
        .keep(database)
        .catch((error: unknown) => log.warn({ err: error }, 'keeping ports failed; trying again'))
      return desired
    })
  const ourRouters = async (): Promise<Router[]> => {
    const desired = await readRouters(database)
    const spanning = new Set((await providerNetworks(database)).map(({ id }) => id))
    const spans = (router: Router) => legsOf(router).some(({ port }) => spanning.has(port.networkId))
    return !desired.some(spans) || (await hasSpanningRouters()) ? desired : desired.filter(router => !spans(router))
  }
  const keepRouters = async (signal: AbortSignal, wake: () => void): Promise<void> => {
    const isDone = await routers.keep(await ourRouters(), signal)
    if (!isDone) wake()
  }

  let isRightDatabase = false
  const keepFabric = async (signal: AbortSignal, wake: () => void): Promise<PromiseSettledResult<unknown>[]> => {
    if (!isRightDatabase) await requireRightDatabase(database, fabric)
    isRightDatabase = true
    return Promise.allSettled([uplinks.keep(database), keepPorts(), keepRouters(signal, wake)])
  }

  return startRounds({
    databaseUrl,
    round: async (signal, wake) => {
      const [host, inFabric] = await Promise.allSettled([keepHost(), keepFabric(signal, wake)])
      return failuresOf([host, ...(inFabric.status === 'rejected' ? [inFabric] : inFabric.value)])
    },
    log,
  })
}
