import { randomUUID } from 'node:crypto'
import t from 'tap'
import { upgradeAgents } from '../../../controller/housekeeping/agent-upgrades.js'
import { markUpgrade } from '../../../controller/provider/amphora/act/mark-upgrade.js'
import type { Action } from '../../../controller/provider/provider.js'
import { createTestDatabase } from '../../support/database/database.js'
import { BROKEN_AGENT } from '../../support/worlds/amphora-world.js'
import { createScene, log, providerOf } from '../../support/worlds/converge-scene.js'

const [OLD, NEW] = ['0'.repeat(64), '1'.repeat(64)]
const bundleOf = (sha256: string) => ({ sha256, content: Buffer.from('an agent') })

t.test('agents are upgraded in place', async t => {
  const testDatabase = await createTestDatabase()
  t.teardown(testDatabase.drop)
  const db = testDatabase.of('load_balancer')
  const scene = await createScene(db, { topology: 'ACTIVE_STANDBY' })
  const drivers = scene.world.enter()
  const former = providerOf(db, drivers, undefined, bundleOf(OLD))
  const provider = providerOf(db, drivers, undefined, bundleOf(NEW))
  const rows = () => db('amphora').where({ load_balancer_id: scene.id }).orderBy('role')
  const bundles = () => [...scene.world.machines.values()].map(({ bundle }) => bundle).sort()
  const tend = (bundle = NEW, isAutomatic = true) => upgradeAgents({ database: db, bundle, isAutomatic, log })
  const marks = async () => (await rows()).map(row => row.upgrade_to)
  const forget = () => db('controller_bundle').update({ seen_at: db.raw(`now() - interval '2 minutes'`) })

  await t.test('a new machine with another agent gets the controller’s before it is configured', async t => {
    scene.world.bringAgent(NEW)
    t.equal(await scene.attempt(former), true)
    t.same(bundles(), [OLD, OLD])
    t.match(await rows(), [{ agent_bundle: OLD, agent_version: 'test', upgrade_fault: null }, { agent_bundle: OLD }])
    const { calls } = scene.world
    t.ok(calls.indexOf('upgrade') < calls.indexOf('apply'))
  })

  await t.test('none without being asked, if that is left to the operator', async t => {
    await tend(NEW, false)
    t.same(await marks(), [null, null])
  })

  await t.test('none while a worker with another agent runs', async t => {
    await tend(OLD)
    await tend()
    t.same(await marks(), [null, null])
    await forget()
  })

  await t.test('one at a time, the one with the VIP last', async t => {
    const [backup, master] = await rows()
    await scene.hear(0)
    await db('amphora_health').where({ amphora_id: backup.id }).update({ vrrp_master: false })
    await Promise.all([tend(), tend(), tend()])
    t.same(await marks(), [NEW, null])
    const notes: Action[] = []
    t.equal(
      await scene.attempt({
        ...provider,
        converge: (...parts) => provider.converge(parts[0], parts[1], parts[2], note => notes.push(note)),
      }),
      true,
    )
    t.same(notes, [{ amphora_id: backup.id, action: 'upgraded', how: 'in place', reason: 'its agent is now 11111111' }])
    t.equal(scene.world.machines.get(backup.id)?.bundle, NEW)
    t.equal(scene.world.machines.get(master.id)?.bundle, OLD)
    await tend()
    t.same(await marks(), [null, NEW])
  })

  await t.test('not by a worker with another agent, and after all that changes the configuration', async t => {
    t.equal(await scene.attempt(former), true)
    t.same(await marks(), [null, NEW])
    await scene.change()
    const before = scene.world.calls.length
    t.equal(await scene.attempt(provider), true)
    const calls = scene.world.calls.slice(before)
    t.ok(calls.indexOf('apply') < calls.indexOf('upgrade'))
    t.same(bundles(), [NEW, NEW])
    t.same(await marks(), [null, null])
    await tend()
    t.same(await marks(), [null, null], 'every agent is current')
  })

  await t.test('a failure is recorded, harms nobody, and ends it for a while', async t => {
    await forget()
    const broken = providerOf(db, drivers, undefined, bundleOf(BROKEN_AGENT))
    await tend(BROKEN_AGENT)
    t.equal(await scene.attempt(broken), true)
    t.same(bundles(), [NEW, NEW])
    const [fault] = (await rows()).flatMap(row => row.upgrade_fault ?? [])
    t.match(fault, { bundle: BROKEN_AGENT, text: /did not answer, and the former one is back\. It died\./ })
    await tend(BROKEN_AGENT)
    t.same(await marks(), [null, null])
    await db('amphora').update({ upgrade_fault: db.raw(`upgrade_fault || '{"at": "2020-01-01T00:00:00Z"}'`) })
    await tend(BROKEN_AGENT)
    t.same((await marks()).filter(Boolean), [BROKEN_AGENT], 'then another one is tried')
  })

  await t.test('a mark that nobody carries out is noticed, and given up in the end', async t => {
    const later = new Date(Date.now() + 60_000)
    for (const held of [{ lease_until: later }, { retry_at: later }]) {
      await db('load_balancer').update({ recheck_at: null, ...held })
      await tend(BROKEN_AGENT)
      t.match(
        await db('load_balancer').where({ id: scene.id }).first(),
        { recheck_at: null },
        'it is left to its worker',
      )
    }
    await db('load_balancer').update({ recheck_at: null, lease_until: null, retry_at: null })
    await tend(BROKEN_AGENT)
    t.not((await db('load_balancer').where({ id: scene.id }).first()).recheck_at, null)
    await db('amphora')
      .update({ upgrade_asked_at: db.raw(`now() - interval '6 minutes'`) })
      .whereNotNull('upgrade_to')
    await tend(BROKEN_AGENT)
    t.same(await marks(), [null, null])
    const faults = (await rows()).flatMap(row => row.upgrade_fault?.text ?? [])
    t.match(
      faults.find(text => text.includes('No worker')),
      /^No worker with the agent bbbbbbbb upgraded it within 5 minutes\.$/,
    )
  })

  await t.test('a mark that is given up says what is known of the reason', async t => {
    const [{ id }] = await rows()
    const giveUp = async () => {
      const asked = { upgrade_to: NEW, upgrade_asked_at: db.raw(`now() - interval '6 minutes'`), upgrade_fault: null }
      await db('amphora').where({ id }).update(asked)
      await tend(BROKEN_AGENT, false)
      return (await db('amphora').where({ id }).first()).upgrade_fault.text
    }
    const plain = 'No worker with the agent 11111111 upgraded it within 5 minutes.'
    t.equal(await giveUp(), plain)
    const [one, two] = [randomUUID(), randomUUID()]
    const hosts = [one, two].map((host, index) => ({ id: host, name: ['one', 'two'][index] }))
    await db('controller_host').insert(hosts)
    const sign = { name: 'worker', pid: 1, owner: 'w' }
    await db('controller_process').insert({ ...sign, host_id: one, version: '0.2.0' })
    await db('amphora').where({ id }).update({ host_id: two })
    t.equal(await giveUp(), `${plain} No worker runs on its host two.`)
    await db('controller_process').insert({ ...sign, host_id: two, version: '0.1.0' })
    t.equal(await giveUp(), `${plain} The worker of its host two has version 0.1.0.`)
    await db('controller_process').update({ version: '0.2.0' })
    t.equal(await giveUp(), plain, 'nothing is known')
    const fault = JSON.stringify({ code: 'x', text: 'No address is left.' })
    await db('load_balancer').where({ id: scene.id }).update({ fault })
    t.equal(await giveUp(), `${plain} Its load balancer has a fault: No address is left.`)
    await db('load_balancer').where({ id: scene.id }).update({ fault: null })
    await db('amphora').update({ host_id: null, upgrade_fault: null })
    await db('controller_host').delete()
  })

  await t.test('whichever call a worker dies at, another one finishes it', async t => {
    const target = bundleOf('2'.repeat(64))
    const [{ id }] = await rows()
    for (let calls = 0; ; calls++) {
      await forget()
      await db('amphora').update({ upgrade_to: null, upgrade_asked_at: null, upgrade_fault: null })
      const machine = scene.world.machines.get(id)
      if (machine !== undefined) machine.bundle = OLD
      t.equal(await markUpgrade(db, id, target.sha256), true)
      const fates = [...Array(calls).fill('well'), 'kills']
      const outcome = await scene.attempt(providerOf(db, scene.world.enter(fates), undefined, target))
      if (outcome === true) break
      t.equal(await scene.attempt(providerOf(db, drivers, undefined, target)), true)
      t.equal(scene.world.machines.get(id)?.bundle, target.sha256, `dead after ${calls} calls`)
      t.match(await rows(), [{ id, agent_bundle: target.sha256, upgrade_to: null, upgrade_fault: null }, {}])
      if (calls > 60) throw new Error('an attempt makes no end of calls')
    }
  })

  await t.test('not while an amphora is replaced or unreachable, nor one that knows nothing of upgrades', async t => {
    const [one, other] = await rows()
    const [was] = [one.agent_bundle]
    await forget()
    await db('amphora').update({ upgrade_fault: null, agent_bundle: null })
    await tend()
    t.same(await marks(), [null, null])
    await db('amphora').update({ agent_bundle: OLD, unreachable_since: new Date() })
    await tend()
    t.same(await marks(), [null, null])
    await db('amphora').where({ id: one.id }).update({ unreachable_since: null, replace_generation: 1 })
    await tend()
    t.same(await marks(), [null, null])
    t.equal(await markUpgrade(db, one.id, NEW), false)
    t.equal(await markUpgrade(db, randomUUID(), NEW), false)
    await db('amphora').update({ unreachable_since: null, replace_generation: null, agent_bundle: was })
    t.ok(other)
  })
})
