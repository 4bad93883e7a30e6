import { isDeepStrictEqual } from 'node:util'
import type { Row } from '../../ovsdb/columns.js'
import type { Operation } from '../../ovsdb/transaction.js'
import { keepsAlive, type Northbound, type NorthboundTable, ROOTS } from './columns.js'
import type { DesiredRow, Holder } from './desired.js'
import type { OwnedRow } from './northbound-index.js'

export type NorthboundOperation = Operation<Northbound>

/** What stands now. */
export type Standing = {
  /** The rows that bear the owner's mark. */
  owned: readonly OwnedRow[]
  find: (table: NorthboundTable, uuid: string) => Row | null
  holdersOf: (uuid: string) => readonly Holder[]
  /** Whether a place is Krater's. What others hold is their affair. */
  isOurs: (holder: Holder) => boolean
}

/** A difference between what should stand and what does, in the order in which a transaction mends them. */
export type Difference =
  | { kind: 'missing'; table: NorthboundTable; uuid: string }
  | { kind: 'different'; table: NorthboundTable; uuid: string; columns: readonly string[] }
  | { kind: 'superfluous'; table: NorthboundTable; uuid: string }
  | { kind: 'not held' | 'held elsewhere'; uuid: string; holder: Holder }

export type RowsPlan = {
  /** One transaction that leaves exactly the desired rows, and touches nothing that is right. */
  operations: NorthboundOperation[]
  differences: Difference[]
  /** Places that are not there: rows that only they hold cannot stand yet. */
  missingHolders: Holder[]
}

/** Plans the way from what stands to what one owner wants. */
export function planRows(desired: readonly DesiredRow[], standing: Standing): RowsPlan {
  const wanted = new Set(desired.map(({ uuid }) => uuid))
  const superfluous = standing.owned.filter(({ uuid }) => !wanted.has(uuid))
  const deleted = new Set(superfluous.filter(({ table }) => ROOTS.has(table)).map(({ uuid }) => uuid))
  const inserted = new Set(
    desired.filter(({ table, uuid }) => standing.find(table, uuid) === null).map(({ uuid }) => uuid),
  )
  const isThere = (holder: Holder) =>
    inserted.has(holder.uuid) || (!deleted.has(holder.uuid) && standing.find(holder.table, holder.uuid) !== null)

  const isWrong = (holder: Holder) => isThere(holder) && standing.isOurs(holder)

  const missingHolders: Holder[] = []
  const differences: Difference[] = []
  const inserts: NorthboundOperation[] = []
  const updates: NorthboundOperation[] = []
  const placements = new Placements()

  for (const { table, uuid, row, heldBy } of desired) {
    const places = heldBy.filter(isThere)
    missingHolders.push(...heldBy.filter(holder => !isThere(holder)))
    // The server deletes a row that nothing holds: it waits for its place.
    if (!ROOTS.has(table) && !places.some(place => keepsAlive(place.table, place.column))) {
      for (const holder of standing.holdersOf(uuid).filter(isWrong)) {
        differences.push({ kind: 'held elsewhere', uuid, holder })
        placements.remove(holder, uuid)
      }
      continue
    }
    const present = standing.find(table, uuid)
    if (present === null) {
      differences.push({ kind: 'missing', table, uuid })
      inserts.push({ op: 'insert', table, uuid, row } as NorthboundOperation)
    } else {
      const columns = Object.entries(row).filter(([name, value]) => !isDeepStrictEqual(present[name], value))
      if (columns.length > 0) {
        differences.push({ kind: 'different', table, uuid, columns: columns.map(([name]) => name) })
        updates.push({ op: 'update', table, uuid, row: Object.fromEntries(columns) } as NorthboundOperation)
      }
    }
    const holders = standing.holdersOf(uuid).filter(isThere)
    for (const holder of places) {
      if (holders.some(one => isSamePlace(one, holder))) continue
      if (present !== null) differences.push({ kind: 'not held', uuid, holder })
      placements.add(holder, uuid)
    }
    for (const holder of holders) {
      if (places.some(one => isSamePlace(one, holder)) || !isWrong(holder)) continue
      differences.push({ kind: 'held elsewhere', uuid, holder })
      placements.remove(holder, uuid)
    }
  }
  const deletions: NorthboundOperation[] = []
  for (const { table, uuid } of superfluous) {
    differences.push({ kind: 'superfluous', table, uuid })
    if (ROOTS.has(table)) deletions.push({ op: 'delete', table, uuid } as NorthboundOperation)
    else for (const holder of standing.holdersOf(uuid).filter(isThere)) placements.remove(holder, uuid)
  }
  return { operations: [...inserts, ...updates, ...placements.operations(), ...deletions], differences, missingHolders }
}

const isSamePlace = (a: Holder, b: Holder): boolean => a.uuid === b.uuid && a.column === b.column

type Placement = { holder: Holder; add: string[]; remove: string[] }

/** What places gain and lose, one operation for each place. */
class Placements {
  readonly #byPlace = new Map<string, Placement>()

  add(holder: Holder, uuid: string): void {
    this.#of(holder).add.push(uuid)
  }

  remove(holder: Holder, uuid: string): void {
    this.#of(holder).remove.push(uuid)
  }

  operations(): NorthboundOperation[] {
    return [...this.#byPlace.values()].map(({ holder: { table, uuid, column }, add, remove }) => {
      const mutations = [
        ...(remove.length > 0 ? [{ column, remove }] : []),
        ...(add.length > 0 ? [{ column, add }] : []),
      ]
      return { op: 'mutate', table, uuid, mutations } as NorthboundOperation
    })
  }

  #of(holder: Holder): Placement {
    const key = `${holder.uuid} ${holder.column}`
    const placement = this.#byPlace.get(key) ?? { holder, add: [], remove: [] }
    this.#byPlace.set(key, placement)
    return placement
  }
}
