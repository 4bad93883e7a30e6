import { isDeepStrictEqual } from 'node:util'
import type { Logger } from '../../../log/log.js'
import type { Fabric } from '../fabric.js'
import { type AppliedFilters, applyFilters, filterState, hasFilters } from '../security-groups/apply.js'
import type { Filters } from '../security-groups/filters.js'

/** How often filters that nobody changed are compared with the kernel. */
const LOOK_MS = 15_000

export type FilterKeeper = {
  /** Makes the kernel have the filters that it reads, and no others. Spares what is as it was left. */
  keep: (read: () => Promise<Filters>) => Promise<void>
}

/** @param now milliseconds of a clock that never goes back */
export function createFilterKeeper(fabric: Fabric, log: Logger, now = () => performance.now()): FilterKeeper {
  let last: { filters: Filters; applied: AppliedFilters; lookedAt: number } | null = null

  /** Nothing was ever filtered on this host. */
  let isUnused = false

  /** Null if nothing is to be done. */
  const reasonFor = async (filters: Filters): Promise<string | null> => {
    if (last === null) {
      isUnused &&= filters.filters.length === 0
      if (isUnused) return null
      isUnused = filters.filters.length === 0 && !(await hasFilters(fabric.namespace))
      return isUnused ? null : 'start'
    }
    if (now() - last.lookedAt >= LOOK_MS) {
      if ((await filterState(fabric.namespace)) !== last.applied.state) {
        last = null
        return 'repaired'
      }
      last.lookedAt = now()
    }
    return isDeepStrictEqual(last.filters, filters) ? null : 'changed'
  }

  return {
    keep: async read => {
      const reason = await reasonFor(await read())
      if (reason === null) return
      const known = last?.applied ?? null
      last = null
      const started = now()
      await fabric.ensure()
      const { filters, applied } = await applyFilters(fabric.namespace, read, known)
      last = { filters, applied, lookedAt: now() }
      const milliseconds = Math.round(now() - started)
      log.info({ ports: filters.filters.length, reason, milliseconds }, 'security groups are in effect')
    },
  }
}
