import { randomUUID } from 'node:crypto'
import t, { type Test } from 'tap'
import { checkReach } from '../../../controller/housekeeping/reach-check.js'
import { takeRestart } from '../../../controller/provider/amphora/act/restart-limiter.js'
import type { Provider } from '../../../controller/provider/provider.js'
import { createTestDatabase } from '../../support/database/database.js'
import { createScene, faultsOf, log, providerOf, type Scene } from '../../support/worlds/converge-scene.js'

t.test('an amphora that cannot be reached', async t => {
  const testDatabase = await createTestDatabase()
  t.teardown(testDatabase.drop)
  const db = testDatabase.of('load_balancer')

  const createSettled = async (t: Test) => {
    const scene = await createScene(db)
    const provider = providerOf(db, scene.world.enter())
    await expectSettled(t, scene, provider)
    return { scene, provider, amphora: (await scene.amphoraIds())[0]! }
  }
  const expectSettled = async (t: Test, scene: Scene, provider: Provider) => {
    t.equal(await scene.attempt(provider), true)
    t.same(await faultsOf(db, scene, []), [])
  }
  const machineCalls = ({ world }: Scene) => world.calls.filter(call => call === 'create' || call === 'delete')

  await t.test('and does not serve causes a fault first, and is restarted when it stays silent', async t => {
    const { scene, provider, amphora } = await createSettled(t)
    scene.world.hangAgent(amphora)
    await scene.change()
    t.match(await scene.attempt(provider), { code: 'amphora-unreachable' })
    await scene.letTimePass()
    await expectSettled(t, scene, provider)
    t.same(await scene.amphoraIds(), [amphora])
    await t.test('the fourth restart within minutes meets the project’s limit', async t => {
      for (let restart = 2; restart <= 4; restart++) {
        scene.world.hangAgent(amphora)
        await scene.letTimePass()
        await scene.change()
        const result = await scene.attempt(providerOf(db, scene.world.enter()))
        if (restart < 4) t.equal(result, true, 'any worker may restart it')
        else t.match(result, { code: 'restart-limit' })
      }
      await db('amphora_restart').update({ created_at: db.raw(`now() - interval '301 seconds'`) })
      await expectSettled(t, scene, provider)
    })
  })

  await t.test('but serves is never restarted, and is configured once reachable again', async t => {
    const { scene, provider, amphora } = await createSettled(t)
    const before = machineCalls(scene)
    scene.world.cut(amphora)
    await scene.hear(600)
    await scene.letTimePass()
    await db('load_balancer').where({ id: scene.id }).update({ recheck_at: db.fn.now() })
    t.equal(await scene.attempt(provider), true, 'an amphora that serves needs no repair')
    await scene.change()
    t.match(await scene.attempt(provider), {
      code: 'amphora-unreachable',
      message: /carries traffic but cannot be reached/,
    })
    await db('amphora')
      .where({ id: amphora })
      .update({ unreachable_since: new Date(0) })
    t.match(
      await scene.attempt(provider),
      { code: 'amphora-unreachable' },
      'a fault, however long the amphora is unreachable',
    )
    t.same(machineCalls(scene), before)
    scene.world.cut(amphora, false)
    await expectSettled(t, scene, provider)
    t.same(await scene.amphoraIds(), [amphora])
    t.equal((await db('amphora').where({ id: amphora }).first()).unreachable_since, null)
  })

  await t.test('but sends heartbeats is replaced, and serves until its successor does', async t => {
    const { scene, provider, amphora } = await createSettled(t)
    scene.world.cut(amphora)
    await scene.hear(1)
    await scene.change()
    t.match(await scene.attempt(provider), { code: 'amphora-unreachable', message: /sends heartbeats/ })
    await db('amphora')
      .where({ id: amphora })
      .update({ unreachable_since: db.raw(`now() - interval '61 seconds'`) })
    scene.world.calls.length = 0
    await expectSettled(t, scene, provider)
    t.not((await scene.amphoraIds())[0], amphora)
    const { calls } = scene.world
    t.ok(calls.indexOf('create') < calls.lastIndexOf('apply') && calls.lastIndexOf('apply') < calls.indexOf('delete'))
    t.equal(await db('amphora_restart').where({ amphora_id: amphora }).first('amphora_id').then(Boolean), true)
  })

  await t.test('is not replaced for time during which the network was down', async t => {
    const { scene, provider, amphora } = await createSettled(t)
    const { agents } = scene.world.enter()
    const reach = {
      database: db,
      agents,
      masterKey: Buffer.alloc(32, 7),
      hostId: null,
      staleAfterSeconds: 15,
      replaceAfterSeconds: 60,
    }
    scene.world.cut(amphora)
    await scene.hear(1)
    await db('amphora_health').where({ amphora_id: amphora }).update({ heard_since: db.fn.now() })
    const unreachableSince = db.raw(`now() - interval '300 seconds'`)
    await db('amphora').where({ id: amphora }).update({ unreachable_since: unreachableSince, checked_at: db.fn.now() })
    await checkReach({ ...reach, log })
    t.equal((await db('load_balancer').where({ id: scene.id }).first()).recheck_at, null)
    await scene.change()
    t.match(await scene.attempt(provider), { code: 'amphora-unreachable', message: /sends heartbeats/ })
    scene.world.cut(amphora, false)
    await expectSettled(t, scene, provider)
    t.same(await scene.amphoraIds(), [amphora])
  })

  await t.test('is found without a change', async t => {
    const { scene, amphora } = await createSettled(t)
    const { agents } = scene.world.enter()
    const masterKey = Buffer.alloc(32, 7)
    const check = () =>
      checkReach({ database: db, agents, hostId: null, masterKey, staleAfterSeconds: 15, replaceAfterSeconds: 60, log })
    const rowOf = () => db('amphora').where({ id: amphora }).first()
    await check()
    t.equal((await rowOf()).unreachable_since, null)
    scene.world.cut(amphora)
    await scene.hear(1)
    await check()
    t.equal((await rowOf()).unreachable_since, null, 'its next check is not due yet')
    await db('amphora')
      .where({ id: amphora })
      .update({ checked_at: new Date(0) })
    await check()
    t.ok((await rowOf()).unreachable_since)
    t.equal((await db('load_balancer').where({ id: scene.id }).first()).recheck_at, null)
    await db('amphora')
      .where({ id: amphora })
      .update({ unreachable_since: db.raw(`now() - interval '61 seconds'`) })
    await check()
    t.ok((await db('load_balancer').where({ id: scene.id }).first()).recheck_at)
  })

  await t.test('or inspected is restarted only if other amphorae still send heartbeats', async t => {
    const { scene, provider, amphora } = await createSettled(t)
    const others = [await createSettled(t), await createSettled(t)]
    scene.world.makeOpaque()
    scene.world.hangAgent(amphora)
    await scene.change()
    await scene.letTimePass()
    const before = machineCalls(scene)
    await db('amphora').update({ created_at: new Date(0) })
    for (const other of [{ scene }, ...others]) await other.scene.hear(60)
    t.match(await scene.attempt(provider), { code: 'amphora-unreachable' }, 'no restart when all amphorae fell silent')
    t.same(machineCalls(scene), before)
    for (const other of others) await other.scene.hear(1)
    await expectSettled(t, scene, provider)
  })

  await t.test('restarts are limited per project and overall, however many workers ask at once', async t => {
    await db('amphora_restart').delete()
    const limits = { perProject: 3, overall: 5, windowSeconds: 300 }
    const take = (project: string) => takeRestart(db, project, randomUUID(), limits)
    const taken = await Promise.all(Array.from({ length: 10 }, () => take('greedy')))
    t.equal(taken.filter(Boolean).length, 3)
    t.equal(await take('another'), true)
    t.equal(await take('a third'), true)
    t.equal(await take('a fourth'), false, 'the overall limit is reached')
  })
})
