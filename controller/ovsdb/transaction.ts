import type { ColumnKind, Columns, ColumnValues, Row, Tables } from './columns.js'
import { OvsdbProtocolError, RowsGone, TransactionRefused } from './errors.js'
import { isRecord, reasonOf } from './messages.js'
import { encodeRow, encodeValue } from './values.js'

type TableName<T extends Tables> = keyof T & string

/** An operation on one row, by its UUID. */
export type Operation<T extends Tables> = {
  [N in TableName<T>]:
    | { op: 'insert'; table: N; uuid: string; row: Partial<Row<T[N]>> }
    | { op: 'update'; table: N; uuid: string; row: Partial<Row<T[N]>> }
    | { op: 'mutate'; table: N; uuid: string; mutations: readonly Mutation<T[N]>[] }
    | { op: 'delete'; table: N; uuid: string }
}[TableName<T>]

/** Adds elements to a set or a map that lacks them, removes elements, or increments a number. */
export type Mutation<C extends Columns> = {
  [K in keyof C & string]:
    | { column: K; add: ColumnValues[C[K]] }
    | { column: K; remove: C[K] extends 'map' ? ColumnValues['map'] | ColumnValues['texts'] : ColumnValues[C[K]] }
    | (C[K] extends 'integer' ? { column: K; increment: number } : never)
}[keyof C & string]

/**
 * Writes operations as `transact` takes them (RFC 7047, 5.2). A row is inserted with the UUID that it should have, an
 * extension of ovsdb-server's.
 * @param comment for the server's log
 */
export function encodeTransaction<T extends Tables>(
  tables: T,
  operations: readonly Operation<T>[],
  comment: string,
): object[] {
  return [
    ...operations.map(operation => encodeOperation(tables[operation.table] ?? {}, operation)),
    ...(comment === '' ? [] : [{ op: 'comment', comment }]),
  ]
}

/**
 * Checks what a server answers to a transaction, operation by operation.
 * @throws TransactionRefused if nothing of it happened, RowsGone if rows were missing, OvsdbProtocolError
 */
export function checkResults<T extends Tables>(operations: readonly Operation<T>[], results: unknown): void {
  if (!Array.isArray(results)) throw new OvsdbProtocolError('The OVSDB server’s answer to a transaction is no list.')
  // A server answers null to the operations behind the one that fails, and adds an error of its own if the commit does.
  const at = results.findIndex(result => isRecord(result) && result['error'] !== undefined && result['error'] !== null)
  if (at >= 0) {
    const { code, details } = reasonOf(results[at])
    const operation = operations[at]
    throw new TransactionRefused(code, operation === undefined ? null : nameOf(operation), details)
  }
  if (results.length < operations.length) throw new OvsdbProtocolError('The OVSDB server answers too few operations.')
  const missed = operations.filter((operation, index) => operation.op !== 'insert' && countOf(results[index]) !== 1)
  if (missed.length > 0) throw new RowsGone(missed.map(nameOf))
}

const nameOf = ({ op, table, uuid }: { op: string; table: string; uuid: string }): string => `${op} ${table} ${uuid}`

const countOf = (result: unknown): unknown => (isRecord(result) ? result['count'] : undefined)

function encodeOperation<T extends Tables>(columns: Columns, operation: Operation<T>): object {
  const { op, table, uuid } = operation
  const where = [['_uuid', '==', ['uuid', uuid]]]
  if (op === 'insert') return { op, table, uuid, row: encodeRow(columns, operation.row) }
  if (op === 'update') return { op, table, where, row: encodeRow(columns, operation.row) }
  if (op === 'delete') return { op, table, where }
  return { op, table, where, mutations: operation.mutations.map(mutation => encodeMutation(columns, mutation)) }
}

type AnyMutation = { column: string } & (
  | { add: ColumnValues[ColumnKind] }
  | { remove: ColumnValues[ColumnKind] }
  | { increment: number }
)

function encodeMutation(columns: Columns, mutation: AnyMutation): unknown[] {
  const { column } = mutation
  const kind = columns[column] ?? 'text'
  if ('increment' in mutation) return [column, '+=', mutation.increment]
  if ('add' in mutation) return [column, 'insert', encodeValue(kind, mutation.add)]
  // A map loses keys, whatever they have, or only keys that have this value.
  const isKeys = kind === 'map' && Array.isArray(mutation.remove)
  return [column, 'delete', encodeValue(isKeys ? 'texts' : kind, mutation.remove)]
}
