import fc from 'fast-check'
import t from 'tap'
import type { DesiredRow, Holder } from '../../../controller/ovn/northbound/desired.js'
import { MemoryNorthbound, newRow } from '../../support/database/northbound.js'

const INSTANCE = 'abcdef'

const SWITCHES = ['s1', 's2', 's3']
const names = fc.constantFrom('a', 'b', 'c')
const somePlaces = fc.subarray(SWITCHES)

/** What the owner of the load balancers wants: those, and ports on switches that may not be there. */
const desiredRows = fc
  .tuple(
    fc.dictionary(fc.constantFrom('lb1', 'lb2', 'lb3'), fc.tuple(names, somePlaces), { noNullPrototype: true }),
    fc.dictionary(fc.constantFrom('p1', 'p2'), fc.tuple(names, fc.constantFrom(...SWITCHES)), {
      noNullPrototype: true,
    }),
  )
  .map(([balancers, ports]): DesiredRow[] => [
    ...Object.entries(balancers).map(
      ([uuid, [name, places]]): DesiredRow => ({
        ...{ table: 'Load_Balancer', uuid, row: { name, vips: { '10.0.0.1:80': name } } },
        heldBy: places.map((place): Holder => ({ table: 'Logical_Switch', uuid: place, column: 'load_balancer' })),
      }),
    ),
    ...Object.entries(ports).map(
      ([uuid, [name, place]]): DesiredRow => ({
        ...{ table: 'Logical_Switch_Port', uuid, row: { name } },
        heldBy: [{ table: 'Logical_Switch', uuid: place, column: 'ports' }],
      }),
    ),
  ])

const switches = (present: readonly string[]): DesiredRow[] =>
  present.map(uuid => ({ table: 'Logical_Switch', uuid, row: { name: uuid }, heldBy: [] }))

t.test('any way leads to what is wanted, and the second plan is empty', async t => {
  const steps = fc.array(fc.tuple(somePlaces, desiredRows), { minLength: 1, maxLength: 6 })
  fc.assert(
    fc.property(steps, all => {
      const database = new MemoryNorthbound(INSTANCE)
      database.set('Load_Balancer', 'foreign', { ...newRow('Load_Balancer'), name: 'of others' })
      for (const [present, rows] of all) {
        database.carryOut(database.plan('network', switches(present)))
        database.carryOut(database.plan('balancers', rows))
        t.same(database.plan('network', switches(present)).operations, [])
        const { operations, differences, missingHolders } = database.plan('balancers', rows)
        t.same(operations, [])
        t.same(differences, [])
        t.same(
          missingHolders.every(({ uuid }) => !present.includes(uuid)),
          true,
        )
        const fresh = new MemoryNorthbound(INSTANCE)
        fresh.set('Load_Balancer', 'foreign', { ...newRow('Load_Balancer'), name: 'of others' })
        fresh.carryOut(fresh.plan('network', switches(present)))
        fresh.carryOut(fresh.plan('balancers', rows))
        t.same(database.all, fresh.all)
      }
      database.carryOut(database.plan('balancers', []))
      database.carryOut(database.plan('network', []))
      t.same(
        database.all.map(([uuid]) => uuid),
        ['foreign'],
      )
    }),
  )
})

t.test('a place of somebody else that holds our row stays as it is', async t => {
  const database = new MemoryNorthbound(INSTANCE)
  const row: DesiredRow = {
    ...{ table: 'Load_Balancer', uuid: 'lb1', row: { name: 'lb1' } },
    heldBy: [{ table: 'Logical_Switch', uuid: 's1', column: 'load_balancer' }],
  }
  database.carryOut(database.plan('network', switches(['s1', 's2'])))
  database.carryOut(database.plan('balancers', [row]))
  database.set('Logical_Switch', 'foreign', { ...newRow('Logical_Switch'), load_balancer: ['lb1'] })
  t.same(database.plan('balancers', [row]).operations, [])
  const ours = database.all.find(([uuid]) => uuid === 's2')![2]
  database.set('Logical_Switch', 's2', { ...ours, load_balancer: ['lb1'] })
  t.match(database.plan('balancers', [row]).differences, [{ kind: 'held elsewhere', holder: { uuid: 's2' } }])
})

t.test('what others edit by hand is mended, and nothing else is touched', async t => {
  const database = new MemoryNorthbound(INSTANCE)
  const rows: DesiredRow[] = ['lb1', 'lb2'].map(uuid => ({
    ...{ table: 'Load_Balancer', uuid, row: { name: uuid, vips: { '10.0.0.1:80': '10.0.0.2:80' } } },
    heldBy: [{ table: 'Logical_Switch', uuid: 's1', column: 'load_balancer' }],
  }))
  database.carryOut(database.plan('network', switches(['s1'])))
  database.carryOut(database.plan('balancers', rows))
  const right = database.all
  const rowOf = (uuid: string) => right.find(([found]) => found === uuid)?.[2] ?? {}
  const edits: [string, () => void, RegExp][] = [
    ['a value', () => database.set('Load_Balancer', 'lb1', { ...rowOf('lb1'), vips: {} }), /different/],
    ['the marks', () => database.set('Load_Balancer', 'lb1', { ...rowOf('lb1'), external_ids: {} }), /different/],
    ['a reference', () => database.set('Logical_Switch', 's1', { ...rowOf('s1'), load_balancer: ['lb2'] }), /not held/],
    ['the row', () => database.set('Load_Balancer', 'lb1', null), /missing/],
  ]
  for (const [what, edit, kind] of edits) {
    edit()
    database.collect()
    const plan = database.plan('balancers', rows)
    t.match(plan.differences[0]?.kind, kind, what)
    t.notOk(
      plan.operations.some(({ uuid }) => uuid === 'lb2'),
      `${what}: the other one is not touched`,
    )
    database.carryOut(plan)
    t.same(database.all, right, what)
  }
})
