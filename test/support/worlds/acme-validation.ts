import { randomBytes, randomUUID } from 'node:crypto'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { build } from 'esbuild'
import { createReach } from '../../../controller/cli/wiring/key-manager/acme-reach.js'
import { createResolver } from '../../../controller/key-manager/acme-server/validation/resolver.js'
import { startValidator } from '../../../controller/key-manager/acme-server/validation/validator.js'
import type { NetworkDriver } from '../../../controller/network/driver.js'
import { createLocalDriver } from '../../../controller/network/local/driver.js'
import { Fabric } from '../../../controller/network/local/fabric.js'
import { ip } from '../../../controller/network/local/ip-command.js'
import { createTestDatabase } from '../database/database.js'
import { type RecordedLog, recordLog } from '../recorded-log.js'
import { type ChallengeMachine, startChallengeMachine } from '../services/challenge-machine.js'
import { type Answer, type NameServer, type Question, startNameServer } from '../services/name-server.js'
import { type AcmeWorld, startAcmeServer } from './acme-server.js'
import { type LocalNetworks, localNetworks } from './local-networks.js'

export type ValidationWorld = AcmeWorld & {
  driver: NetworkDriver
  fabric: Fabric
  networks: LocalNetworks
  nameServer: NameServer
  log: RecordedLog
  /** A machine with this or any address on a subnet. */
  machine: (project: string, subnet: string, address?: string) => Promise<ChallengeMachine & { address: string }>
}

/** The bundled program of probes, as in the product. */
async function buildProbe(directory: string): Promise<string> {
  const program = join(directory, 'acme-probe.mjs')
  await build({
    entryPoints: [join(import.meta.dirname, '../../../controller/key-manager/acme-server/probe/probe-process.ts')],
    ...{ outfile: program, bundle: true, platform: 'node', target: 'node20', format: 'esm' },
    banner: { js: "import { createRequire } from 'node:module'\nconst require = createRequire(import.meta.url)" },
  })
  return program
}

/**
 * The ACME server with a validator that reaches real networks in the kernel.
 * @param answerTo what DNS says
 */
export async function startValidation(
  answerTo: (question: Question) => Answer,
  { outsideNetworks = [] }: { outsideNetworks?: readonly string[] } = {},
): Promise<ValidationWorld> {
  const world = await startAcmeServer({ acme_server: { failures_per_hour: 1000, accounts_per_hour: 1000 } })
  const directory = mkdtempSync(join(tmpdir(), 'krater-probe-'))
  const testDatabase = await createTestDatabase()
  const database = testDatabase.of('network')
  const driver = createLocalDriver(database, { reserve: 64, project_share: 25 })
  const networks = localNetworks(database, driver)
  const instance = randomBytes(3).toString('hex')
  const fabric = new Fabric({ instance })
  await fabric.ensure()
  const management = await networks.network('service', '172.30.9.0/24')
  await database('network').where({ id: management.id }).update({ built_in: 'management' })
  const nameServer = await startNameServer(answerTo)
  const log = recordLog()
  const validator = await startValidator({
    database: world.manager.database,
    databaseUrl: world.manager.databaseUrl,
    world: {
      resolver: createResolver([nameServer.address]),
      reach: createReach({ driver, fabric, outsideNetworks, program: await buildProbe(directory) }),
    },
    log: log.log,
  })
  const machines: ChallengeMachine[] = []
  const namespaces: string[] = []
  return {
    ...world,
    ...{ driver, fabric, networks, nameServer, log },
    machine: async (project, subnet, desired) => {
      const [facts] = await driver.subnets([subnet])
      if (facts === undefined) throw new Error('There is no such subnet')
      const place = { subnetId: subnet, ...(desired !== undefined && { address: desired }) }
      const { id: portId } = await driver.ensurePort({
        ...{ networkId: facts.networkId, fixedIps: [place], projectId: project },
        ...{ name: 'machine', deviceId: randomUUID(), deviceOwner: 'test' },
      })
      const port = await driver.port(portId)
      const address = port?.fixedIps[0]?.address ?? ''
      const namespace = `test-${instance}-${namespaces.length}`
      await ip(['netns', 'add', namespace])
      namespaces.push(namespace)
      await ip(['-n', namespace, 'link', 'set', 'lo', 'up'])
      const nic = {
        networkId: facts.networkId,
        mtu: 1500,
        portId,
        macAddress: port?.macAddress ?? '',
        addresses: [address],
      }
      await fabric.attach({ ...nic, namespace, interfaceName: 'eth0' })
      const nodad = address.includes(':') ? ['nodad'] : []
      await ip(['-n', namespace, 'address', 'add', `${address}/${facts.cidr.split('/')[1]}`, 'dev', 'eth0', ...nodad])
      await ip(['-n', namespace, 'link', 'set', 'eth0', 'up'])
      const machine = await startChallengeMachine(namespace)
      machines.push(machine)
      return { ...machine, address }
    },
    stop: async () => {
      await validator.stop()
      for (const machine of machines) await machine.stop()
      for (const namespace of namespaces) await ip(['netns', 'delete', namespace])
      await fabric.remove()
      await nameServer.stop()
      await world.stop()
      await testDatabase.drop()
      rmSync(directory, { recursive: true })
    },
  }
}
