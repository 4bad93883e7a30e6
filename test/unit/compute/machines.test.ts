import t from 'tap'
import {
  type ComputeDriver,
  ComputeUnavailable,
  type Machine,
  type MachineSpec,
} from '../../../controller/compute/driver.js'
import type { ComputeContext, ComputeDriverKind } from '../../../controller/compute/kind.js'
import { createMachines } from '../../../controller/compute/machines.js'
import { createNoopComputeDriver } from '../../../controller/compute/noop/driver.js'
import { noopKind } from '../../../controller/compute/noop/kind.js'
import { createLog } from '../../../controller/log/log.js'
import type { Port } from '../../../controller/network/driver.js'
import { PLACEMENT } from '../../support/inputs/placement.js'

const PORT = { id: 'port', fixedIps: [], allowedAddresses: [] } as unknown as Port
const specOf = (amphoraId: string, driver: string) =>
  ({ amphoraId, placement: { ...PLACEMENT, driver } }) as unknown as MachineSpec

/** A driver that finds only what it created, and can be broken. */
function createKind(name: string) {
  const calls: string[] = []
  const faults: { open?: Error; list?: Error } = {}
  const machines = new Map<string, Machine>()
  const noop = createNoopComputeDriver()
  const driver: ComputeDriver = {
    ...noop,
    name,
    create: async spec => {
      const created = { ...(await noop.create(spec)), driver: name }
      machines.set(spec.amphoraId, created)
      return created
    },
    find: async id => machines.get(id) ?? null,
    inspect: async () => ({ serves: true, forwards: false, finding: name }),
    list: async () => {
      if (faults.list !== undefined) throw faults.list
      return [...machines.values()]
    },
    delete: async id => {
      calls.push(`delete ${id}`)
      machines.delete(id)
    },
    brokenInterfaces: async () => {
      if (faults.list !== undefined) throw faults.list
      return [...machines.keys()]
    },
  }
  const kind: ComputeDriverKind = {
    ...noopKind,
    name,
    open: async () => {
      calls.push('open')
      if (faults.open !== undefined) throw faults.open
      return driver
    },
  }
  return { kind, calls, faults, driver }
}

function createPair() {
  const one = createKind('one')
  const two = createKind('two')
  const rows = new Map<string, string>()
  const machines = createMachines({
    kinds: [one.kind, two.kind],
    context: {} as ComputeContext,
    driverOf: async id => rows.get(id) ?? null,
    log: createLog('test', 'silent'),
  })
  return { one, two, rows, machines }
}

t.test('machines of two drivers', async t => {
  const { one, two, rows, machines } = createPair()
  rows.set('a', 'one').set('b', 'two')

  t.test('are created by the driver of their placement, which is opened for the first of them', async t => {
    t.match(await machines.create(specOf('a', 'one')), { driver: 'one' })
    t.same(two.calls, [], 'nothing needed the other driver')
    t.match(await machines.create(specOf('b', 'two')), { driver: 'two' })
    t.match(await machines.create(specOf('b', 'two')), { driver: 'two' })
    t.same([one.calls, two.calls], [['open'], ['open']])
  })

  t.test('are reached through the driver in the row', async t => {
    for (const [id, driver] of rows) {
      t.match(await machines.find(id), { driver })
      t.match(await machines.inspect(id), { finding: driver })
      await machines.plug(id, PORT, 'project')
      t.match(await machines.pluggedPorts(id), [{ id: 'port' }])
    }
    await machines.unplug('a', 'port')
    t.same(await machines.pluggedPorts('a'), [])
    t.match(await machines.pluggedPorts('b'), [{ id: 'port' }], 'another amphora keeps its interfaces')
    t.same(
      (await machines.list()).map(({ driver }) => driver),
      ['one', 'two'],
    )
    t.same(await machines.brokenInterfaces(), ['a', 'b'])
  })

  t.test('without a row are found by looking, and deleted where they are', async t => {
    await two.driver.create(specOf('orphan', 'two'))
    t.match(await machines.find('orphan'), { driver: 'two' })
    await machines.delete('orphan')
    t.equal(await machines.find('orphan'), null)
    t.notOk(one.calls.includes('delete orphan'))
  })

  t.test('that nobody knows are no error, except to plug into', async t => {
    t.equal(await machines.find('nobody'), null)
    t.equal(await machines.inspect('nobody'), null)
    t.same(await machines.pluggedPorts('nobody'), [])
    await machines.unplug('nobody', 'port')
    await machines.delete('nobody')
    await t.rejects(machines.plug('nobody', PORT, 'project'), { message: /no machine of amphora nobody/ })
  })
})

t.test('a driver that this host cannot use is a fault of its own amphorae only', async t => {
  const { one, two, rows, machines } = createPair()
  const fault = new ComputeUnavailable('This host has no hypervisor.')
  rows.set('a', 'one').set('b', 'two').set('c', 'three')
  two.faults.open = fault
  await machines.create(specOf('a', 'one'))
  await t.rejects(machines.create(specOf('b', 'two')), fault)
  await t.rejects(machines.find('b'), fault)
  t.match(await machines.find('a'), { driver: 'one' })
  t.match(await machines.list(), [{ driver: 'one' }])
  await t.rejects(machines.list({ isComplete: true }), fault, 'it may have machines nevertheless')
  t.same(await machines.brokenInterfaces(), ['a'])
  t.same(two.calls, ['open'], 'it is not tried for every call')
  await t.rejects(machines.find('c'), { message: 'There is no compute driver three.' })
  t.same(one.calls, ['open'])
})

t.test('a driver that fails to list its machines hides none of them', async t => {
  const { two, machines } = createPair()
  await machines.create(specOf('a', 'one'))
  await machines.create(specOf('b', 'two'))
  t.equal((await machines.list({ isComplete: true })).length, 2)
  const fault = new Error('the socket is busy')
  two.faults.list = fault
  await t.rejects(machines.list({ isComplete: true }), fault, 'who has to know of all is told')
  t.same(
    (await machines.list()).map(({ amphoraId }) => amphoraId),
    ['a', 'b'],
    'they count as unchanged',
  )
  t.same(await machines.brokenInterfaces(), ['a'])
})
