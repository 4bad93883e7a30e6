import { randomUUID } from 'node:crypto'
import t from 'tap'
import type { Boot } from '../../../amphora-agent/protocol/boot.js'
import type { MachineSpec } from '../../../controller/compute/driver.js'
import { createEnrolledDriver, type EnrolledDriverOptions } from '../../../controller/compute/enrolled/driver.js'
import {
  beginEnrolment,
  hostById,
  leaveState,
  type NewHost,
  recordPlugged,
} from '../../../controller/compute/enrolled/hosts.js'
import type { HostAgents } from '../../../controller/compute/host-agents.js'
import { execute, maybeOne } from '../../../controller/database/query.js'
import { sql } from '../../../controller/database/sql.js'
import { inTransaction } from '../../../controller/database/transaction.js'
import { recordBeats } from '../../../controller/health-manager/record-beats.js'
import { hostAddresses } from '../../../controller/hosts/read-hosts.js'
import { createLog } from '../../../controller/log/log.js'
import { createNoopNetworkDriver } from '../../../controller/network/noop/driver.js'
import { createTestDatabase } from '../../support/database/database.js'
import { eventually } from '../../support/eventually.js'
import { PLACEMENT } from '../../support/inputs/placement.js'
import { recordLog } from '../../support/recorded-log.js'
import { createGate } from '../../support/worlds/worker-scene.js'

const testDatabase = await createTestDatabase()
t.teardown(testDatabase.drop)
const database = testDatabase.of('load_balancer')
const NETWORK = randomUUID()
t.beforeEach(async () => {
  await execute(database, sql`DELETE FROM enrolled_host`)
  await execute(database, sql`DELETE FROM amphora`)
})

/** Agents that become what they are told: at once, or once `release` is called. */
function createAgents(slow: ReadonlySet<string>) {
  const told = new Map<string, Boot[]>()
  const left = new Map<string, string[]>()
  let surveyed = async () => {}
  const led = new Map<string, string[][]>()
  const gate = createGate()
  const agents: HostAgents = {
    become: async ({ id }, boot) => void told.set(id, [...(told.get(id) ?? []), boot]),
    turn: async ({ id }) => {
      if (slow.has(id)) await gate.pass()
      return told.get(id)?.at(-1)?.host?.turn ?? 0
    },
    survey: async ({ id }) => {
      await surveyed()
      return left.get(id) ?? []
    },
    forward: async ({ id }, { controllers }) => {
      if (slow.has(id)) throw new Error('The host does not answer.')
      led.set(id, [...(led.get(id) ?? []), controllers])
    },
  }
  const onSurvey = (next: () => Promise<void>) => {
    surveyed = next
  }
  return { agents, told, led, left, onSurvey, release: gate.open }
}

async function enroll(name: string): Promise<NewHost> {
  const host: NewHost = {
    ...{ id: randomUUID(), name, login: 'root', address: name, port: 22, hostKey: Buffer.from(name) },
    ...{ zone: 'local', physicalHost: name, controllerAddress: '192.0.2.1' },
    interfaces: [{ networkId: NETWORK, networkName: 'lan', mac: '52:54:00:00:00:01', name: 'eth1' }],
  }
  await beginEnrolment(database, host)
  await leaveState(database, { id: host.id, turn: 0, state: 'enrolling' }, { state: 'free' })
  await execute(database, sql`UPDATE enrolled_host SET last_seen = now() WHERE id = ${host.id}`)
  return host
}

const specOf = (amphoraId: string): MachineSpec => ({
  ...{ amphoraId, projectId: 'p', placement: { ...PLACEMENT, driver: 'enrolled', flavor: 'enrolled' } },
  ...{ apart: [], networks: [NETWORK], managementPort: null, managementPrefix: 24 },
  identity: {
    ...{ sshHostKey: '', controllerPublicKey: '', operatorPublicKey: '' },
    ...{ heartbeatKey: Buffer.alloc(32), heartbeatKeyId: 1 },
  },
  healthManagers: [{ host: '192.0.2.1', port: 5555 }],
  beatIntervalSeconds: 1,
  keyChannel: { endpoints: [{ host: '192.0.2.1', port: 9312 }], certificate: '', privateKey: '' },
})

/** A driver with these agents. @param parts what else is not the same for all tests */
const driverWith = (agents: HostAgents, parts: Partial<EnrolledDriverOptions> = {}) =>
  createEnrolledDriver({
    ...{ database, agents, lookAround: null, network: createNoopNetworkDriver(), log: createLog('test', 'silent') },
    ...{ masterKey: Buffer.alloc(32, 7), heartbeatPort: 5555, beatIntervalSeconds: 1 },
    forwarding: async () => ({ controllers: await hostAddresses(database), heartbeats: 5555, keyChannel: 9312 }),
    ...parts,
  })

