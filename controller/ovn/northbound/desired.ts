import type { Row } from '../../ovsdb/columns.js'
import type { Northbound, NorthboundTable } from './columns.js'

/** A place that holds a row: a column of another row. */
export type Holder = {
  [N in NorthboundTable]: { table: N; uuid: string; column: keyof Northbound[N] & string }
}[NorthboundTable]

/** A row that should stand, as one owner wants it. */
export type DesiredRow = {
  [N in NorthboundTable]: {
    table: N
    uuid: string
    /** The columns that its owner says something of. Those that hold rows are said by `heldBy` of these. */
    row: Partial<Row<Northbound[N]>>
    /** All of the places that should hold it. */
    heldBy: readonly Holder[]
  }
}[NorthboundTable]

/** Keys of the `external_ids` of each row that Krater makes. */
export const OWNER = 'krater:owner'
export const INSTANCE = 'krater:instance'
/** Says which generation of the owner's desired state made the row. For people; nothing compares it. */
const GENERATION = 'krater:generation'

/** What owns rows, such as `load-balancer/ID`. */
export type Owner = string

/** The rows of one owner: nothing else in the database belongs to it. */
export type Desired = { owner: Owner; generation: number; rows: readonly DesiredRow[] }

/** Adds what says whose the rows are. */
export function marked(instance: string, { owner, generation, rows }: Desired): DesiredRow[] {
  return rows.map(desired => {
    const marks = { [INSTANCE]: instance, [OWNER]: owner, [GENERATION]: String(generation) }
    return {
      ...desired,
      row: { ...desired.row, external_ids: { ...desired.row.external_ids, ...marks } },
    } as DesiredRow
  })
}
