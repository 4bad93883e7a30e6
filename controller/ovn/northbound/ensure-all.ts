import { TransactionRefused } from '../../ovsdb/errors.js'
import type { Desired } from './desired.js'
import type { Northbound } from './northbound.js'

/** Owners in one transaction: the database does nothing else meanwhile. */
const AT_ONCE = 100
/** Rows may wait for those that hold them: ports for switches, those for nothing. */
const MAX_PASSES = 3

/** What `ensureAll` has done. */
export type EnsuredAll = {
  /** What `nb_cfg` became; null if nothing had to be changed. */
  change: number | null
  differences: number
  /** Owners some of whose rows wait for rows that are not there. */
  waiting: Desired[]
  /** Owners whose rows OVN refuses, and why. */
  refused: { desired: Desired; error: TransactionRefused }[]
}

/**
 * Makes the rows of many owners as they want them. An owner whose rows OVN refuses holds up no other.
 * @throws OvsdbUnreachable
 */
export async function ensureAll(northbound: Northbound, owners: readonly Desired[]): Promise<EnsuredAll> {
  const done: EnsuredAll = { change: null, differences: 0, waiting: [...owners], refused: [] }

  const ensure = async (some: readonly Desired[]): Promise<void> => {
    try {
      const { change, differences, missingHolders } = await northbound.ensure(some)
      done.change = change ?? done.change
      done.differences += differences.length
      if (missingHolders.length > 0) done.waiting.push(...some)
    } catch (error) {
      if (!(error instanceof TransactionRefused)) throw error
      const [only] = some
      if (only !== undefined && some.length === 1) done.refused.push({ desired: only, error })
      else for (const one of some) await ensure([one])
    }
  }

  for (let pass = 0; pass < MAX_PASSES && done.waiting.length > 0; pass++) {
    const before = done.change
    const late = done.waiting
    done.waiting = []
    for (let first = 0; first < late.length; first += AT_ONCE) await ensure(late.slice(first, first + AT_ONCE))
    if (done.change === before) break
  }
  return done
}
