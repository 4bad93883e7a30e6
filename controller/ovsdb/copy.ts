import { isDeepStrictEqual } from 'node:util'
import type { ColumnKind, Columns, Row, Tables } from './columns.js'
import { OvsdbProtocolError } from './errors.js'
import { isRecord } from './messages.js'
import { applyDifference, decodeRow, defaultValue } from './values.js'

/** A row that changed; null on the side where there is none. */
export type RowChange = { table: string; uuid: string; before: Row | null; after: Row | null }

/** The form of the updates that a server sends: of `monitor`, or of its successors. */
export type UpdateForm = 'update' | 'update2'

/** A copy of some columns of a database's tables. */
export class DatabaseCopy {
  readonly #tables: Tables
  #rows: ReadonlyMap<string, Map<string, Row>>

  constructor(tables: Tables) {
    this.#tables = tables
    this.#rows = emptyRows(tables)
  }

  /** Rows of a table by UUID. They change with the next update. */
  rows(table: string): ReadonlyMap<string, Row> {
    const rows = this.#rows.get(table)
    if (rows === undefined) throw new Error(`Table ${table} is not copied.`)
    return rows
  }

  /**
   * Takes an update over.
   * @returns what changed
   * @throws OvsdbProtocolError if it does not fit
   */
  apply(form: UpdateForm, update: unknown): RowChange[] {
    if (!isRecord(update)) throw new OvsdbProtocolError('The OVSDB server sends an update without tables.')
    return Object.entries(update).flatMap(([table, rows]) => {
      const columns = this.#tables[table]
      const own = this.#rows.get(table)
      if (columns === undefined || own === undefined || !isRecord(rows))
        throw new OvsdbProtocolError(`The OVSDB server sends an update of table ${table.slice(0, 100)}.`)
      return Object.entries(rows).flatMap(([uuid, change]) => {
        const before = own.get(uuid) ?? null
        const after = form === 'update' ? rowOfUpdate(columns, before, change) : rowOfUpdate2(columns, before, change)
        if (after === null) own.delete(uuid)
        else own.set(uuid, after)
        return isDeepStrictEqual(before, after) ? [] : [{ table, uuid, before, after }]
      })
    })
  }

  /** The same for the whole contents of the database, as at the start of a monitor. */
  replace(form: UpdateForm, contents: unknown): RowChange[] {
    const former = this.#rows
    this.#rows = emptyRows(this.#tables)
    try {
      this.apply(form, contents)
    } catch (error) {
      this.#rows = former
      throw error
    }
    return [...former].flatMap(([table, rows]) => changesBetween(table, rows, this.rows(table)))
  }
}

const emptyRows = (tables: Tables) => new Map(Object.keys(tables).map(name => [name, new Map<string, Row>()]))

function changesBetween(
  table: string,
  former: ReadonlyMap<string, Row>,
  present: ReadonlyMap<string, Row>,
): RowChange[] {
  const gone = [...former].flatMap(([uuid, before]) =>
    present.has(uuid) ? [] : [{ table, uuid, before, after: null }],
  )
  const others = [...present].flatMap(([uuid, after]) => {
    const before = former.get(uuid) ?? null
    return isDeepStrictEqual(before, after) ? [] : [{ table, uuid, before, after }]
  })
  return [...gone, ...others]
}

/** RFC 7047, 4.1.6: a new row is whole. */
function rowOfUpdate(columns: Columns, before: Row | null, change: unknown): Row | null {
  if (!isRecord(change)) throw new OvsdbProtocolError('The OVSDB server sends an update without rows.')
  const { new: present } = change
  return present === undefined || present === null
    ? null
    : ({ ...(before ?? newRow(columns)), ...decodeRow(columns, present) } as Row)
}

/** ovsdb-server(7): `initial` and `insert` lack what has its default value, `modify` has differences. */
function rowOfUpdate2(columns: Columns, before: Row | null, change: unknown): Row | null {
  if (!isRecord(change)) throw new OvsdbProtocolError('The OVSDB server sends an update without rows.')
  if ('delete' in change) return null
  const whole = change['initial'] ?? change['insert']
  if (whole !== undefined) return { ...newRow(columns), ...decodeRow(columns, whole) } as Row
  const { modify } = change
  if (before === null || !isRecord(modify))
    throw new OvsdbProtocolError('The OVSDB server changes a row that it has not sent before.')
  const changed = Object.entries(columns).flatMap(([name, kind]: [string, ColumnKind]) => {
    const value = before[name]
    return modify[name] === undefined || value === undefined
      ? []
      : [[name, applyDifference(kind, value, modify[name])] as const]
  })
  return { ...before, ...Object.fromEntries(changed) }
}

const newRow = (columns: Columns): Row =>
  Object.fromEntries(Object.entries(columns).map(([name, kind]) => [name, defaultValue(kind)]))
