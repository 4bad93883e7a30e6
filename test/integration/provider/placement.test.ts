import { randomUUID } from 'node:crypto'
import t from 'tap'
import { type ComputeDriver, ComputeUnavailable, type MachineSpec } from '../../../controller/compute/driver.js'
import { migrations } from '../../../controller/load-balancer/migrations/index.js'
import { createTestDatabase } from '../../support/database/database.js'
import { rulesOf } from '../../support/inputs/placement.js'
import type { AmphoraWorld } from '../../support/worlds/amphora-world.js'
import { addWarmAmphora, createScene, providerOf } from '../../support/worlds/converge-scene.js'

const SETTINGS = {
  flavors: { large: { driver: 'namespace', memory: 4096, cores: 4 } },
  zones: { east: { driver: 'namespace' } },
}

t.test('amphorae get the machines that their load balancer asks for', async t => {
  const testDatabase = await createTestDatabase()
  t.teardown(testDatabase.drop)
  const db = testDatabase.of('load_balancer')

  /** Columns of a load balancer with such a flavor and availability zone. */
  async function asking(flavor: object, zone: object | null = null) {
    const [profile, id, name] = [randomUUID(), randomUUID(), randomUUID()]
    const data = { name, provider_name: 'amphora' }
    await db('flavor_profile').insert({ ...data, id: profile, flavor_data: JSON.stringify(flavor) })
    await db('flavor').insert({ id, name, flavor_profile_id: profile })
    if (zone === null) return { flavor_id: id }
    await db('availability_zone_profile').insert({ ...data, id: profile, availability_zone_data: JSON.stringify(zone) })
    await db('availability_zone').insert({ name, availability_zone_profile_id: profile })
    return { flavor_id: id, availability_zone: name }
  }

  /** A worker with these settings, and the machines that it created. */
  function workerIn(
    world: AmphoraWorld,
    compute: object = SETTINGS,
    change: Partial<ComputeDriver> = {},
    images: ReadonlyMap<string, string> = new Map(),
  ) {
    const drivers = world.enter()
    const created: MachineSpec[] = []
    const create = (spec: MachineSpec) => {
      created.push(spec)
      return drivers.compute.create(spec)
    }
    const parts = {
      ...{ ...drivers, placement: rulesOf(compute), images: () => images },
      compute: { ...drivers.compute, create, ...change },
    }
    return { created, provider: providerOf(db, parts) }
  }
  const rowsOf = (id: string) => db('amphora').where({ load_balancer_id: id }).orderBy('created_at')

  await t.test('of its flavor and zone, with the size that the settings say', async t => {
    const scene = await createScene(db, await asking({ compute_flavor: 'large' }, { compute_zone: 'east' }))
    const { created, provider } = workerIn(scene.world)
    t.equal(await scene.attempt(provider), true)
    const placement = { driver: 'namespace', flavor: 'large', zone: 'east', memoryMiB: 4096, cores: 4 }
    t.match(created, [{ placement, apart: [] }])
    t.match(await rowsOf(scene.id), [
      { compute_driver: 'namespace', compute_flavor: 'large', cached_zone: 'east', agent_version: /./ },
    ])
  })

  await t.test('from the warm pool only if they fit', async t => {
    const scene = await createScene(db, await asking({ compute_flavor: 'large' }))
    const standard = await addWarmAmphora(db, scene.world, { cached_zone: 'local' })
    const large = await addWarmAmphora(db, scene.world, { cached_zone: 'local', compute_flavor: 'large' })
    t.equal(await scene.attempt(workerIn(scene.world).provider), true)
    t.same(await scene.amphoraIds(), [large])

    const other = await createScene(db, await asking({}, { compute_zone: 'east' }))
    t.equal(await other.attempt(workerIn(other.world).provider), true)
    t.notSame(await other.amphoraIds(), [standard], 'it is in another zone')
    const tagged = await createScene(db, await asking({ amp_image_tag: 'beta' }))
    await addWarmAmphora(db, tagged.world, { image_tag: 'amphora' })
    const last = workerIn(tagged.world)
    t.equal(await tagged.attempt(last.provider), true)
    t.match(last.created, [{ placement: { imageTag: 'beta' } }], 'the warm one runs another image')
    await db('amphora').where({ status: 'READY' }).delete()
  })

  await t.test('from the warm pool only with the newest image', async t => {
    const images = new Map([
      ['amphora', 'new'],
      ['beta', 'newer'],
    ])
    const first = await createScene(db)
    const old = await addWarmAmphora(db, first.world, { image_tag: 'amphora', image_id: 'old' })
    const worker = workerIn(first.world, {}, {}, images)
    t.equal(await first.attempt(worker.provider), true)
    t.equal(worker.created.length, 1)
    t.notSame(await first.amphoraIds(), [old])

    const second = await createScene(db, await asking({ amp_image_tag: 'beta' }))
    await addWarmAmphora(db, second.world, { image_tag: 'beta', image_id: 'new' })
    const beta = await addWarmAmphora(db, second.world, { image_tag: 'beta', image_id: 'newer' })
    t.equal(await second.attempt(workerIn(second.world, {}, {}, images).provider), true)
    t.same(await second.amphoraIds(), [beta])

    const third = await createScene(db)
    for (const [id, machine] of first.world.machines) third.world.machines.set(id, machine)
    t.equal(await third.attempt(workerIn(third.world, {}).provider), true)
    t.same(await third.amphoraIds(), [old], 'without any image, each will do')
    await db('amphora').where({ status: 'READY' }).delete()
  })

  await t.test('of a pair apart from each other, also after one is replaced', async t => {
    const scene = await createScene(db, { topology: 'ACTIVE_STANDBY' })
    const first = workerIn(scene.world)
    t.equal(await scene.attempt(first.provider), true)
    const [one, two] = await scene.amphoraIds()
    t.same(
      new Map(first.created.map(({ amphoraId, apart }) => [amphoraId, apart])),
      new Map([
        [one, [two]],
        [two, [one]],
      ]),
    )
    await scene.hear(0)
    await db('amphora').where({ id: one }).update({ replace_generation: 1 })
    const second = workerIn(scene.world)
    t.equal(await scene.attempt(second.provider), true)
    t.same(
      second.created.map(({ apart }) => apart),
      [[two]],
      'not from the one that it replaces',
    )
  })

  await t.test('of a pair in two zones, if the pool has both', async t => {
    const scene = await createScene(db, { topology: 'ACTIVE_STANDBY' })
    await addWarmAmphora(db, scene.world, { cached_zone: 'a' })
    await addWarmAmphora(db, scene.world, { cached_zone: 'a' })
    await addWarmAmphora(db, scene.world, { cached_zone: 'b' })
    t.equal(await scene.attempt(workerIn(scene.world).provider), true)
    t.same((await rowsOf(scene.id)).map(row => row.cached_zone).sort(), ['a', 'b'])
    await db('amphora').where({ status: 'READY' }).delete()
  })

  await t.test('again when they must be created again, whatever the settings say by then', async t => {
    const scene = await createScene(db, await asking({ compute_flavor: 'large' }))
    t.equal(await scene.attempt(workerIn(scene.world).provider), true)
    const [amphora] = await scene.amphoraIds()
    scene.world.machines.delete(amphora!)
    await db('load_balancer')
      .where({ id: scene.id })
      .update({ recheck_at: db.raw('now()') })
    const later = workerIn(scene.world, {})
    t.equal(await scene.attempt(later.provider), true)
    t.match(later.created, [
      { amphoraId: amphora, placement: { flavor: 'large', driver: 'namespace', memoryMiB: 2048 } },
    ])
  })

  await t.test('or the reason why not, until the settings or the host change', async t => {
    const scene = await createScene(db, await asking({ compute_flavor: 'large' }))
    const lacks = await scene.attempt(workerIn(scene.world, {}).provider)
    t.match(lacks, { code: 'placement', message: /^There is no compute flavor large, only namespace/ })
    const unable = { create: () => Promise.reject(new ComputeUnavailable('This host has no hypervisor.')) }
    const cannot = await scene.attempt(workerIn(scene.world, SETTINGS, unable).provider)
    t.match(cannot, { code: 'compute-unavailable', message: 'This host has no hypervisor.' })
    t.equal(await scene.attempt(workerIn(scene.world).provider), true)
  })
})

