import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { brotliDecompressSync } from 'node:zlib'
import t from 'tap'
import { NamespaceDriver } from '../../../controller/compute/namespace/driver.js'
import { agentTarget } from '../../../controller/provider/amphora/agent/agent.js'
import { readAgentBundle } from '../../../controller/provider/amphora/agent/bundle.js'
import { SshAgentConnections } from '../../../controller/provider/amphora/agent/connection.js'
import { upgradeAgent } from '../../../controller/provider/amphora/agent/upgrade.js'
import { createAmphoraProvider } from '../../../controller/provider/amphora/provider.js'
import { createTestDatabase } from '../../support/database/database.js'
import { rulesOf } from '../../support/inputs/placement.js'
import { newSshKeyPair } from '../../support/inputs/ssh-keys.js'
import { MEMBER_SUBNETS } from '../../support/worlds/amphora-world.js'
import { config, createScene, log } from '../../support/worlds/converge-scene.js'
import { SHARES } from '../../support/worlds/machine-shares.js'
import { createLab, eventually } from '../../support/worlds/machines.js'
import { bundle } from '../../support/worlds/programs.js'
import { NO_BINDINGS, NO_KEY_CHANNEL } from '../../support/worlds/unbound.js'

/** The agent before it could be upgraded in place, made by scripts/freeze-agent.js from 3dd05b00. */
const FROZEN = join(import.meta.dirname, '../../support/inputs/older-agent.mjs.br')

t.test('this controller and an agent of the version before', async t => {
  const programs = t.testdir({})
  const older = join(programs, 'older.mjs')
  writeFileSync(older, brotliDecompressSync(readFileSync(FROZEN)))
  await bundle({ agent: join(import.meta.dirname, '../../../amphora-agent/main.ts') }, programs)
  const own = join(programs, 'agent.mjs')
  const testDatabase = await createTestDatabase()
  t.teardown(testDatabase.drop)
  const db = testDatabase.of('load_balancer')
  const lab = await createLab({ agentBundle: older })
  const scene = await createScene(db)
  const { network, turns } = scene.world.enter()
  const management = await network.managementNetwork()
  await lab.fabric.attachHost({
    networkId: management.network.id,
    mtu: 1500,
    interfaceName: `ko${lab.instance}`,
    addresses: [`${management.controllerAddress}/24`],
  })
  const keys = newSshKeyPair()
  const agents = new SshAgentConnections({ controllerKey: keys.private, log })
  t.teardown(async () => {
    await agents.stop()
    await lab.destroy()
  })
  const { instance, directory, fabric } = lab
  const driverWith = (agentBundle: string) =>
    new NamespaceDriver({
      ...{ instance, directory, fabric, agentBundle, log, ...SHARES },
      networkMtu: async () => 1450,
      portFilters: async () => null,
    })
  const masterKey = Buffer.alloc(32, 7)
  const providerOn = (compute: NamespaceDriver) =>
    createAmphoraProvider({
      ...{ network, compute, turns, agents, database: db, masterKey, log },
      hostId: null,
      placement: rulesOf(),
      images: () => new Map(),
      agentBundle: readAgentBundle(own),
      controllerPublicKey: keys.public,
      operatorPublicKey: keys.public,
      healthManagers: [{ host: '10.0.0.1', port: 5555 }],
      keyChannel: NO_KEY_CHANNEL,
      bindings: NO_BINDINGS,
      haproxy: { oldWorkers: { most: 50, memoryMib: 512 }, logRequests: false },
      config: config.health_manager,
    })
  const row = () => db('amphora').where({ load_balancer_id: scene.id }).first()
  const targetOf = async () => {
    const { id, lb_network_ip: address } = await row()
    return agentTarget(masterKey, id, address)
  }

  await t.test('carry a load balancer from its creation through a change to traffic', async t => {
    const provider = providerOn(lab.driver)
    t.equal(await scene.attempt(provider), true)
    t.match(await row(), { status: 'ALLOCATED', agent_version: '0.1.0', agent_bundle: null, upgrade_fault: null })
    await scene.addMember(MEMBER_SUBNETS[0])
    t.equal(await scene.attempt(provider), true)
    const { generation } = await db('load_balancer').where({ id: scene.id }).first()
    const status = await agents.request(await targetOf(), { verb: 'status' })
    t.match(status, { haproxy: { running: true }, appliedGeneration: generation, bundle: undefined })
  })

  await t.test('say that it cannot be upgraded in place', async t => {
    await t.rejects(
      upgradeAgent(agents, await targetOf(), readAgentBundle(own), () => undefined),
      {
        name: 'UpgradeFailed',
        message: 'The agent is too old to be replaced in place.',
      },
    )
  })

  await t.test('hand over to an amphora with the controller’s own agent', async t => {
    const before = await row()
    await scene.failOver()
    const provider = providerOn(driverWith(own))
    // The older amphora goes once its last connections have ended.
    await eventually('the older amphora is gone', async () => {
      t.equal(await scene.attempt(provider), true)
      return (await lab.driver.find(before.id)) === null
    })
    const after = await row()
    t.not(after.id, before.id)
    t.match(after, { status: 'ALLOCATED', agent_bundle: readAgentBundle(own).sha256 })
    t.match(await agents.request(await targetOf(), { verb: 'status' }), { holdsVip: true })
  })

  await scene.change('delete')
  t.equal(await scene.attempt(providerOn(lab.driver)), true)
})
