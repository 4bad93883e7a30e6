import { randomUUID } from 'node:crypto'
import t from 'tap'
import { beginUpgrade } from '../../../controller/cli/commands/amphora/upgrade/begin.js'
import { readCandidates, readWorkers } from '../../../controller/cli/commands/amphora/upgrade/candidates.js'
import { carryOut, type Event } from '../../../controller/cli/commands/amphora/upgrade/carry-out.js'
import { planUpgrade, type Upgrade } from '../../../controller/cli/commands/amphora/upgrade/plan-upgrade.js'
import { connect, type Database } from '../../../controller/database/connection.js'
import { createTestDatabase } from '../../support/database/database.js'
import { changeLoadBalancer } from '../../support/database/load-balancer-rows.js'
import { startStatementProxy } from '../../support/faults/statement-proxy.js'
import { PLACEMENT_COLUMNS } from '../../support/inputs/placement.js'
import { BROKEN_AGENT } from '../../support/worlds/amphora-world.js'
import { config, createScene, providerOf, type Scene } from '../../support/worlds/converge-scene.js'

/** What the command does with PostgreSQL, and workers with amphorae in memory. */

const [OLD, NEW] = ['0'.repeat(64), '1'.repeat(64)]
const [OLD_IMAGE, NEW_IMAGE] = ['8'.repeat(64), '9'.repeat(64)]

type Test = { teardown: (task: () => unknown) => void }

/** Load balancers with an amphora each, which has the agent OLD. */
async function createFleet(t: Test, count: number) {
  const testDatabase = await createTestDatabase()
  t.teardown(testDatabase.drop)
  const db = testDatabase.of('load_balancer')
  const scenes: Scene[] = []
  for (let made = 0; made < count; made++) scenes.push(await createScene(db))
  /** One attempt of a worker with an agent, whose machines run the image NEW_IMAGE. */
  const work = (scene: Scene, bundle: string) => {
    const drivers = scene.world.enter()
    const create: typeof drivers.compute.create = async spec => ({
      ...(await drivers.compute.create(spec)),
      image: { tag: 'amphora', id: NEW_IMAGE },
    })
    const compute = { ...drivers.compute, create }
    return scene.attempt(
      providerOf(db, { ...drivers, compute }, undefined, { sha256: bundle, content: Buffer.from('an agent') }),
    )
  }
  for (const scene of scenes) {
    scene.world.bringAgent(OLD)
    const made = await work(scene, OLD)
    if (made !== true) throw made
  }
  const amphoraOf = async (scene: Scene) => (await scene.amphoraIds())[0]!
  return {
    db,
    url: testDatabase.urlOf('load_balancer'),
    scenes,
    work,
    amphoraOf,
    /** The amphora of this load balancer runs an image that is not the newest. */
    age: (scene: Scene) => db('amphora').where({ load_balancer_id: scene.id }).update({ image_id: OLD_IMAGE }),
    addWarm: async () => {
      const id = randomUUID()
      const columns = { ...PLACEMENT_COLUMNS, image_tag: 'amphora', image_id: OLD_IMAGE, agent_bundle: OLD }
      await db('amphora').insert({ id, status: 'READY', agent_version: 'test', ...columns })
      return id
    },
  }
}

type Fleet = Awaited<ReturnType<typeof createFleet>>

const planFor = async (database: Database, bundle: string) =>
  planUpgrade(await readCandidates(database, { loadBalancerId: null, imageTag: null }, 'namespace', null), {
    bundle,
    newestImage: () => NEW_IMAGE,
  }).upgrades

