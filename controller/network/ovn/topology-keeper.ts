import { isDeepStrictEqual } from 'node:util'
import type { Knex } from 'knex'
import type { Logger } from '../../log/log.js'
import type { Desired, Owner } from '../../ovn/northbound/desired.js'
import { type EnsuredAll, ensureAll } from '../../ovn/northbound/ensure-all.js'
import type { Northbound } from '../../ovn/northbound/northbound.js'
import { desiredTopology, isOfNetworks, type OvnPlace } from './desired-topology.js'

/** OVN refuses the rows of some objects. All others are as the tables say. */
export class TopologyRefused extends AggregateError {
  override readonly name = 'TopologyRefused'

  constructor(refused: EnsuredAll['refused']) {
    const owners = refused.map(({ desired }) => desired.owner).join(', ')
    super(
      refused.map(({ error }) => error),
      `OVN refuses the rows of ${owners}: ${refused[0]?.error.message ?? ''}`,
    )
  }
}

export type TopologyKeeper = {
  /**
   * Makes the northbound rows of networks as the tables say. Spares owners whose rows nobody has changed.
   * @returns what `nb_cfg` became; null if nothing had to be changed
   * @throws OvsdbUnreachable, or TopologyRefused once all else is done
   */
  keep: (database: Knex) => Promise<number | null>
  stop: () => void
}

/** @param onChange called when others change rows of networks */
export function createTopologyKeeper(
  northbound: Northbound,
  place: OvnPlace,
  { log, onChange = () => undefined }: { log: Logger; onChange?: () => void },
): TopologyKeeper {
  let kept = new Map<Owner, Desired>()
  const touched = new Set<Owner>()
  const end = northbound.onOwners(owners => {
    const ours = [...owners].filter(isOfNetworks)
    for (const owner of ours) touched.add(owner)
    if (ours.length > 0) onChange()
  })

  return {
    keep: async database => {
      await northbound.client.ready(5_000)
      // Before the tables: rows that come meanwhile are not without an object.
      const present = northbound.owners().filter(isOfNetworks)
      const desired = new Map((await desiredTopology(database, place)).map(one => [one.owner, one]))
      for (const owner of present) if (!desired.has(owner)) desired.set(owner, { owner, generation: 0, rows: [] })
      const owners = [...desired.values()].filter(
        one => touched.has(one.owner) || !isDeepStrictEqual(kept.get(one.owner), one),
      )
      kept = withoutThese(desired, owners)
      for (const { owner } of owners) touched.delete(owner)
      const { change, differences, waiting, refused } = await ensureAll(northbound, owners)
      if (change !== null) log.info({ change, owners: owners.length, differences }, 'changed OVN')
      const left = new Set([...waiting, ...refused.map(({ desired }) => desired)])
      kept = withoutThese(desired, [...left])
      if (refused.length > 0) throw new TopologyRefused(refused)
      return change
    },
    stop: end,
  }
}

function withoutThese(desired: ReadonlyMap<Owner, Desired>, these: readonly Desired[]): Map<Owner, Desired> {
  const rest = new Map(desired)
  for (const { owner } of these) rest.delete(owner)
  return rest
}
