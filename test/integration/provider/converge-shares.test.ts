import { randomUUID } from 'node:crypto'
import { EventEmitter, once } from 'node:events'
import t, { type Test } from 'tap'
import { createMachineTurns } from '../../../controller/provider/amphora/act/machine-turns.js'
import type { Provider } from '../../../controller/provider/provider.js'
import { createTestDatabase } from '../../support/database/database.js'
import { addWarmAmphora, createScene, faultsOf, providerOf, type Scene } from '../../support/worlds/converge-scene.js'

/** A project that keeps creating and deleting load balancers leaves capacity for others and for repairs. */
t.test('projects share warm amphorae and machine turns', async t => {
  const testDatabase = await createTestDatabase()
  t.teardown(testDatabase.drop)
  const db = testDatabase.of('load_balancer')

  const expectSettled = async (t: Test, scene: Scene, provider: Provider) => {
    t.equal(await scene.attempt(provider), true)
    t.same(await faultsOf(db, scene, []), [])
  }

  await t.test('each project gets a few warm amphorae a minute; a failover takes any', async t => {
    const project = randomUUID()
    const takesWarm = async (scene: Scene, act: () => Promise<unknown> = async () => undefined) => {
      const provider = providerOf(db, scene.world.enter())
      const warm = await addWarmAmphora(db, scene.world)
      await act()
      t.equal(await scene.attempt(provider), true)
      const taken = (await scene.amphoraIds()).includes(warm)
      // Leave none, so that the next warm amphora is the only one.
      await db('amphora').where({ id: warm }).whereNull('load_balancer_id').delete()
      return taken
    }
    const first = await createScene(db, { project_id: project })
    t.equal(await takesWarm(first), true)
    t.equal(await takesWarm(await createScene(db, { project_id: project })), true)
    t.equal(
      await takesWarm(await createScene(db, { project_id: project })),
      false,
      'the project took two within a minute',
    )
    t.equal(await takesWarm(await createScene(db)), true)
    t.equal(await takesWarm(first, first.failOver), true)
    await db('amphora_adoption').update({ created_at: db.raw(`now() - interval '61 seconds'`) })
    t.equal(await takesWarm(await createScene(db, { project_id: project })), true)
  })

  await t.test('repairs wait for no other project; creates wait for their own project only', async t => {
    const turns = createMachineTurns(2, () => false)
    const [hostile, neighbour] = [randomUUID(), randomUUID()]
    let begun = 0
    const gate = new EventEmitter()
    const opened = once(gate, 'open')
    /** Begins a create whose machine is slow. */
    const begin = async () => {
      const scene = await createScene(db, { project_id: hostile })
      const drivers = scene.world.enter()
      const create: typeof drivers.compute.create = async spec => {
        begun += 1
        await opened
        return drivers.compute.create(spec)
      }
      const provider = providerOf(db, { ...drivers, turns, compute: { ...drivers.compute, create } })
      return { scene, done: scene.attempt(provider) }
    }
    const settledOf = async (projectId: string) => {
      const scene = await createScene(db, { project_id: projectId })
      await expectSettled(t, scene, providerOf(db, scene.world.enter()))
      return scene
    }
    const changed = await settledOf(hostile)
    const repaired = [await settledOf(hostile), await settledOf(neighbour), changed]
    const wishes = [await begin(), await begin(), await begin()]
    const fresh = await createScene(db, { project_id: neighbour })
    await expectSettled(t, fresh, providerOf(db, { ...fresh.world.enter(), turns }))
    for (const scene of repaired) {
      scene.world.stopMachine((await scene.amphoraIds())[0]!)
      await db('load_balancer').where({ id: scene.id }).update({ recheck_at: db.fn.now() })
      // A pending change does not turn the repair into a create.
      if (scene === changed) await scene.change()
      await expectSettled(t, scene, providerOf(db, { ...scene.world.enter(), turns }))
    }
    t.equal(begun, 1, 'creates of one project run one after another')
    gate.emit('open')
    for (const { scene, done } of wishes) {
      t.equal(await done, true)
      t.same(await faultsOf(db, scene, []), [])
    }
  })
})

t.test('machine turns', async t => {
  const start = (turns: ReturnType<typeof createMachineTurns>, projectId: string | null, isRepair: boolean) => {
    const gate = new EventEmitter()
    const task = { runs: false, end: () => gate.emit('end') }
    const done = turns.take({ projectId, isRepair }, () => {
      task.runs = true
      return once(gate, 'end')
    })
    return Object.assign(task, { done })
  }
  const running = async (tasks: readonly { runs: boolean }[]) => {
    await new Promise(setImmediate)
    return tasks.map(({ runs }) => runs)
  }

  t.test('give one project half of the processors, and all projects together all of them', async t => {
    const turns = createMachineTurns(4, () => false)
    const tasks = ['a', 'a', 'a', 'b', 'b', 'c'].map(project => start(turns, project, false))
    t.same(await running(tasks), [true, true, false, true, true, false])
    tasks[0]!.end()
    await tasks[0]!.done
    t.same(await running(tasks), [true, true, true, true, true, false], 'first come, first served')
    tasks[3]!.end()
    t.same(await running(tasks), [true, true, true, true, true, true])
  })

  t.test('survive an earlier failure', async t => {
    const turns = createMachineTurns(1, () => false)
    await t.rejects(
      turns.take({ projectId: 'a', isRepair: false }, () => Promise.reject(new Error('failed'))),
      /failed/,
    )
    t.equal(await turns.take({ projectId: 'a', isRepair: false }, async () => 'next'), 'next')
  })

  t.test('for repairs do not wait for creates, but are limited per project', async t => {
    const turns = createMachineTurns(2, () => false)
    const wishes = ['a', 'b', null, null].map(project => start(turns, project, false))
    const repairs = ['a', 'a', 'a', 'b', 'c', 'd'].map(project => start(turns, project, true))
    t.same(await running(wishes), [true, true, false, false])
    t.same(await running(repairs), [true, true, false, true, true, true])
    repairs[1]!.end()
    t.same(await running(repairs), [true, true, true, true, true, true])
  })
})
