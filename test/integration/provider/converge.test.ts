import { randomUUID } from 'node:crypto'
import t, { type Test } from 'tap'
import type { Bindings } from '../../../controller/bindings/bindings.js'
import { createNoopComputeDriver } from '../../../controller/compute/noop/driver.js'
import { readTree } from '../../../controller/load-balancer/tree/read-tree.js'
import { createNoopNetworkDriver } from '../../../controller/network/noop/driver.js'
import { createMachineTurns } from '../../../controller/provider/amphora/act/machine-turns.js'
import { createNoopAgentConnections } from '../../../controller/provider/amphora/agent/connection-noop.js'
import { createNoopProvider } from '../../../controller/provider/noop/provider.js'
import { ClaimLost, type Provider, ProvisioningFault } from '../../../controller/provider/provider.js'
import type { Claim } from '../../../controller/queue/claim.js'
import { settle } from '../../../controller/worker/settle.js'
import { startWorker } from '../../../controller/worker/worker.js'
import { createTestDatabase, type TestDatabase } from '../../support/database/database.js'
import {
  changeLoadBalancer,
  findLoadBalancer,
  insertChildren,
  insertLoadBalancer,
} from '../../support/database/load-balancer-rows.js'
import { eventually } from '../../support/eventually.js'
import { MEMBER_SUBNETS } from '../../support/worlds/amphora-world.js'
import {
  addWarmAmphora,
  config,
  createScene,
  faultsOf,
  log,
  providerOf,
  type Scene,
} from '../../support/worlds/converge-scene.js'
import { NO_BINDINGS } from '../../support/worlds/unbound.js'