t.test('an installation of an earlier version keeps its amphorae', async t => {
  const testDatabase = await createTestDatabase()
  t.teardown(testDatabase.drop)
  const db = testDatabase.of('load_balancer')
  const upgrade = migrations.find(({ name }) => name === '020-placement')
  const scene = await createScene(db)
  t.equal(await scene.attempt(providerOf(db, scene.world.enter())), true)
  const warm = await addWarmAmphora(db, scene.world, { cached_zone: 'local' })
  const columns = ['compute_driver', 'image_tag', 'image_id', 'agent_version'] as const
  await db.schema.alterTable('amphora', table => table.dropColumns(...columns))
  await db('amphora').where({ id: warm }).update({ compute_flavor: null })
  await db.transaction(async trx => upgrade?.up(trx))
  t.match(await db('amphora').select('compute_driver', 'compute_flavor'), [
    { compute_driver: 'namespace', compute_flavor: 'namespace' },
    { compute_driver: 'namespace', compute_flavor: 'namespace' },
  ])
  const next = await createScene(db)
  for (const [id, machine] of scene.world.machines) next.world.machines.set(id, machine)
  t.equal(await next.attempt(providerOf(db, next.world.enter())), true)
  t.same(await next.amphoraIds(), [warm], 'its warm amphorae are those of the standard flavor')
})