/** Carries upgrades out. `act` is what a worker does once one has begun; by default it is one attempt. */
async function upgrade(
  { db, scenes, work }: Fleet,
  {
    bundle = NEW,
    atOnce = 1,
    database = db,
    upgrades,
    act = (scene: Scene) => work(scene, bundle),
  }: {
    bundle?: string
    atOnce?: number
    database?: Database
    upgrades?: readonly Upgrade[]
    act?: (scene: Scene) => Promise<unknown>
  } = {},
) {
  const events: [string, Event][] = []
  const working: Promise<unknown>[] = []
  try {
    const outcome = await carryOut(database, upgrades ?? (await planFor(database, bundle)), {
      bundle,
      atOnce,
      begin: one => beginUpgrade({ database, config: config.load_balancer }, one, bundle),
      signal: new AbortController().signal,
      report: (one, event) => {
        events.push([one.amphora.id, event])
        const scene = scenes.find(({ id }) => id === one.amphora.loadBalancerId)
        if (event === 'begun' && scene !== undefined) working.push(act(scene))
        if (event === 'begun' && scene === undefined) working.push(removeRetired(db))
      },
    })
    return { outcome, events }
  } finally {
    await Promise.all(working)
  }
}

/** As housekeeping does. */
async function removeRetired(db: Database): Promise<void> {
  await db('amphora').where({ status: 'PENDING_DELETE', load_balancer_id: null }).delete()
}

t.test('after the first failure no other upgrade begins', async t => {
  const fleet = await createFleet(t, 3)
  const { db, scenes, work, amphoraOf } = fleet
  const { outcome, events } = await upgrade(fleet, { bundle: BROKEN_AGENT })
  t.match(outcome, { done: 0, left: 0, waiting: 2, running: 0, failed: { why: /the former one is back/ } })
  t.same(events, [[await amphoraOf(scenes[0]!), 'begun']])
  t.match(
    (await db('amphora').orderBy('created_at')).map(row => [row.upgrade_to, row.agent_bundle]),
    [1, 2, 3].map(() => [null, OLD]),
  )

  for (const scene of scenes) await fleet.age(scene)
  const fault = { fault: JSON.stringify({ code: 'compute-unavailable', text: 'No memory is left.' }) }
  const failing = await upgrade(fleet, {
    atOnce: 2,
    act: async scene => {
      if (scene !== scenes[0]) return work(scene, NEW)
      await db('load_balancer')
        .where({ id: scene.id })
        .update({ ...fault, fault_generation: db.ref('generation') })
    },
  })
  t.match(
    failing.outcome,
    { done: 1, waiting: 1, running: 0, failed: { why: 'No memory is left.' } },
    'the one under way is waited for',
  )
  await db('load_balancer').update({ fault: null, fault_generation: null })
  t.match((await upgrade(fleet, { atOnce: 2 })).outcome, { done: 2, waiting: 0, failed: null }, 'the next call goes on')
  t.same(await planFor(db, NEW), [])
})

t.test('an amphora that changes before its upgrade begins is left alone, and the others go on', async t => {
  const fleet = await createFleet(t, 5)
  const { db, scenes, amphoraOf } = fleet
  const [leaving, gone, deleted, inPlace, replaced] = scenes as [Scene, Scene, Scene, Scene, Scene]
  for (const scene of [gone, deleted, replaced]) await fleet.age(scene)
  const [adopted, repaired] = [await fleet.addWarm(), await fleet.addWarm()]
  const upgrades = await planFor(db, NEW)
  t.equal(upgrades.length, 7)
  await db('amphora')
    .where({ id: adopted })
    .update({ load_balancer_id: leaving.id, status: 'ALLOCATED', role: 'BACKUP' })
  await db('amphora').where({ id: repaired }).update({ status: 'BOOTING' })
  const ids = (await Promise.all(scenes.map(amphoraOf))) as [string, string, string, string, string]
  const former = (await leaving.amphoraIds()).find(id => id !== adopted) ?? ''
  await db('amphora').whereIn('id', [former, ids[1]]).update({ status: 'PENDING_DELETE' })
  await changeLoadBalancer(db, deleted.id, 'delete')
  const generation = async () => (await db('load_balancer').where({ id: gone.id }).first()).generation
  const before = await generation()
  const { outcome, events } = await upgrade(fleet, { upgrades })
  t.match(outcome, { done: 2, left: 5, waiting: 0, running: 0, failed: null })
  const reasons = new Map(
    events.flatMap(([id, event]) => (typeof event === 'object' && 'left' in event ? [[id, event.left]] : [])),
  )
  t.same(
    reasons,
    new Map([
      [adopted, 'a load balancer has taken it from the warm pool'],
      [repaired, 'it has changed meanwhile'],
      [former, 'it has changed meanwhile'],
      [ids[1], 'it has changed meanwhile'],
      [ids[2], 'its load balancer is being deleted'],
    ]),
  )
  t.equal(await generation(), before, 'no change is made for nothing')
  t.same(await inPlace.amphoraIds(), [ids[3]])
  t.match(await db('amphora').where({ id: ids[3] }).first(), { agent_bundle: NEW })
  t.notSame(await replaced.amphoraIds(), [ids[4]])
})

