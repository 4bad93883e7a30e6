import { randomUUID } from 'node:crypto'
import t from 'tap'
import { configurationSchema } from '../../../controller/config/schema.js'
import { startHousekeeping } from '../../../controller/housekeeping/housekeeping.js'
import { sweepOrphans } from '../../../controller/housekeeping/orphan-sweep.js'
import { checkWarmPool, sizeWarmPool } from '../../../controller/housekeeping/warm-pool.js'
import { channelAccessOf } from '../../../controller/key-channel/keys.js'
import { createLog } from '../../../controller/log/log.js'
import { AgentUnreachable } from '../../../controller/provider/amphora/agent/errors.js'
import { createTestDatabase } from '../../support/database/database.js'
import { insertLoadBalancer } from '../../support/database/load-balancer-rows.js'
import { eventually } from '../../support/eventually.js'
import { PLACEMENT, PLACEMENT_COLUMNS, rulesOf } from '../../support/inputs/placement.js'
import { type AmphoraWorld, createAmphoraWorld, VIP_SUBNET } from '../../support/worlds/amphora-world.js'
import { addWarmAmphora } from '../../support/worlds/converge-scene.js'
import { NO_BINDINGS, NO_CHALLENGES, NO_KEY_CHANNEL } from '../../support/worlds/unbound.js'

const log = createLog('test', 'silent')

