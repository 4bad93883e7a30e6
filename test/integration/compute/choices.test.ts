import { randomUUID } from 'node:crypto'
import { join } from 'node:path'
import t from 'tap'
import type { ComputeContext } from '../../../controller/compute/kind.js'
import { createMachines } from '../../../controller/compute/machines.js'
import { namespaceKind } from '../../../controller/compute/namespace/kind.js'
import { asOperator, createLab, createPort, quiet } from '../../support/worlds/machines.js'
import { bundle } from '../../support/worlds/programs.js'

const programs = t.testdir({})
await bundle({ agent: join(import.meta.dirname, '../../../amphora-agent/main.ts') }, programs)
const agentBundle = join(programs, 'agent.mjs')
const lab = await createLab({ agentBundle })
t.teardown(() => lab.destroy())

t.test('machines of two drivers stand side by side', async t => {
  const other = await createLab({ agentBundle })
  t.teardown(() => other.destroy())
  const [mine, theirs] = [lab.amphora(), other.amphora()]
  const drivers = { namespace: lab.driver, another: other.driver }
  const rows = new Map([
    [mine.target.amphoraId, 'namespace'],
    [theirs.target.amphoraId, 'another'],
  ])
  const machines = createMachines({
    kinds: Object.entries(drivers).map(([name, opened]) => ({ ...namespaceKind, name, open: async () => opened })),
    context: {} as ComputeContext,
    driverOf: async id => rows.get(id) ?? null,
    log: quiet,
  })
  const placement = { ...theirs.spec.placement, driver: 'another' }
  await Promise.all([machines.create(mine.spec), machines.create({ ...theirs.spec, placement })])
  t.same((await machines.list()).map(({ amphoraId }) => amphoraId).sort(), [...rows.keys()].sort())
  t.equal(await asOperator(mine.target, lab.operatorKey, 'echo here'), 'here\n')
  t.equal(await asOperator(theirs.target, other.operatorKey, 'echo there'), 'there\n')
  const port = createPort(randomUUID(), '192.0.2.7')
  await machines.plug(theirs.target.amphoraId, port, 'tests')
  t.match(await machines.pluggedPorts(theirs.target.amphoraId), [{ id: port.id }])
  t.same(await machines.pluggedPorts(mine.target.amphoraId), [])
  await machines.delete(theirs.target.amphoraId)
  t.equal(await other.driver.find(theirs.target.amphoraId), null)
  t.match(await machines.find(mine.target.amphoraId), { state: 'running' })
  rows.clear()
  await machines.delete(mine.target.amphoraId)
  t.same(await machines.list(), [], 'without a row, too')
})