t.test('hosts that carry no amphora any more', async t => {
  const [slow, quick] = [await enroll('slow'), await enroll('quick')]
  const isSlow = new Set<string>()
  const { agents, told, release } = createAgents(isSlow)
  const driver = driverWith(agents)
  const amphorae = [randomUUID(), randomUUID()]
  for (const id of amphorae) await driver.create(specOf(id))
  t.equal((await driver.list()).length, 2)
  isSlow.add(slow.id)
  const stateOf = async ({ id }: NewHost) => (await hostById(database, id))?.state

  for (const id of amphorae) await driver.delete(id)
  t.same([await stateOf(slow), await stateOf(quick)], ['wiping', 'wiping'], 'a deletion does not wait for the wipe')
  for (const { id } of [slow, quick]) t.equal(told.get(id)?.at(-1)?.amphoraId, id, 'the host was told to be itself')
  t.same(await driver.list(), [])

  await driver.tend?.()
  await eventually('the quick one is free', async () => (await stateOf(quick)) === 'free')
  t.equal(await stateOf(slow), 'wiping', 'a slow host keeps no other one waiting')
  const before = told.get(slow.id)?.length
  await driver.tend?.()
  t.equal(told.get(slow.id)?.length, before, 'its wipe is not begun twice')
  release()
  await eventually('the slow one is free', async () => (await stateOf(slow)) === 'free')
})

t.test('a silent amphora is looked for on the network of its VIP, whatever other ports it has', async t => {
  const host = await enroll('inspected')
  const { agents } = createAgents(new Set())
  const asked: string[][] = []
  let answering: string[] = []
  const lookAround = async (_subnet: string, addresses: readonly string[]) => {
    asked.push([...addresses])
    return new Map([
      ...addresses.map(address => [address, 'silent'] as const),
      ...answering.map(address => [address, 'answers'] as const),
    ])
  }
  const driver = driverWith(agents, { lookAround })
  const [amphora, vipSide, memberSide] = [randomUUID(), `ff${randomUUID().slice(2)}`, `00${randomUUID().slice(2)}`]
  await driver.create(specOf(amphora))
  t.equal((await driver.find(amphora))?.computeId, host.id)
  await execute(
    database,
    sql`INSERT INTO amphora (id, status, vrrp_port_id) VALUES (${amphora}, 'ALLOCATED', ${vipSide})`,
  )
  for (const [id, address] of [
    [vipSide, '10.20.0.5'],
    [memberSide, '10.30.0.5'],
  ] as const) {
    const own = [{ subnetId: randomUUID(), address }]
    await recordPlugged(database, amphora, id, { networkId: NETWORK, addresses: [address], own })
  }
  t.equal(await driver.inspect(amphora), null, 'nobody answers')
  t.equal(asked[0]?.[0], '10.20.0.5', 'not its address on the network of the members')
  answering = ['10.20.0.1']
  t.match(await driver.inspect(amphora), { serves: false, finding: /^10\.20\.0\.5 does not answer/ })
  answering = ['10.20.0.5', '10.20.0.1']
  t.equal(await driver.inspect(amphora), null, 'an answer to ping is no proof of service')
})

t.test('hosts are told where the controllers are, whenever that changes', async t => {
  t.teardown(() => execute(database, sql`DELETE FROM controller_host`))
  const [one, silent] = [await enroll('one'), await enroll('silent')]
  const { agents, led } = createAgents(new Set([silent.id]))
  const driver = driverWith(agents)
  await driver.tend?.()
  t.equal(led.size, 0, 'no controller host has an address yet')
  const add = (name: string, address: string) =>
    execute(
      database,
      sql`INSERT INTO controller_host (id, name, address) VALUES (gen_random_uuid(), ${name}, ${address})`,
    )
  const toldOf = async ({ id }: NewHost) => (await hostById(database, id))?.toldControllers
  await add('a', '192.0.2.1')
  await add('b', '192.0.2.2')
  await driver.tend?.()
  await eventually('one knows both', async () => (await toldOf(one))?.length === 2)
  await execute(database, sql`UPDATE controller_host SET gone_at = now() WHERE name = 'a'`)
  await driver.tend?.()
  await eventually('the one that is gone comes last', async () => (await toldOf(one))?.[0] === '192.0.2.2')
  await driver.tend?.()
  t.same(led.get(one.id), [
    ['192.0.2.1', '192.0.2.2'],
    ['192.0.2.2', '192.0.2.1'],
  ])
  t.equal(await toldOf(silent), null, 'one that cannot be told is not forgotten')
})

t.test('a host that two controllers told different things at once is told again', async t => {
  t.teardown(() => execute(database, sql`DELETE FROM controller_host`))
  const { id } = await enroll('told')
  const { agents, led } = createAgents(new Set())
  const [delivery, end] = [createGate(), createGate()]
  const former = driverWith({
    ...agents,
    forward: async (...words) => {
      await delivery.pass()
      await agents.forward(...words)
    },
  })
  const latter = driverWith({
    ...agents,
    forward: async (...words) => {
      await agents.forward(...words)
      await end.pass()
    },
  })
  const heard = () => led.get(id) ?? []
  const told = async () => (await hostById(database, id))?.toldControllers
  const move = (address: string) =>
    execute(
      database,
      sql`INSERT INTO controller_host (id, name, address) VALUES ('00000000-0000-4000-8000-000000000001', 'a', ${address})
          ON CONFLICT (id) DO UPDATE SET address = excluded.address`,
    )
  await move('192.0.2.1')
  await former.tend?.()
  await move('192.0.2.2')
  await latter.tend?.()
  await eventually('it hears of the latter address', () => heard().length === 1)
  delivery.open()
  await eventually('it hears of the former one afterwards', async () => (await told())?.[0] === '192.0.2.1')
  end.open()
  await eventually('nobody knows what it heard last', async () => (await told()) === null)
  await eventually('it hears of the latter one again', async () => {
    await latter.tend?.()
    return heard().length === 3
  })
  t.same(heard(), [['192.0.2.2'], ['192.0.2.1'], ['192.0.2.2']])
})