t.test('converge', async t => {
  const testDatabase = await createTestDatabase()
  t.teardown(testDatabase.drop)
  const db = testDatabase.of('load_balancer')

  const expectSettled = async (t: Test, scene: Scene, provider: Provider, warm: string[] = []) => {
    t.equal(await scene.attempt(provider), true)
    t.same(await faultsOf(db, scene, warm), [])
  }

  await t.test('create, change and delete', async t => {
    const scene = await createScene(db)
    const provider = providerOf(db, scene.world.enter())
    await expectSettled(t, scene, provider)
    const [amphora] = await db('amphora').where({ load_balancer_id: scene.id })
    t.match(amphora, {
      status: 'ALLOCATED',
      role: 'STANDALONE',
      vrrp_priority: null,
      ha_ip: '203.0.113.10',
      vrrp_ip: /^203\.0\.113\./,
      lb_network_ip: /^10\.0\.0\./,
      vrrp_interface: /^eth-/,
      compute_id: amphora.id,
      compute_driver: 'namespace',
      compute_flavor: 'namespace',
      cached_zone: 'here',
    })
    t.match(amphora.applied_objects, { listeners: [/-/] })
    await scene.addMember(MEMBER_SUBNETS[0])
    await expectSettled(t, scene, provider)
    await scene.removeMembers(MEMBER_SUBNETS[0])
    await expectSettled(t, scene, provider)
    await scene.change('delete')
    await expectSettled(t, scene, provider)
    t.equal(await findLoadBalancer(db, scene.id), undefined)
    t.equal(scene.world.ports.size, 0)
  })

  await t.test('a member on another subnet of a network uses the same port, wherever a worker fails', async t => {
    const scene = await createScene(db)
    await scene.addMember(MEMBER_SUBNETS[1])
    await expectSettled(t, scene, providerOf(db, scene.world.enter()))
    const before = [...scene.world.ports.keys()]
    await scene.addMember(MEMBER_SUBNETS[2])
    const drivers = scene.world.enter()
    const plug = () => Promise.reject(new Error('broken'))
    const failing = providerOf(db, { ...drivers, compute: { ...drivers.compute, plug } })
    t.match(await scene.attempt(failing), { message: 'broken' })
    await expectSettled(t, scene, providerOf(db, scene.world.enter()))
    t.same([...scene.world.ports.keys()], before)
    t.notOk(scene.world.calls.includes('unplug'), 'its interface stays plugged')
  })

  await t.test('a key manager that is away holds up a change only once', async t => {
    const scene = await createScene(db)
    let asked = 0
    const bindings: Bindings = {
      ...NO_BINDINGS,
      bind: async tree => {
        asked += 1
        return { binding: tree, isAway: true }
      },
    }
    await expectSettled(t, scene, providerOf(db, scene.world.enter(), bindings))
    t.equal(asked, 1, 'though an amphora takes several rounds')
  })
  await t.test('a pair gets a MASTER and a BACKUP', async t => {
    const scene = await createScene(db, { topology: 'ACTIVE_STANDBY' })
    await expectSettled(t, scene, providerOf(db, scene.world.enter()))
    const rows = await db('amphora').where({ load_balancer_id: scene.id }).orderBy('role')
    t.match(rows, [
      { role: 'BACKUP', vrrp_priority: 90 },
      { role: 'MASTER', vrrp_priority: 100 },
    ])
  })

  for (const holder of ['BACKUP', 'MASTER']) {
    await t.test(`a failover of a pair replaces the VIP’s holder last, the ${holder}`, async t => {
      const scene = await createScene(db, { topology: 'ACTIVE_STANDBY' })
      const provider = providerOf(db, scene.world.enter())
      await expectSettled(t, scene, provider)
      await scene.hear(0)
      const old = await db('amphora').where({ load_balancer_id: scene.id })
      for (const { id, role } of old) {
        // The last heartbeats are out of date.
        await db('amphora_health')
          .where({ amphora_id: id })
          .update({ vrrp_master: role !== holder })
        scene.world.machines.get(id)!.holdsVip = role === holder
      }
      await scene.failOver()
      await expectSettled(t, scene, provider)
      const roles = await db('amphora').where({ load_balancer_id: scene.id }).orderBy('created_at').pluck('role')
      t.equal(roles.at(-1), holder)
      const ids = await scene.amphoraIds()
      t.notOk(old.some(({ id }) => ids.includes(id)))
    })
  }

  await t.test('a change of a member costs one round trip and four statements', async t => {
    const scene = await createScene(db)
    const provider = providerOf(db, scene.world.enter())
    await scene.addMember(MEMBER_SUBNETS[0])
    await expectSettled(t, scene, provider)
    await scene.change()
    const claim = await scene.claim()
    scene.world.calls.length = 0
    const statements: string[] = []
    const note = ({ sql }: { sql: string }) => void statements.push(sql.trim().split(/\s+/)[0]!.toLowerCase())
    db.on('query', note)
    const tree = await readTree(db, scene.id)
    await provider.converge(claim, tree!, new AbortController().signal)
    await settle(db, claim, tree!)
    db.off('query', note)
    t.same(
      statements,
      ['select', 'select', 'update', 'with'],
      'read the tree, read the amphorae, record the applied state, settle',
    )
    t.same(scene.world.calls, ['apply'])
    t.same(await faultsOf(db, scene, []), [])

    await t.test('everything is observed again when another worker acted in between', async t => {
      const other = providerOf(db, scene.world.enter())
      await scene.change()
      await expectSettled(t, scene, other)
      await scene.change()
      scene.world.calls.length = 0
      await expectSettled(t, scene, provider)
      t.ok(scene.world.calls.includes('hello'))
    })
    await t.test('everything is observed again when a recheck is due', async t => {
      await db('load_balancer').where({ id: scene.id }).update({ recheck_at: db.fn.now() })
      scene.world.calls.length = 0
      await expectSettled(t, scene, provider)
      t.ok(scene.world.calls.includes('hello'))
      t.notOk(scene.world.calls.includes('apply'), 'nothing needed repair')
    })
  })

  await t.test('one load balancer adopts a warm amphora', async t => {
    const one = await createScene(db)
    const warm = await addWarmAmphora(db, one.world)
    await expectSettled(t, one, providerOf(db, one.world.enter()))
    t.same(await one.amphoraIds(), [warm])
    const other = await createScene(db)
    await expectSettled(t, other, providerOf(db, other.world.enter()))
    t.notSame(await other.amphoraIds(), [warm])
  })

  for (const topology of ['SINGLE', 'ACTIVE_STANDBY']) {
    await t.test(`failover replaces all amphorae, ${topology}`, async t => {
      const scene = await createScene(db, { topology })
      const provider = providerOf(db, scene.world.enter())
      await scene.addMember(MEMBER_SUBNETS[0])
      await expectSettled(t, scene, provider)
      const [before, vip] = [await scene.amphoraIds(), (await scene.tree())?.vip]
      await scene.failOver()
      await expectSettled(t, scene, provider)
      const after = await scene.amphoraIds()
      t.equal(after.length, before.length)
      t.notOk(after.some(id => before.includes(id)))
      t.same((await scene.tree())?.vip, vip)
      if (topology === 'SINGLE') t.equal(scene.world.calls.filter(call => call === 'announce').length, 1)
      await t.test('a failover adopts a warm amphora', async t => {
        const warm = await addWarmAmphora(db, scene.world)
        await scene.failOver()
        await expectSettled(t, scene, provider)
        t.ok((await scene.amphoraIds()).includes(warm))
      })
    })
  }

  await t.test('a configuration requested again is pushed again', async t => {
    const scene = await createScene(db)
    const provider = providerOf(db, scene.world.enter())
    await expectSettled(t, scene, provider)
    await db('load_balancer').where({ id: scene.id }).update({ recheck_at: db.fn.now() })
    await db('amphora').where({ load_balancer_id: scene.id }).update({ applied_generation: 0 })
    scene.world.calls.length = 0
    await expectSettled(t, scene, provider)
    t.equal(scene.world.calls.filter(call => call === 'apply').length, 1)
  })

  await t.test('an amphora whose machine stopped is restarted with its id and addresses', async t => {
    const scene = await createScene(db)
    const provider = providerOf(db, scene.world.enter())
    await expectSettled(t, scene, provider)
    const before = await db('amphora').where({ load_balancer_id: scene.id }).first()
    scene.world.stopMachine(before.id)
    await db('load_balancer').where({ id: scene.id }).update({ recheck_at: db.fn.now() })
    await expectSettled(t, scene, provider)
    const after = await db('amphora').where({ load_balancer_id: scene.id }).first()
    for (const column of ['id', 'vrrp_ip', 'vrrp_port_id', 'lb_network_ip', 'management_port_id']) {
      t.equal(after[column], before[column], column)
    }
  })

  await t.test('the next change finds a machine that stopped unnoticed', async t => {
    const scene = await createScene(db)
    const provider = providerOf(db, scene.world.enter())
    await expectSettled(t, scene, provider)
    scene.world.stopMachine((await scene.amphoraIds())[0]!)
    await scene.change()
    await expectSettled(t, scene, provider)
  })

  await t.test('a deleted VIP port is created again', async t => {
    const scene = await createScene(db)
    const provider = providerOf(db, scene.world.enter())
    await expectSettled(t, scene, provider)
    scene.world.ports.delete((await scene.tree())!.vip.portId!)
    await db('load_balancer').where({ id: scene.id }).update({ recheck_at: db.fn.now() })
    await expectSettled(t, scene, provider)
    const [amphora] = await db('amphora').where({ load_balancer_id: scene.id })
    t.equal(amphora.ha_port_id, (await scene.tree())!.vip.portId)
  })

  await t.test('a user’s own VIP port is unbound, not deleted', async t => {
    const scene = await createScene(db, { owns_vip_port: false })
    const { portId } = (await scene.tree())!.vip
    const given: unknown[] = []
    const drivers = scene.world.enter()
    const network = { ...drivers.network, bindPort: async (...args: unknown[]) => void given.push(args) }
    await scene.change('delete')
    t.equal(await scene.attempt(providerOf(db, { ...drivers, network })), true)
    t.same(given, [[portId, null]])
    t.ok(scene.world.ports.has(portId!))
  })

  await t.test('a refusal of the agent becomes a fault in the agent’s words', async t => {
    const scene = await createScene(db)
    const drivers = scene.world.enter()
    const { agents } = drivers
    const { AgentRefused } = await import('../../../controller/provider/amphora/agent/errors.js')
    const refusing = (code: 'invalid-configuration' | 'stale-fence' | 'interface-missing' | 'internal') =>
      providerOf(db, {
        ...drivers,
        agents: {
          ...agents,
          request: (target, body, limits) =>
            body.verb === 'apply'
              ? Promise.reject(new AgentRefused(target.amphoraId, { code, message: 'no', details: 'line 7: bad' }))
              : agents.request(target, body, limits),
        },
      })
    t.match(await scene.attempt(refusing('invalid-configuration')), {
      code: 'configuration-refused',
      message: /line 7/,
    })
    t.match(await scene.attempt(refusing('interface-missing')), { code: 'interface-missing' })
    t.match(
      await scene.attempt(refusing('stale-fence')),
      { code: 'amphora-ahead' },
      'this worker still holds the claim',
    )
    const internal = await scene.attempt(refusing('internal'))
    t.notOk(internal instanceof ProvisioningFault, 'an internal error is not shown to the owner')
    await t.test('a stale fence after the claim is lost ends with ClaimLost', async t => {
      const provider = refusing('stale-fence')
      const held = await scene.claim()
      const tree = (await scene.tree())!
      const overtaken = providerOf(db, {
        ...drivers,
        agents: {
          ...agents,
          request: async (target, body, limits) => {
            if (body.verb === 'apply') await db('load_balancer').where({ id: scene.id }).increment('fence', 1)
            return body.verb === 'apply'
              ? Promise.reject(new AgentRefused(target.amphoraId, { code: 'stale-fence', message: '', details: '' }))
              : agents.request(target, body, limits)
          },
        },
      })
      await t.rejects(overtaken.converge(held, tree, new AbortController().signal), ClaimLost)
      t.ok(provider)
    })
  })

  await t.test('nothing starts after the claim is lost or the worker stops', async t => {
    const scene = await createScene(db)
    const provider = providerOf(db, scene.world.enter())
    const tree = (await scene.tree())!
    const run = (claim: Claim, signal = new AbortController().signal) => provider.converge(claim, tree, signal)
    await t.rejects(run({ ...(await scene.claim()), heldUntil: 0 }), ClaimLost)
    await t.rejects(run(await scene.claim(), AbortSignal.abort()), ClaimLost)
    const old = await scene.claim()
    await scene.claim()
    await t.rejects(run(old), ClaimLost, 'another worker has a newer fence')
    t.same(scene.world.calls, ['ensurePort'], 'only the set-up made a call')
    t.same(await scene.amphoraIds(), [])
  })
})

