import type { ColumnKind, Columns, ColumnValues, Row } from './columns.js'
import { OvsdbProtocolError } from './errors.js'
import { isRecord } from './messages.js'

/** A value of a column as it is sent (RFC 7047, 5.1). */
export type WireValue = unknown

type AtomKind = 'text' | 'integer' | 'boolean' | 'uuid'

const ATOMS: Readonly<Partial<Record<ColumnKind, AtomKind>>> = {
  ...{ text: 'text', integer: 'integer', boolean: 'boolean', uuid: 'uuid' },
  ...{ 'optional text': 'text', 'optional integer': 'integer', 'optional boolean': 'boolean', 'optional uuid': 'uuid' },
  ...{ texts: 'text', integers: 'integer', uuids: 'uuid' },
}

/**
 * Reads a value. Sets come out sorted and maps with sorted keys, so that equal values are deeply equal.
 * @throws OvsdbProtocolError if it is not of this kind
 */
export function decodeValue<K extends ColumnKind>(kind: K, value: WireValue): ColumnValues[K]
export function decodeValue(kind: ColumnKind, value: WireValue): ColumnValues[ColumnKind] {
  if (kind === 'map') return Object.fromEntries(decodePairs(value).sort(([a], [b]) => compare(a, b)))
  const atomKind = ATOMS[kind] ?? 'text'
  const atoms = setOf(value).map(atom => decodeAtom(atomKind, atom))
  if (kind === atomKind) {
    const [only] = atoms
    if (only === undefined || atoms.length > 1) throw unexpected(kind, value)
    return only
  }
  if (kind.startsWith('optional')) {
    if (atoms.length > 1) throw unexpected(kind, value)
    return atoms[0] ?? null
  }
  return atoms.sort(compare) as ColumnValues[ColumnKind]
}

/** Writes a value. */
export function encodeValue<K extends ColumnKind>(kind: K, value: ColumnValues[K]): WireValue
export function encodeValue(kind: ColumnKind, value: ColumnValues[ColumnKind]): WireValue {
  if (kind === 'map') return ['map', Object.entries(value as ColumnValues['map'])]
  const encode = (atom: unknown) => (ATOMS[kind] === 'uuid' ? ['uuid', atom] : atom)
  if (kind === ATOMS[kind]) return encode(value)
  const atoms = Array.isArray(value) ? value : value === null ? [] : [value]
  return ['set', atoms.map(encode)]
}

/**
 * Reads the columns of a row that a message has.
 * @throws OvsdbProtocolError if one of them is not as described
 */
export function decodeRow<C extends Columns>(columns: C, row: unknown): Partial<Row<C>> {
  if (!isRecord(row)) throw unexpected('row', row)
  const values = Object.entries(columns).flatMap(([name, kind]) =>
    row[name] === undefined ? [] : [[name, decodeValue(kind, row[name])] as const],
  )
  return Object.fromEntries(values) as Partial<Row<C>>
}

/** Writes the columns of a row that have a value. */
export function encodeRow<C extends Columns>(columns: C, row: Partial<Row<C>>): Record<string, WireValue> {
  const values = Object.entries(columns).flatMap(([name, kind]) => {
    const value = row[name]
    return value === undefined ? [] : [[name, encodeValue(kind, value)] as const]
  })
  return Object.fromEntries(values)
}

/** The value that a column has in a new row that says nothing of it (RFC 7047, 5.2.1). */
export function defaultValue<K extends ColumnKind>(kind: K): ColumnValues[K]
export function defaultValue(kind: ColumnKind): ColumnValues[ColumnKind] {
  if (kind === 'map') return {}
  if (kind.startsWith('optional')) return null
  if (kind === 'text') return ''
  if (kind === 'integer') return 0
  if (kind === 'boolean') return false
  return kind === 'uuid' ? '00000000-0000-0000-0000-000000000000' : []
}

/**
 * Applies the difference that an `update2` has for a column: elements of a set, or keys of a map, that are there now and
 * were not, or the other way round; the new value of any other column.
 * @throws OvsdbProtocolError
 */
export function applyDifference<K extends ColumnKind>(
  kind: K,
  value: ColumnValues[K],
  difference: WireValue,
): ColumnValues[K]
export function applyDifference(
  kind: ColumnKind,
  value: ColumnValues[ColumnKind],
  difference: WireValue,
): ColumnValues[ColumnKind] {
  if (kind === 'map') {
    const result = new Map(Object.entries(value as ColumnValues['map']))
    for (const [key, text] of decodePairs(difference)) {
      if (result.get(key) === text) result.delete(key)
      else result.set(key, text)
    }
    return Object.fromEntries([...result].sort(([a], [b]) => compare(a, b)))
  }
  // Of an optional column, servers send the new value: `[]` if there is none any more.
  if (!isSet(kind)) return decodeValue(kind, difference)
  const result = new Set<string | number>(value as readonly (string | number)[])
  for (const atom of decodeValue(kind, difference)) {
    if (!result.delete(atom)) result.add(atom)
  }
  return [...result].sort(compare) as ColumnValues[ColumnKind]
}

type SetKind = 'texts' | 'integers' | 'uuids'

const isSet = (kind: ColumnKind): kind is SetKind => kind === 'texts' || kind === 'integers' || kind === 'uuids'

function setOf(value: WireValue): readonly unknown[] {
  if (Array.isArray(value) && value[0] === 'set' && Array.isArray(value[1])) return value[1]
  return [value]
}

function decodePairs(value: WireValue): [string, string][] {
  if (!Array.isArray(value) || value[0] !== 'map' || !Array.isArray(value[1])) throw unexpected('map', value)
  return value[1].map((pair: unknown) => {
    if (!Array.isArray(pair) || typeof pair[0] !== 'string' || typeof pair[1] !== 'string')
      throw unexpected('map', value)
    return [pair[0], pair[1]]
  })
}

function decodeAtom(kind: AtomKind, atom: unknown): string | number | boolean {
  if (kind === 'uuid' && Array.isArray(atom) && atom[0] === 'uuid' && typeof atom[1] === 'string') return atom[1]
  if (kind === 'text' && typeof atom === 'string') return atom
  if (kind === 'integer' && typeof atom === 'number' && Number.isSafeInteger(atom)) return atom
  if (kind === 'boolean' && typeof atom === 'boolean') return atom
  throw unexpected(kind, atom)
}

function compare(a: string | number | boolean, b: string | number | boolean): number {
  return a < b ? -1 : a > b ? 1 : 0
}

const unexpected = (kind: string, value: unknown) =>
  new OvsdbProtocolError(`The OVSDB server sends no ${kind}: ${(JSON.stringify(value) ?? 'nothing').slice(0, 100)}`)
