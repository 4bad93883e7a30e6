import type { NorthboundTable } from '../../../controller/ovn/northbound/columns.js'
import { keepsAlive, NORTHBOUND, REFERENCES, ROOTS } from '../../../controller/ovn/northbound/columns.js'
import { type DesiredRow, marked } from '../../../controller/ovn/northbound/desired.js'
import { NorthboundIndex } from '../../../controller/ovn/northbound/northbound-index.js'
import { planRows, type RowsPlan } from '../../../controller/ovn/northbound/plan-rows.js'
import type { Row } from '../../../controller/ovsdb/columns.js'
import type { RowChange } from '../../../controller/ovsdb/copy.js'
import { defaultValue } from '../../../controller/ovsdb/values.js'

/** A northbound database that keeps what it is told, as ovsdb-server does: with its rules of references. */
export class MemoryNorthbound {
  readonly index: NorthboundIndex
  readonly #rows = new Map<string, { table: NorthboundTable; row: Row }>()
  readonly #instance: string

  constructor(instance: string) {
    this.#instance = instance
    this.index = new NorthboundIndex(instance)
  }

  get all(): [string, NorthboundTable, Row][] {
    return [...this.#rows].map(([uuid, { table, row }]): [string, NorthboundTable, Row] => [uuid, table, row]).sort()
  }

  plan(owner: string, rows: readonly DesiredRow[]): RowsPlan {
    return planRows(marked(this.#instance, { owner, generation: 1, rows }), {
      owned: this.index.rowsOf(owner),
      find: (table, uuid) => {
        const found = this.#rows.get(uuid)
        return found?.table === table ? found.row : null
      },
      holdersOf: uuid => this.index.holdersOf(uuid),
      isOurs: ({ uuid }) => this.index.isOwned(uuid),
    })
  }

  carryOut({ operations }: RowsPlan): void {
    for (const operation of operations) {
      const { table, uuid } = operation
      const before = this.#rows.get(uuid)?.row
      if ((before === undefined) !== (operation.op === 'insert')) throw new Error(`${operation.op} of ${table} ${uuid}`)
      if (operation.op === 'insert') this.set(table, uuid, { ...newRow(table), ...(operation.row as Row) })
      else if (operation.op === 'update') this.set(table, uuid, { ...before, ...(operation.row as Row) })
      else if (operation.op === 'delete') this.set(table, uuid, null)
      else {
        const row: Record<string, Row[string]> = { ...before }
        for (const mutation of operation.mutations as { column: string; add?: string[]; remove?: string[] }[]) {
          const held = (row[mutation.column] ?? []) as readonly string[]
          const left = held.filter(one => !mutation.remove?.includes(one))
          row[mutation.column] = [...new Set([...left, ...(mutation.add ?? [])])].sort()
        }
        this.set(table, uuid, row)
      }
    }
    this.collect()
  }

  set(table: NorthboundTable, uuid: string, row: Row | null): void {
    const before = this.#rows.get(uuid)?.row ?? null
    if (row === null) this.#rows.delete(uuid)
    else this.#rows.set(uuid, { table, row })
    const changes: RowChange[] = [{ table, uuid, before, after: row }]
    this.index.follow(changes)
  }

  /** Deletes what nothing keeps alive, and references to what is gone. */
  collect(): void {
    for (let isChanged = true; isChanged; ) {
      isChanged = false
      for (const [uuid, table] of this.all) {
        const holders = this.index.holdersOf(uuid).filter(holder => keepsAlive(holder.table, holder.column))
        if (ROOTS.has(table) || holders.length > 0) continue
        this.set(table, uuid, null)
        isChanged = true
      }
      for (const [uuid, table, row] of this.all) {
        for (const [column, value] of Object.entries(row)) {
          if (!isHolding(table, column)) continue
          const left = (value as readonly string[]).filter(one => this.#rows.has(one))
          if (left.length < (value as readonly string[]).length) this.set(table, uuid, { ...row, [column]: left })
        }
      }
    }
  }
}

const isHolding = (table: NorthboundTable, column: string): boolean =>
  table in REFERENCES && column in REFERENCES[table as keyof typeof REFERENCES]

/** A row as the server makes it, with the defaults of its columns. */
export const newRow = (table: NorthboundTable): Row =>
  Object.fromEntries(Object.entries(NORTHBOUND[table]).map(([name, kind]) => [name, defaultValue(kind)]))
