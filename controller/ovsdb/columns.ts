/**
 * What a column holds, as this code uses it. `optional`: one or nothing, null here. Lists are sets: without order and
 * duplicates. `map`: texts by text.
 */
export type ColumnValues = {
  text: string
  integer: number
  boolean: boolean
  uuid: string
  'optional text': string | null
  'optional integer': number | null
  'optional boolean': boolean | null
  'optional uuid': string | null
  texts: readonly string[]
  integers: readonly number[]
  uuids: readonly string[]
  map: Readonly<Record<string, string>>
}

export type ColumnKind = keyof ColumnValues
export type Columns = Readonly<Record<string, ColumnKind>>

/** The columns of a database that this code uses, by table. */
export type Tables = Readonly<Record<string, Columns>>

export type Row<C extends Columns = Columns> = { readonly [name in keyof C]: ColumnValues[C[name]] }

/** Rows by UUID. */
export type Rows<C extends Columns = Columns> = ReadonlyMap<string, Row<C>>
