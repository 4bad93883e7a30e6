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
import { execute } from '../../../controller/database/query.js'
import { sql } from '../../../controller/database/sql.js'
import { createLog } from '../../../controller/log/log.js'
import { createNoopNetworkDriver } from '../../../controller/network/noop/driver.js'
import { createTestDatabase } from '../../support/database/database.js'
import { eventually } from '../../support/eventually.js'
import { PLACEMENT } from '../../support/inputs/placement.js'
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
  const gate = createGate()
  const agents: HostAgents = {
    become: async ({ id }, boot) => void told.set(id, [...(told.get(id) ?? []), boot]),
    turn: async ({ id }) => {
      if (slow.has(id)) await gate.pass()
      return told.get(id)?.at(-1)?.host?.turn ?? 0
    },
    survey: async () => [],
  }
  return { agents, told, release: gate.open }
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
    return answering
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