t.test('housekeeping', async t => {
  const testDatabase = await createTestDatabase()
  t.teardown(testDatabase.drop)
  const db = testDatabase.of('load_balancer')

  const start = (world: AmphoraWorld, warm: number, drivers: Partial<ReturnType<AmphoraWorld['enter']>> = {}) =>
    startHousekeeping({
      ...world.enter(),
      ...drivers,
      database: db,
      hostId: null,
      lookAround: null,
      masterKey: Buffer.alloc(32, 7),
      controllerPublicKey: 'ssh-ed25519 AAAA controller',
      operatorPublicKey: 'ssh-ed25519 AAAA operator',
      healthManagers: [],
      keyChannel: NO_KEY_CHANNEL,
      bindings: NO_BINDINGS,
      challenges: NO_CHALLENGES,
      placement: rulesOf({ warm_amphorae: warm }),
      images: () => new Map(),
      agentBundle: null,
      config: configurationSchema.parse({ housekeeping: { sweep_interval: 0.1 } }),
      log,
      poolIntervalSeconds: 0.05,
    })
  const warmIds = (status: string) =>
    db('amphora').whereNull('load_balancer_id').where({ status }).orderBy('created_at').pluck<string[]>('id')
  const ready = (count: number) =>
    eventually(`${count} amphorae are READY`, async () => {
      const all = await db('amphora').whereNull('load_balancer_id').select('status')
      return all.length === count && all.every(row => row.status === 'READY')
    })

  await t.test('the pool is filled, and by two housekeepers only once', async t => {
    const world = createAmphoraWorld()
    const both = [await start(world, 3), await start(world, 3)]
    await ready(3)
    t.equal(world.machines.size, 3)
    t.equal(world.portsOwnedBy('management').length, 3)
    const [row] = await db('amphora')
    t.match(row, {
      compute_id: row.id,
      lb_network_ip: /^10\.0\.0\./,
      lease_owner: null,
      lease_until: null,
      role: null,
    })

    await t.test('a warm amphora that is taken is replaced', async t => {
      const loadBalancer = await insertLoadBalancer(db)
      const [taken] = await warmIds('READY')
      await db('amphora').where({ id: taken }).update({ load_balancer_id: loadBalancer, status: 'ALLOCATED' })
      await ready(3)
      t.ok(world.machines.has(taken!), 'the amphora in use is left alone')
      await db('amphora').where({ id: taken }).delete()
    })

    await t.test('a warm machine that stopped is restarted under the same id', async t => {
      const [id] = await warmIds('READY')
      world.stopMachine(id!)
      await eventually('the machine runs again', () => world.machines.get(id!)?.state === 'running')
      await ready(3)
      t.ok((await warmIds('READY')).includes(id!))
    })

    await t.test('a warm amphora whose agent is silent is replaced', async t => {
      const [id] = await warmIds('READY')
      world.hangAgent(id!)
      await eventually('the amphora is no longer READY', async () => !(await warmIds('READY')).includes(id!))
      await ready(3)
      await eventually('its row is deleted', async () => (await db('amphora').where({ id })).length === 0)
      t.notOk(world.machines.has(id!))
      t.notOk(world.portsOwnedBy('management').some(port => port.deviceId === id))
    })

    for (const housekeeper of both) await housekeeper.stop()
    await t.test('a smaller pool deletes the surplus and all that belongs to it', async t => {
      const smaller = await start(world, 1)
      await ready(1)
      await eventually('one machine is left', () => world.machines.size === 1)
      t.equal(world.portsOwnedBy('management').length, 1)
      await smaller.stop()
      const none = await start(world, 0)
      await ready(0)
      await none.stop()
      t.equal(world.machines.size + world.ports.size, 0)
    })
  })

  await t.test('housekeepers that size the pool at the same moment agree', async t => {
    const parts = {
      ...createAmphoraWorld().enter(),
      hostId: null,
      masterKey: Buffer.alloc(32, 7),
      controllerPublicKey: '',
      operatorPublicKey: '',
      healthManagers: [],
      keyChannel: NO_KEY_CHANNEL,
      beatIntervalSeconds: 3,
      images: () => new Map(),
      agentBundle: null,
    }
    const { signal } = new AbortController()
    for (const size of [4, 1, 3]) {
      const placement = rulesOf({ warm_amphorae: size })
      const pool = { database: db, parts: { ...parts, placement }, owner: 'test', log, signal }
      await Promise.all(Array.from({ length: 8 }, () => sizeWarmPool(pool)))
      t.equal((await warmIds('BOOTING')).length, size)
    }
    await db('amphora').delete()
  })

  await t.test(
    'the pool has as many amphorae of each flavor as the settings say, and none that they do not',
    async t => {
      const drivers = createAmphoraWorld().enter()
      const parts = {
        ...{
          ...drivers,
          images: () => new Map<string, string>(),
          agentBundle: null,
          hostId: null,
          masterKey: Buffer.alloc(32, 7),
          controllerPublicKey: '',
          operatorPublicKey: '',
        },
        ...{ healthManagers: [], keyChannel: NO_KEY_CHANNEL, beatIntervalSeconds: 3 },
      }
      const { signal } = new AbortController()
      const size = (compute: object) =>
        sizeWarmPool({ database: db, parts: { ...parts, placement: rulesOf(compute) }, owner: 'test', log, signal })
      const pooled = async () => {
        const rows = await db('amphora').where({ status: 'BOOTING' }).select('compute_flavor', 'image_tag')
        return rows.map(row => [row.compute_flavor, row.image_tag].filter(text => text !== null).join(' ')).sort()
      }
      const large = { driver: 'namespace', memory: 4096, warm: 2 }
      await size({ flavors: { large } })
      t.same(await pooled(), ['large', 'large', 'namespace'])
      await size({ flavors: { large: { ...large, warm: 1 } }, warm_amphorae: 0 })
      t.same(await pooled(), ['large'])
      await db('amphora').where({ compute_flavor: 'large' }).update({ image_tag: 'amphora' })
      await size({ flavors: { large: { ...large, warm: 1 } }, warm_amphorae: 0 })
      t.same(await pooled(), ['large amphora'], 'the image that the driver chose is as good as any')
      await size({ flavors: { large: { ...large, image_tag: 'beta' } }, warm_amphorae: 0 })
      t.same(await pooled(), ['large beta', 'large beta'], 'another image is not')
      await db('amphora').update({ compute_driver: 'gone' })
      await size({ flavors: { large } })
      t.same(await pooled(), ['large', 'large', 'namespace'], 'amphorae of another driver are replaced')
      await size({ warm_amphorae: 0 })
      t.same(await pooled(), [])
      await db('amphora').delete()
    },
  )

  await t.test('warm amphorae that run an older image are removed, and others made', async t => {
    const world = createAmphoraWorld()
    const [old, current] = [
      await addWarmAmphora(db, world, { image_tag: 'amphora', image_id: 'old' }),
      await addWarmAmphora(db, world, { image_tag: 'amphora', image_id: 'new' }),
    ]
    const [tagged, without] = [
      await addWarmAmphora(db, world, { image_tag: 'beta', image_id: 'old' }),
      await addWarmAmphora(db, world),
    ]
    const images = new Map([['amphora', 'new']])
    const parts = {
      ...{ ...world.enter(), placement: rulesOf(), images: () => images, agentBundle: null, hostId: null },
      ...{ masterKey: Buffer.alloc(32, 7), controllerPublicKey: '', operatorPublicKey: '' },
      ...{ healthManagers: [], keyChannel: NO_KEY_CHANNEL, beatIntervalSeconds: 3 },
    }
    await checkWarmPool({ database: db, parts, owner: 'test', log, signal: new AbortController().signal })
    const statuses = new Map((await db('amphora')).map(row => [row.id, row.status]))
    t.equal(statuses.get(old), 'PENDING_DELETE')
    t.equal(statuses.get(without), 'PENDING_DELETE', 'a new one would run an image')
    t.equal(statuses.get(current), 'READY')
    t.equal(statuses.get(tagged), 'READY', 'there is no newer image with its tag')
    await db('amphora').delete()
  })

  await t.test('what a dead housekeeper left unfinished is finished by another', async t => {
    const world = createAmphoraWorld()
    const id = randomUUID()
    await db('amphora').insert({
      id,
      status: 'BOOTING',
      ...PLACEMENT_COLUMNS,
      lease_owner: 'dead',
      lease_until: db.raw(`now() + interval '300 milliseconds'`),
    })
    const housekeeper = await start(world, 1)
    await ready(1)
    t.same(await warmIds('READY'), [id])
    await housekeeper.stop()
    await db('amphora').delete()
  })

  await t.test('an amphora that never answers is eventually removed and leaves nothing', async t => {
    const world = createAmphoraWorld()
    const drivers = world.enter()
    const doomed = randomUUID()
    await db('amphora').insert({ id: doomed, status: 'BOOTING', ...PLACEMENT_COLUMNS })
    const agents = {
      ...drivers.agents,
      request: (...[target, body, limits]: Parameters<typeof drivers.agents.request>) =>
        target.amphoraId === doomed
          ? Promise.reject(new Error('no such agent'))
          : drivers.agents.request(target, body, limits),
    }
    const housekeeper = await start(world, 1, { agents: agents as typeof drivers.agents })
    for (let attempt = 1; attempt <= 3; attempt++) {
      await eventually('an attempt is made', async () => {
        const row = await db('amphora').where({ id: doomed }).first()
        return row === undefined || (row.status === 'BOOTING' && Number(row.fence) >= attempt) || row.status === 'ERROR'
      })
      // The lease sets the pause; the test does not wait for it.
      await new Promise(resolve => setTimeout(resolve, 100))
      await db('amphora').where({ id: doomed }).update({ lease_until: null })
    }
    await eventually('the amphora is removed', async () => (await db('amphora').where({ id: doomed })).length === 0)
    await ready(1)
    t.notOk(world.machines.has(doomed))
    t.equal(world.portsOwnedBy('management').length, 1)
    await housekeeper.stop()
    await db('amphora').delete()
  })

  await t.test('a housekeeper that stops while a machine boots releases it to others at once', async t => {
    const world = createAmphoraWorld()
    const drivers = world.enter()
    const agents = {
      ...drivers.agents,
      request: ({ amphoraId }: { amphoraId: string }) =>
        Promise.reject(new AgentUnreachable(amphoraId, 'refused', 'not yet')),
    }
    const housekeeper = await start(world, 1, { agents: agents as typeof drivers.agents })
    await eventually('the machine boots', () => world.machines.size === 1)
    const asked = performance.now()
    await housekeeper.stop()
    t.ok(performance.now() - asked < 4_000)
    const [row] = await db('amphora')
    t.match(row, { status: 'BOOTING', lease_until: null })
    await db('amphora').delete()
  })

  await t.test('the sweep of orphans', async t => {
    const world = createAmphoraWorld()
    const { network, compute } = world.enter()
    const loadBalancer = await insertLoadBalancer(db)
    const [owned, orphan] = [randomUUID(), randomUUID()]
    await db('amphora').insert({ id: owned, status: 'ALLOCATED', load_balancer_id: loadBalancer })
    const portFor = (deviceId: string, deviceOwner: string) =>
      network.ensurePort({
        networkId: 'n',
        fixedIps: [{ subnetId: VIP_SUBNET }],
        projectId: 'p',
        name: `for ${deviceId}`,
        deviceId,
        deviceOwner,
      })
    const kept: string[] = []
    const machine = { driver: 'namespace', computeId: 'c', name: 'm', state: 'running' as const }
    for (const id of [owned, orphan]) {
      const managementPort = await portFor(id, 'Octavia:management')
      const base = await portFor(id, 'Octavia:amphora')
      await compute.create({
        amphoraId: id,
        projectId: null,
        placement: PLACEMENT,
        apart: [],
        networks: [],
        managementPort,
        managementPrefix: 24,
        identity: {
          sshHostKey: '',
          controllerPublicKey: '',
          operatorPublicKey: '',
          heartbeatKey: Buffer.alloc(32),
          heartbeatKeyId: 1,
        },
        healthManagers: [],
        keyChannel: channelAccessOf(NO_KEY_CHANNEL, id),
        beatIntervalSeconds: 3,
      })
      if (id === owned) kept.push(managementPort.id, base.id)
    }
    kept.push((await portFor(`lb-${loadBalancer}`, 'Octavia')).id)
    await portFor(`lb-${randomUUID()}`, 'Octavia')
    kept.push((await portFor('a-virtual-machine', 'compute:nova')).id)
    const sweep = (before: ReadonlySet<string>) =>
      sweepOrphans({ database: db, network, compute, hostId: null, log, portAgeSeconds: 0 }, before)

    const first = await sweep(new Set())
    t.equal(first.size, 4, 'a machine, its two ports, a VIP port')
    t.equal(world.machines.size, 2, 'orphans found for the first time stay')
    await t.test('an orphan that gets an owner in between is left alone', async t => {
      await db('amphora').insert({ id: orphan, status: 'ALLOCATED', load_balancer_id: loadBalancer })
      t.equal((await sweep(first)).size, 0)
      t.ok(world.machines.has(orphan))
      await db('amphora').where({ id: orphan }).delete()
    })
    t.equal((await sweep(await sweep(new Set()))).size, 0)
    t.same([...world.machines.keys()], [owned])
    t.same([...world.ports.keys()].sort(), kept.sort())

    await t.test('a user’s port whose load balancer was never stored is unbound', async t => {
      const [lost, used] = await Promise.all([randomUUID(), loadBalancer].map(id => portFor(`lb-${id}`, 'test:bound')))
      const given: unknown[] = []
      const borrowing = {
        ...network,
        boundPorts: async (owner: string) => (owner === 'Octavia' ? [lost!, used!] : []),
        bindPort: async (...call: unknown[]) => void given.push(call),
      }
      const sweepBound = (before: ReadonlySet<string>) =>
        sweepOrphans({ database: db, network: borrowing, compute, hostId: null, log, portAgeSeconds: 0 }, before)
      await sweepBound(await sweepBound(new Set()))
      t.same(given, [[lost!.id, null]])
      for (const port of [lost!, used!]) {
        t.ok(world.ports.has(port.id))
        await network.deletePort(port.id)
      }
    })

    await t.test('what cannot be removed is attempted again by the next sweep', async t => {
      await portFor(`lb-${randomUUID()}`, 'Octavia')
      const broken = { ...network, deletePort: () => Promise.reject(new Error('broken')) }
      const again = await sweepOrphans(
        { database: db, network: broken, compute, hostId: null, log, portAgeSeconds: 0 },
        await sweep(new Set()),
      )
      t.equal(again.size, 1)
      t.equal((await sweep(again)).size, 0)
      t.equal(world.ports.size, kept.length)
    })

    await t.test('a database that knows few of the machines is not trusted', async t => {
      const strange = Array.from({ length: 3 }, () => randomUUID())
      const removed: string[] = []
      const restored = {
        ...compute,
        list: async () => [...(await compute.list()), ...strange.map(amphoraId => ({ ...machine, amphoraId }))],
        delete: async (amphoraId: string) => void removed.push(amphoraId),
      }
      const sweepRestored = (before: ReadonlySet<string>) =>
        sweepOrphans({ database: db, network, compute: restored, hostId: null, log, portAgeSeconds: 0 }, before)
      const port = await portFor(strange[0]!, 'Octavia:amphora')
      await sweepRestored(await sweepRestored(new Set()))
      t.same(removed, [])
      t.ok(world.ports.has(port.id), 'machines that may serve keep their addresses')
      strange.pop()
      await sweepRestored(await sweepRestored(new Set()))
      t.same(removed.sort(), strange.sort(), 'a few orphans are removed')
      t.notOk(world.ports.has(port.id))
    })

    await t.test('heartbeats without an amphora are deleted at once', async t => {
      const heard = {
        boot_id: '1',
        last_seq: 1,
        sent_ms: 1,
        generation: 1,
        config_hash: '',
        needs_apply: false,
        vrrp_master: false,
        haproxy_running: true,
      }
      await db('amphora_health').insert([
        { ...heard, amphora_id: owned },
        { ...heard, amphora_id: orphan },
      ])
      await sweep(new Set())
      t.same(await db('amphora_health').pluck('amphora_id'), [owned])
    })
  })
})