t.test('several health managers hear the same hosts, and none waits for another', async t => {
  const [locked, free] = [await enroll('locked'), await enroll('free')]
  const beat = ({ id }: NewHost) => ({
    ...{ amphoraId: id, bootId: 'b', seq: 1, sentMs: Date.now(), generation: 0, configHash: '' },
    ...{ needsApply: false, vrrpMaster: false, haproxyRunning: false, mismatches: [] },
  })
  const record = (...hosts: NewHost[]) => recordBeats(database, hosts.map(beat), { beatInterval: 1, staleAfter: 5 })
  const seenAt = async ({ id }: NewHost) =>
    (await maybeOne(database, sql<{ at: string }>`SELECT last_seen::text AS at FROM enrolled_host WHERE id = ${id}`))
      ?.at
  await execute(database, sql`UPDATE enrolled_host SET last_seen = now() + interval '1 minute'`)
  const first = await seenAt(free)
  await record(free)
  t.equal(await seenAt(free), first, 'one that was heard less than a second ago is not written again')
  await execute(database, sql`UPDATE enrolled_host SET last_seen = now() - interval '5 seconds'`)
  const before = await seenAt(locked)
  await inTransaction(database, async other => {
    await execute(other, sql`UPDATE enrolled_host SET last_seen = last_seen WHERE id = ${locked.id}`)
    await record(locked, free)
  })
  t.equal(await seenAt(locked), before, 'another health manager was writing it')
  t.not(await seenAt(free), before)
})

t.test('a wipe that does not end well', async t => {
  const { log, lines } = recordLog()
  const said = (msg: RegExp, from = 0) =>
    lines.slice(from).filter(line => line.level >= 30 && msg.test(line.msg)).length
  const given = async (name: string) => {
    const host = await enroll(name)
    const scene = createAgents(new Set())
    const driver = driverWith(scene.agents, { log })
    const amphora = randomUUID()
    await driver.create(specOf(amphora))
    await driver.delete(amphora)
    return { host, ...scene, driver, row: async () => hostById(database, host.id) }
  }

  await t.test('a host that does not answer says why it stays to be wiped, and is logged once', async t => {
    const { agents, driver, row } = await given('mute')
    const turn = agents.turn
    agents.turn = async () => {
      throw new Error('no route to host')
    }
    await driver.tend?.()
    await eventually(
      'it has a reason',
      async () => (await row())?.reason === 'It cannot be wiped yet: no route to host',
    )
    t.equal((await row())?.state, 'wiping')
    await driver.tend?.()
    agents.turn = turn
    await eventually('it is free', async () => {
      await driver.tend?.()
      return (await row())?.state === 'free'
    })
    t.equal((await row())?.reason, null)
    t.equal(said(/cannot be wiped yet/), 1)
  })

  await t.test('a host that is ahead of an older copy of the database begins a later turn', async t => {
    const { host, told, driver, row } = await given('ahead')
    const boot = told.get(host.id)?.at(-1)
    if (boot !== undefined) told.set(host.id, [{ ...boot, host: { id: host.id, turn: 40 } }])
    await eventually('it is free', async () => {
      await driver.tend?.()
      return (await row())?.state === 'free'
    })
    t.equal((await row())?.turn, 41)
  })

  await t.test('a host on which something is left is broken', async t => {
    const { host, left, driver, row } = await given('dirty')
    left.set(host.id, ['haproxy runs'])
    await driver.tend?.()
    await eventually('it is broken', async () => (await row())?.state === 'broken')
    t.match(await row(), { reason: /not empty after a wipe: haproxy runs/ })
  })

  await t.test('whoever looks after another controller has freed it and given it away says nothing', async t => {
    const { host, left, onSurvey, driver, row } = await given('contested')
    left.set(host.id, ['haproxy runs'])
    const contest = createGate()
    onSurvey(async () => {
      await execute(database, sql`UPDATE enrolled_host SET state = 'free', turn = turn + 1 WHERE id = ${host.id}`)
      contest.open()
    })
    const before = lines.length
    await driver.tend?.()
    await contest.pass()
    onSurvey(async () => {})
    left.delete(host.id)
    await execute(database, sql`UPDATE enrolled_host SET state = 'wiping' WHERE id = ${host.id}`)
    await eventually('it is free', async () => {
      await driver.tend?.()
      return (await row())?.state === 'free'
    })
    await eventually('it says so', () => said(/is wiped and free/, before) === 1)
    t.equal(said(/not empty/, before), 0)
  })
})
