import type { Row } from '../../ovsdb/columns.js'
import type { RowChange } from '../../ovsdb/copy.js'
import { type NorthboundTable, REFERENCES } from './columns.js'
import { type Holder, INSTANCE, OWNER, type Owner } from './desired.js'

export type OwnedRow = { table: NorthboundTable; uuid: string; row: Row }

/**
 * Finds the rows of an owner, and the places that hold a row, without a look at all others. Follows the copy's changes.
 */
export class NorthboundIndex {
  readonly #instance: string
  readonly #owned = new Map<Owner, Map<string, OwnedRow>>()
  readonly #ownerOfRow = new Map<string, Owner>()
  readonly #holders = new Map<string, Map<string, Holder>>()

  /** @param instance rows of other installations are not ours */
  constructor(instance: string) {
    this.#instance = instance
  }

  owners(): Owner[] {
    return [...this.#owned.keys()]
  }

  rowsOf(owner: Owner): OwnedRow[] {
    return [...(this.#owned.get(owner)?.values() ?? [])]
  }

  holdersOf(uuid: string): Holder[] {
    return [...(this.#holders.get(uuid)?.values() ?? [])]
  }

  /** Whether a row bears the mark of this installation. */
  isOwned(uuid: string): boolean {
    return this.#ownerOfRow.has(uuid)
  }

  /** @returns the owners of the rows that changed, and of those that are held in other places than before */
  follow(changes: readonly RowChange[]): Set<Owner> {
    const affected = new Set<Owner>()
    const moved = new Set<string>()
    for (const { table: name, uuid, before, after } of changes) {
      const table = name as NorthboundTable
      for (const owner of [this.#ownerOf(before), this.#ownerOf(after)]) if (owner !== null) affected.add(owner)
      this.#keepOwned(table, uuid, before, after)
      for (const column of Object.keys(table in REFERENCES ? REFERENCES[table as keyof typeof REFERENCES] : {})) {
        for (const held of this.#keepHolders({ table, uuid, column } as Holder, before, after)) moved.add(held)
      }
    }
    for (const uuid of moved) {
      const owner = this.#ownerOfRow.get(uuid)
      if (owner !== undefined) affected.add(owner)
    }
    return affected
  }

  #ownerOf(row: Row | null): Owner | null {
    const marks = row?.['external_ids']
    if (typeof marks !== 'object' || marks === null || Array.isArray(marks)) return null
    const { [INSTANCE]: instance, [OWNER]: owner } = marks as Readonly<Record<string, string>>
    return instance === this.#instance ? (owner ?? null) : null
  }

  #keepOwned(table: NorthboundTable, uuid: string, before: Row | null, after: Row | null): void {
    const [former, present] = [this.#ownerOf(before), this.#ownerOf(after)]
    if (former !== null && former !== present) {
      const rows = this.#owned.get(former)
      rows?.delete(uuid)
      this.#ownerOfRow.delete(uuid)
      if (rows?.size === 0) this.#owned.delete(former)
    }
    if (present === null || after === null) return
    this.#ownerOfRow.set(uuid, present)
    const rows = this.#owned.get(present) ?? new Map<string, OwnedRow>()
    this.#owned.set(present, rows.set(uuid, { table, uuid, row: after }))
  }

  /** @returns UUIDs of rows that this place holds and did not, or the other way round */
  #keepHolders(holder: Holder, before: Row | null, after: Row | null): string[] {
    // A column that an update leaves alone keeps its value. That of a big network's switch holds thousands.
    if (before?.[holder.column] === after?.[holder.column]) return []
    const former = new Set(uuidsIn(before, holder.column))
    const present = new Set(uuidsIn(after, holder.column))
    const key = `${holder.uuid} ${holder.column}`
    const gone = [...former].filter(uuid => !present.has(uuid))
    const added = [...present].filter(uuid => !former.has(uuid))
    for (const uuid of gone) {
      const holders = this.#holders.get(uuid)
      holders?.delete(key)
      if (holders?.size === 0) this.#holders.delete(uuid)
    }
    for (const uuid of added) {
      const holders = this.#holders.get(uuid) ?? new Map<string, Holder>()
      this.#holders.set(uuid, holders.set(key, holder))
    }
    return [...gone, ...added]
  }
}

const uuidsIn = (row: Row | null, column: string): readonly string[] => {
  const value = row?.[column]
  return Array.isArray(value) ? (value as readonly string[]) : []
}