t.test('with noop drivers everything succeeds at once', async t => {
  const testDatabase = await createTestDatabase()
  t.teardown(testDatabase.drop)
  const db = testDatabase.of('load_balancer')
  const worker = await startWithNoopDrivers(testDatabase)
  t.teardown(worker.stop)
  for (const provider of ['amphora', 'noop_driver']) {
    for (const topology of ['SINGLE', 'ACTIVE_STANDBY']) {
      await t.test(`${provider}, ${topology}`, async t => {
        const id = await insertLoadBalancer(db, {
          provider,
          topology,
          vip_subnet_id: randomUUID(),
          vip_port_id: randomUUID(),
        })
        await insertChildren(db, id, 1, [{ address: '192.0.2.1', subnetId: randomUUID() }])
        const active = (generation: number) =>
          eventually('ACTIVE', async () => (await findLoadBalancer(db, id))?.applied_generation === generation)
        for (const generation of [2, 3, 4]) {
          await changeLoadBalancer(db, id)
          await active(generation)
        }
        t.match(await findLoadBalancer(db, id), { fault: null })
        const amphorae = await db('amphora').where({ load_balancer_id: id, status: 'ALLOCATED' })
        t.equal(amphorae.length, provider === 'noop_driver' ? 0 : topology === 'SINGLE' ? 1 : 2)
        await changeLoadBalancer(db, id, 'delete')
        await eventually('gone', async () => (await findLoadBalancer(db, id)) === undefined)
        t.equal((await db('amphora').where({ load_balancer_id: id })).length, 0)
      })
    }
  }
})

function startWithNoopDrivers(testDatabase: TestDatabase) {
  const database = testDatabase.of('load_balancer')
  const network = createNoopNetworkDriver()
  const amphora = providerOf(database, {
    network,
    compute: createNoopComputeDriver(),
    agents: createNoopAgentConnections(),
    turns: createMachineTurns(),
  })
  const providers = new Map([amphora, createNoopProvider(network)].map(provider => [provider.name, provider]))
  const databaseUrl = testDatabase.urlOf('load_balancer')
  return startWorker({ database, databaseUrl, providers, config: config.worker, hostId: null, log })
}
