import type { ComputeDriver } from '../compute/driver.js'
import type { PlacementRules } from '../compute/placement.js'
import type { Database } from '../database/connection.js'
import { judge, look, type Watch } from '../hosts/judge.js'
import {
  adoptMachines,
  declareBack,
  declareGone,
  goneSince,
  isProcessAlive,
  lostOf,
  sightOthers,
} from '../hosts/move.js'
import { forgetRemovedHosts } from '../hosts/registry.js'
import type { Logger } from '../log/log.js'
import type { Answer } from '../network/driver.js'

export type HostWatch = {
  database: Database
  compute: Pick<ComputeDriver, 'list' | 'delete'>
  /** This controller host. */
  hostId: string
  /** Whether VIPs of another controller host answer. */
  lookAtVips: (hostId: string) => Promise<Answer>
  log: Logger
}

/**
 * Looks at the other controller hosts, and declares those gone that are.
 * @param before the result of the last call
 * @param now milliseconds of a clock that never goes back
 * @returns the argument for the next call
 */
export async function watchHosts(
  { database, hostId, lookAtVips, log }: Omit<HostWatch, 'compute'>,
  before: Watch | null,
  now = performance.now(),
): Promise<Watch> {
  const sightings = await sightOthers(database, hostId)
  const isListening = sightings.length > 0 && (await isProcessAlive(database, hostId, 'health-manager'))
  const watch = look(before, { now, sightings, isListening })
  for (const { id, sign } of sightings) {
    if (judge(watch, id) !== 'gone' || (await lookAtVips(id)) !== 'silent') continue
    if (await declareGone(database, id, sign)) {
      log.warn({ host: id }, 'a controller host is gone: other hosts rebuild its load balancers')
    }
  }
  await forgetRemovedHosts(database)
  return watch
}

/**
 * After others have declared this host gone, removes the machines that it has lost. Until that is done, and while others
 * work on load balancers whose machines are still here, its workers claim nothing: call it again.
 * @returns how many machines it removed
 * @throws if this host cannot tell which machines it has
 */
export async function returnHost({ database, compute, hostId, log }: Omit<HostWatch, 'lookAtVips'>): Promise<number> {
  const goneAt = await goneSince(database, hostId)
  if (goneAt === null) return 0
  const machines = (await compute.list({ isComplete: true })).map(({ amphoraId }) => amphoraId)
  const lost = await lostOf(database, hostId, machines)
  for (const amphoraId of lost) await compute.delete(amphoraId)
  const kept = machines.filter(id => !lost.includes(id))
  const isBack = await declareBack(database, hostId, { goneAt, amphoraIds: kept })
  // A host that was removed stays gone, and comes here again.
  if (isBack || lost.length > 0)
    log.warn(
      { goneAt, isBack, machines: lost },
      'this host was held to be gone; it removed the machines that it has lost',
    )
  return lost.length
}

/** Takes over what an earlier version, which knew no hosts, has left on this one; then returns if others held it to be gone. */
export async function startHost(watch: Omit<HostWatch, 'lookAtVips'>, { drivers }: PlacementRules): Promise<void> {
  const { database, compute, hostId, log } = watch
  const unbound = [...drivers].filter(([, { ownsManagement }]) => ownsManagement).map(([name]) => name)
  const machines = (await compute.list()).filter(({ driver }) => !unbound.includes(driver))
  await adoptMachines(database, hostId, { amphoraIds: machines.map(({ amphoraId }) => amphoraId), unbound })
  await returnHost(watch).catch((error: unknown) => {
    log.warn({ err: error }, 'looking for machines that this host has lost failed; housekeeping retries')
  })
}
