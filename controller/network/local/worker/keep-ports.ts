import { isDeepStrictEqual } from 'node:util'
import type { Knex } from 'knex'
import type { Logger } from '../../../log/log.js'
import type { Fabric } from '../fabric.js'
import { bridgeOf } from '../names.js'
import { type GuardedInterface, guardInterfaces, guardState } from '../source-guard.js'
import { readGuards, readNetworkIds } from './read-ports.js'

/** How often the rules of ports that nobody changed are compared with the kernel. */
const LOOK_MS = 15_000

export type PortKeeper = {
  /**
   * Lets interfaces send as their ports' rows say, and unplugs those whose port is gone. Removes what ports and networks
   * have left behind. Spares what is as it was left.
   * @throws AggregateError with what failed, once all else is done
   */
  keep: (database: Knex) => Promise<void>
}

/** @param now milliseconds of a clock that never goes back */
export function createPortKeeper(fabric: Fabric, log: Logger, now = () => performance.now()): PortKeeper {
  let applied = new Map<string, GuardedInterface>()
  /** Null as a state: the next look writes all rules again. */
  let looked: { state: string | null; at: number } | null = null

  const guard = async (desired: readonly GuardedInterface[], isDue: boolean): Promise<void> => {
    const isAsLeft = !isDue || (looked !== null && (await guardState(fabric.namespace)) === looked.state)
    const wrong = isAsLeft ? desired.filter(each => !isDeepStrictEqual(applied.get(each.name), each)) : desired
    applied = new Map(desired.filter(each => !wrong.includes(each)).map(each => [each.name, each]))
    if (wrong.length > 0) await guardAll(fabric.namespace, wrong)
    applied = new Map(desired.map(each => [each.name, each]))
    if (isDue) looked = { state: await guardState(fabric.namespace), at: now() }
    else if (wrong.length > 0 && looked !== null) looked.state = null
  }

  return {
    keep: async database => {
      const isDue = looked === null || now() - looked.at >= LOOK_MS
      // The kernel first: the row of whatever is plugged in was there before.
      const { interfaces, idleBridges } = await fabric.inventory()
      const left = isDue ? await fabric.interfacesLeft() : []
      const names = [...interfaces, ...left]
      const guards = names.length === 0 ? [] : await readGuards(database, names)
      const existing = new Set(guards.map(({ name }) => name))
      const gone = names.filter(name => !existing.has(name))
      const networks = new Set((idleBridges.length === 0 ? [] : await readNetworkIds(database)).map(bridgeOf))
      const bridges = idleBridges.filter(name => !networks.has(name))
      const plugged = guards.filter(({ name }) => interfaces.includes(name))
      if (isDue && plugged.length === 0) looked = { state: null, at: now() }
      const results = await Promise.allSettled([
        ...gone.map(name => fabric.detach(name.slice(1))),
        ...(plugged.length === 0 ? [] : [guard(plugged, isDue)]),
        fabric.removeBridges(bridges),
      ])
      const unplugged = gone.filter((_, at) => results[at]?.status === 'fulfilled')
      if (unplugged.length > 0) log.info({ interfaces: unplugged }, 'unplugged ports that no longer exist')
      const errors = results.flatMap(result => (result.status === 'rejected' ? [result.reason as unknown] : []))
      if (errors.length > 0) throw new AggregateError(errors, 'keeping ports failed')
    },
  }
}

/** One transaction, or one for each if that fails: no port holds up the others. */
async function guardAll(namespace: string, guards: readonly GuardedInterface[]): Promise<void> {
  try {
    await guardInterfaces(namespace, guards)
  } catch (error) {
    if (guards.length === 1) throw error
    const results = await Promise.allSettled(guards.map(each => guardInterfaces(namespace, [each])))
    const errors = results.flatMap(result => (result.status === 'rejected' ? [result.reason as unknown] : []))
    if (errors.length > 0) throw new AggregateError(errors, `the rules of ${errors.length} ports failed`)
  }
}