t.test('whichever statement it is killed at, the next call finishes what has begun', async t => {
  const fleet = await createFleet(t, 2)
  const { db, url, scenes } = fleet
  const [inPlace, replaced] = scenes as [Scene, Scene]
  let asked = 0
  for (let isOver = false; !isOver; asked++) {
    const [amphora] = await inPlace.amphoraIds()
    await db('amphora').where({ id: amphora }).update({ agent_bundle: OLD, image_id: NEW_IMAGE })
    inPlace.world.machines.get(amphora!)!.bundle = OLD
    await fleet.age(replaced)
    const before = await replaced.amphoraIds()
    const warm = await fleet.addWarm()

    const proxy = await startStatementProxy(url)
    const database = connect({ url: proxy.url, applicationName: 'killed', poolSize: 2 })
    let passed = 0
    proxy.watch(async ({ at }) => {
      if (at === 'answered' || passed++ < asked) return
      // PostgreSQL sees what it sees of a process that is killed.
      await proxy.stop()
    })
    isOver = await upgrade(fleet, { atOnce: 3, database }).then(
      () => true,
      () => false,
    )
    await database.destroy()
    await proxy.stop()
    if (asked > 40) throw new Error('the command makes no end of statements')

    await upgrade(fleet, { atOnce: 3 })
    await removeRetired(db)
    t.same(await planFor(db, NEW), [], `dead at statement ${asked}`)
    t.match(await db('amphora').where({ load_balancer_id: inPlace.id }), [
      { id: amphora, agent_bundle: NEW, upgrade_to: null },
    ])
    const after = await replaced.amphoraIds()
    t.equal(after.length, 1)
    t.notSame(after, before)
    t.same([...replaced.world.machines.keys()], after, 'no machine is left over')
    t.same(await db('amphora').where({ id: warm }), [])
  }
  t.ok(asked > 8, `${asked} statements`)
})

t.test('each host has its own amphorae and workers', async t => {
  const fleet = await createFleet(t, 3)
  const { db, scenes, amphoraOf } = fleet
  const [here, there] = [randomUUID(), randomUUID()]
  await db('controller_host').insert([
    { id: here, name: 'one' },
    { id: there, name: 'two' },
  ])
  const [own, other, unbound] = await Promise.all(scenes.map(amphoraOf))
  await db('amphora').where({ id: own }).update({ host_id: here })
  await db('amphora').where({ id: other }).update({ host_id: there })
  const candidates = await readCandidates(db, { loadBalancerId: null, imageTag: null }, 'namespace', here)
  t.same(
    new Map(candidates.map(({ id, elsewhere }) => [id, elsewhere])),
    new Map([
      [own, null],
      [other, 'two'],
      [unbound, null],
    ]),
  )
  const workers = (...ids: (string | undefined)[]) =>
    readWorkers(
      db,
      NEW,
      here,
      candidates.filter(({ id }) => ids.includes(id)),
    )
  const sign = { name: 'worker', pid: 1, version: '1', owner: 'w' }
  await db('controller_process').insert({ ...sign, host_id: there })
  await db('controller_bundle').insert([{ sha256: NEW }, { sha256: OLD }])
  t.same(await workers(own), { own: true, others: 1, here: false }, 'only another host has a worker')
  t.same(await workers(unbound), { own: true, others: 1, here: true }, 'any worker will do')
  await db('controller_process').insert({ ...sign, host_id: here })
  t.same(await workers(own, unbound), { own: true, others: 1, here: true })
})
