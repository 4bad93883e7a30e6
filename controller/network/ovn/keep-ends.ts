import type { Knex } from 'knex'
import type { Logger } from '../../log/log.js'
import type { Fabric } from '../local/fabric.js'
import { readGuards } from '../local/worker/read-ports.js'

/** How often what is plugged in is compared with the tables. */
const LOOK_MS = 15_000

export type EndsKeeper = {
  /** Unplugs interfaces whose port is gone, and lets the switch forget those that are gone themselves. */
  keep: (database: Knex) => Promise<void>
}

/** @param now milliseconds of a clock that never goes back */
export function createEndsKeeper(fabric: Fabric, log: Logger, now = () => performance.now()): EndsKeeper {
  let lookedAt = Number.NEGATIVE_INFINITY
  return {
    keep: async database => {
      if (now() - lookedAt < LOOK_MS) return
      lookedAt = now()
      // The kernel first: the row of whatever is plugged in was there before.
      const { interfaces } = await fabric.inventory()
      const left = await fabric.endsLeft()
      const guards = interfaces.length === 0 ? [] : await readGuards(database, interfaces)
      const existing = new Set(guards.map(({ name }) => name))
      const gone = interfaces.filter(name => !existing.has(name))
      for (const name of gone) await fabric.detach(name.slice(1))
      await fabric.forgetEnds(left)
      if (gone.length > 0) log.info({ interfaces: gone }, 'unplugged ports that no longer exist')
    },
  }
}
