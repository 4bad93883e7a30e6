import { setTimeout as sleep } from 'node:timers/promises'
import type { Database } from '../../../database/connection.js'
import { isDatabaseAway } from '../../../database/database-away.js'
import type { Logger } from '../../../log/log.js'
import { listenForWakeUps } from '../../../queue/wake-up.js'
import type { PhysicalNetworks } from '../../physical-networks.js'
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

/** Notified by triggers on the tables that the worker reads. */
const CHANNEL = 'krater_network'
/** Longest pause between two rounds without a wake-up. */
const SWEEP_MS = 5_000

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
  const stopping = new AbortController()
  let wake = (): void => undefined
  let isWoken = false

  const report = (error: unknown): void => {
    const what = isDatabaseAway(error) ? 'database away; trying again' : 'a round failed; trying again'
    if (!stopping.signal.aborted) log.warn({ err: error }, what)
  }

  const keepPorts = (): Promise<void> =>
    filters.keep(async () => {
      const desired = await readFilters(database)
      // A port that is not among these because it is gone is unplugged before it loses its filters.
      await ports.keep(database).catch(report)
      return desired
    })
  const ourRouters = async (): Promise<Router[]> => {
    const desired = await readRouters(database)
    const spanning = new Set((await providerNetworks(database)).map(({ id }) => id))
    const spans = (router: Router) => legsOf(router).some(({ port }) => spanning.has(port.networkId))
    return !desired.some(spans) || (await hasSpanningRouters()) ? desired : desired.filter(router => !spans(router))
  }
  const keepRouters = async (): Promise<void> => {
    const isDone = await routers.keep(await ourRouters(), stopping.signal)
    if (!isDone) isWoken = true
  }

  let isRightDatabase = false
  const keepFabric = async (): Promise<PromiseSettledResult<unknown>[]> => {
    if (!isRightDatabase) await requireRightDatabase(database, fabric)
    isRightDatabase = true
    return Promise.allSettled([uplinks.keep(database), keepPorts(), keepRouters()])
  }

  const round = async (): Promise<void> => {
    const [host, inFabric] = await Promise.allSettled([keepHost(), keepFabric()])
    const results = [host, ...(inFabric.status === 'rejected' ? [inFabric] : inFabric.value)]
    for (const result of results) if (result.status === 'rejected') report(result.reason)
  }

  const pause = async (): Promise<void> => {
    const timeout = new AbortController()
    wake = () => timeout.abort()
    if (!isWoken && !stopping.signal.aborted)
      await sleep(SWEEP_MS, undefined, { signal: timeout.signal }).catch(() => undefined)
    isWoken = false
  }

  const rounds = async (): Promise<void> => {
    while (!stopping.signal.aborted) {
      await round()
      await pause()
    }
  }

  const onWake = () => {
    isWoken = true
    wake()
  }
  const wakeUps = await listenForWakeUps({ databaseUrl, channel: CHANNEL, onWake, log })
  const done = rounds()
  return {
    stop: async () => {
      stopping.abort()
      wake()
      await wakeUps.stop()
      await done
    },
  }
}
