import fc from 'fast-check'
import t from 'tap'
import type { ColumnKind, ColumnValues } from '../../../controller/ovsdb/columns.js'
import { OvsdbProtocolError } from '../../../controller/ovsdb/errors.js'
import { applyDifference, decodeValue, encodeValue } from '../../../controller/ovsdb/values.js'

const sorted = <T extends string | number>(atoms: readonly T[]): T[] =>
  [...new Set(atoms)].sort((a, b) => (a < b ? -1 : a > b ? 1 : 0))

const arbitraries: { [K in ColumnKind]: fc.Arbitrary<ColumnValues[K]> } = {
  text: fc.string(),
  integer: fc.maxSafeInteger(),
  boolean: fc.boolean(),
  uuid: fc.uuid(),
  'optional text': fc.option(fc.string()),
  'optional integer': fc.option(fc.maxSafeInteger()),
  'optional boolean': fc.option(fc.boolean()),
  'optional uuid': fc.option(fc.uuid()),
  texts: fc.array(fc.string()).map(sorted),
  integers: fc.array(fc.maxSafeInteger()).map(sorted),
  uuids: fc.array(fc.uuid()).map(sorted),
  map: fc.dictionary(
    fc.string().filter(key => key !== '__proto__'),
    fc.string(),
    { noNullPrototype: true },
  ),
}
const kinds = Object.keys(arbitraries) as ColumnKind[]

t.test('a value comes back as it was sent', async t => {
  for (const kind of kinds) {
    fc.assert(
      fc.property(arbitraries[kind] as fc.Arbitrary<ColumnValues[ColumnKind]>, value => {
        t.same(decodeValue(kind, encodeValue(kind, value)), value)
      }),
    )
  }
})

t.test('a set of one element may come without its brackets', async t => {
  t.same(decodeValue('texts', 'one'), ['one'])
  t.same(decodeValue('uuids', ['uuid', 'a']), ['a'])
  t.same(decodeValue('optional integer', ['set', []]), null)
})

t.test('what is of another kind is refused', async t => {
  fc.assert(
    fc.property(fc.constantFrom(...kinds), fc.jsonValue(), (kind, value) => {
      try {
        decodeValue(kind, value)
      } catch (error) {
        t.type(error, OvsdbProtocolError)
      }
    }),
  )
  for (const [kind, value] of [
    ['text', 1],
    ['integer', 0.5],
    ['uuid', 'a'],
    ['uuid', ['set', []]],
    ['map', ['set', []]],
    ['optional text', ['set', ['a', 'b']]],
  ] as const)
    t.throws(() => decodeValue(kind, value), OvsdbProtocolError, kind)
})

t.test('a difference leads from one value to the other', async t => {
  const setDifference = (a: readonly string[], b: readonly string[]) => [
    ...a.filter(one => !b.includes(one)),
    ...b.filter(one => !a.includes(one)),
  ]
  fc.assert(
    fc.property(arbitraries.texts, arbitraries.texts, (before, after) => {
      t.same(applyDifference('texts', before, ['set', setDifference(before, after)]), after)
    }),
  )
  const names = fc.constantFrom('a', 'b', 'c')
  const maps = fc.dictionary(names, names, { noNullPrototype: true })
  fc.assert(
    fc.property(maps, maps, (before, after) => {
      // ovsdb-server(7): a key that is gone comes with its old value, any other with its new one.
      const pairs = sorted([...Object.keys(before), ...Object.keys(after)])
        .filter(key => before[key] !== after[key])
        .map(key => [key, after[key] ?? before[key]])
      t.same(applyDifference('map', before, ['map', pairs]), after)
    }),
  )
  t.equal(applyDifference('optional text', 'a', 'b'), 'b')
  t.equal(applyDifference('optional text', 'a', ['set', []]), null)
})
