import { randomBytes, randomUUID } from 'node:crypto'
import type { Bindings } from '../../../controller/bindings/bindings.js'
import { configurationSchema } from '../../../controller/config/schema.js'
import type { Database } from '../../../controller/database/connection.js'
import { channelAccessOf } from '../../../controller/key-channel/keys.js'
import { markDeleted, touchPool } from '../../../controller/load-balancer/change/change.js'
import { replaceAll } from '../../../controller/load-balancer/change/replace-amphorae.js'
import { storeMembers } from '../../../controller/load-balancer/change/store.js'
import { member } from '../../../controller/load-balancer/objects/members/resource.js'
import { createSchema } from '../../../controller/load-balancer/schema/resource.js'
import { readTree } from '../../../controller/load-balancer/tree/read-tree.js'
import type { LoadBalancerTree } from '../../../controller/load-balancer/tree/tree.js'
import { createLog } from '../../../controller/log/log.js'
import { addressesOf, type Port } from '../../../controller/network/driver.js'
import { type AmphoraProviderOptions, createAmphoraProvider } from '../../../controller/provider/amphora/provider.js'
import { ClaimLost, type Provider } from '../../../controller/provider/provider.js'
import type { Claim } from '../../../controller/queue/claim.js'
import { settle } from '../../../controller/worker/settle.js'
import { changeLoadBalancer, changeTree, insertChildren, insertLoadBalancer } from '../database/load-balancer-rows.js'
import { PLACEMENT, PLACEMENT_COLUMNS, rulesOf } from '../inputs/placement.js'
import { type AmphoraWorld, createAmphoraWorld, MEMBER_SUBNETS, VIP_SUBNET } from './amphora-world.js'
import { NO_BINDINGS, NO_KEY_CHANNEL } from './unbound.js'

export const log = createLog('test', 'silent')
export const config = configurationSchema.parse({})

export const providerOf = (
  database: Database,
  drivers: Pick<AmphoraProviderOptions, 'network' | 'compute' | 'agents' | 'turns'> &
    Partial<Pick<AmphoraProviderOptions, 'placement' | 'images'>>,
  bindings: Bindings = NO_BINDINGS,
  agentBundle: AmphoraProviderOptions['agentBundle'] = null,
): Provider =>
  createAmphoraProvider({
    placement: rulesOf(),
    images: () => new Map(),
    agentBundle,
    ...drivers,
    database,
    hostId: null,
    masterKey: Buffer.alloc(32, 7),
    controllerPublicKey: 'ssh-ed25519 AAAA controller',
    operatorPublicKey: 'ssh-ed25519 AAAA operator',
    healthManagers: [{ host: '10.0.0.1', port: 5555 }],
    keyChannel: NO_KEY_CHANNEL,
    bindings,
    haproxy: { oldWorkers: { most: 50, memoryMib: 512 }, logRequests: false },
    config: config.health_manager,
    log,
  })

/** One load balancer in its own world, and the actions of workers on it. */
export async function createScene(db: Database, columns: Record<string, unknown> = {}) {
  await db('amphora_restart').delete()
  const world = createAmphoraWorld()
  const id = await insertLoadBalancer(db, { project_id: randomUUID(), vip_subnet_id: VIP_SUBNET, ...columns })
  const vip = await world.enter().network.ensurePort({
    networkId: '80000000-0000-4000-8000-000000000001',
    fixedIps: [{ subnetId: VIP_SUBNET, address: '203.0.113.10' }],
    projectId: 'p',
    name: `octavia-lb-${id}`,
    deviceId: `lb-${id}`,
    deviceOwner: 'Octavia',
  })
  await db('load_balancer').where({ id }).update({ vip_port_id: vip.id })
  const { poolId } = await insertChildren(db, id, 1)
  let memberNumber = 0

  const claim = async (): Promise<Claim> => {
    const [row] = await db('load_balancer')
      .where({ id })
      .update({ fence: db.raw('fence + 1') })
      .returning<{ fence: number; claimedAt: string }[]>(['fence', db.raw('now()::text AS "claimedAt"')])
    // A worker would renew its lease; here it never ends, however slow the machine is.
    const heldUntil = Number.POSITIVE_INFINITY
    return { table: 'load_balancer', id, fence: row?.fence ?? 0, heldUntil, claimedAt: row?.claimedAt ?? 'now' }
  }
  return {
    id,
    world,
    claim,
    change: (change: 'update' | 'delete' = 'update') => changeLoadBalancer(db, id, change),
    addMember: async (subnetId: string | null) => {
      memberNumber += 1
      const address = `192.0.2.${memberNumber}`
      const values = createSchema(member).parse({ address, protocol_port: 80, subnet_id: subnetId })
      await changeTree(db, id, async (trx, loadBalancer) => {
        const { last_server_number: serverNumber, monitored } = await touchPool(trx, loadBalancer, poolId, 1)
        const made = { id: randomUUID(), values }
        await storeMembers(trx, loadBalancer, [{ poolId, member: made, serverNumber, monitored }])
      })
    },
    removeMembers: (subnetId: string) =>
      changeTree(db, id, async (trx, loadBalancer) => {
        const ids = await trx('member').where({ load_balancer_id: id, subnet_id: subnetId }).pluck<string[]>('id')
        await markDeleted(trx, loadBalancer, member, ids)
      }),
    /** As the API requests other amphorae. */
    failOver: () => changeTree(db, id, replaceAll),
    /** Its amphorae sent heartbeats `secondsAgo`, and have done so for long. */
    hear: async (secondsAgo: number) => {
      const times = { last_seen: db.raw("now() - ? * interval '1 second'", [secondsAgo]), heard_since: new Date(0) }
      const rows = (await db('amphora').where({ load_balancer_id: id })).map(amphora => ({
        ...{ amphora_id: amphora.id, boot_id: '00', last_seq: 1, sent_ms: 1, generation: 1, config_hash: '' },
        ...{ needs_apply: false, vrrp_master: true, haproxy_running: true },
        ...times,
      }))
      await db('amphora_health').insert(rows).onConflict('amphora_id').merge(times)
    },
    amphoraIds: () => db('amphora').where({ load_balancer_id: id }).pluck<string[]>('id'),
    /** One attempt of a worker whose drivers meet these fates. @returns whether it completed */
    attempt: async (provider: Provider): Promise<true | Error> => {
      const held = await claim()
      const tree = await readTree(db, id)
      if (tree === null) return true
      try {
        await provider.converge(held, tree, new AbortController().signal)
      } catch (error) {
        if (error instanceof Error) return error
        throw error
      }
      return (await settle(db, held, tree)) === 'lost' ? new ClaimLost() : true
    },
    /** Makes every silence an old one. */
    letTimePass: () =>
      db('amphora')
        .where({ load_balancer_id: id })
        .update({
          updated_at: db.raw(`now() - interval '1 minute'`),
          created_at: db.raw(`now() - interval '1 minute'`),
        }),
    tree: () => readTree(db, id),
  }
}
export type Scene = Awaited<ReturnType<typeof createScene>>

/** What is wrong with the world when nothing is in progress; empty when it is as the tree requires. */
export async function faultsOf(db: Database, { world, tree, id }: Scene, warmIds: string[]): Promise<string[]> {
  const faults: string[] = []
  const expect = (what: string, actual: unknown, desired: unknown) => {
    if (JSON.stringify(actual) !== JSON.stringify(desired)) {
      faults.push(`${what}: ${JSON.stringify(actual)}, not ${JSON.stringify(desired)}`)
    }
  }
  const now = await tree()
  const rows = await db('amphora').where({ load_balancer_id: id }).select('*')
  const warm = await db('amphora').whereNull('load_balancer_id').whereIn('id', warmIds).pluck<string[]>('id')
  const ids = rows.map(row => row.id as string)
  expect('machines', [...world.machines.keys()].sort(), [...ids, ...warm].sort())
  expect('management ports', devices(world, 'management'), [...ids, ...warm].sort())
  if (now === null) {
    expect('ports', [...world.portsOwnedBy('amphora'), ...world.portsOwnedBy('vip')], [])
    return faults
  }
  expect('generation', now.appliedGeneration, now.generation)
  expect(
    'VIP ports',
    world.portsOwnedBy('vip').map(port => port.id),
    [now.vip.portId],
  )
  expect('roles', rows.map(row => row.role).sort(), now.topology === 'SINGLE' ? ['STANDALONE'] : ['BACKUP', 'MASTER'])
  const desired = desiredSubnets(now)
  for (const row of rows) {
    const machine = world.machines.get(row.id)
    const own = world.portsOwnedBy('amphora').filter(port => port.deviceId === row.id)
    expect('status', [row.status, machine?.state, machine?.hung], ['ALLOCATED', 'running', false])
    expect('plugged', [...(machine?.plugged.keys() ?? [])].sort(), own.map(port => port.id).sort())
    expect('addresses', sendersOf([...(machine?.plugged.values() ?? [])]), sendersOf(own))
    const reached = own.flatMap(port => port.fixedIps.map(fixedIp => fixedIp.subnetId))
    expect('subnets', reached.sort(), [...new Set(desired)].sort())
    expect('ports', own.length, new Set(desired.map(networkOf)).size)
    expect('agent', machine?.applied?.generation, now.generation)
    expect('record', [row.applied_generation, row.applied_sha256], [now.generation, machine?.applied?.sha256])
  }
  return faults
}

/** The addresses that interfaces may send from. */
const sendersOf = (ports: readonly Port[]) => ports.flatMap(addressesOf).sort()

const devices = (world: AmphoraWorld, owner: 'management') =>
  world
    .portsOwnedBy(owner)
    .map(port => port.deviceId)
    .sort()

const networkOf = (subnetId: string) => (subnetId === MEMBER_SUBNETS[2] ? MEMBER_SUBNETS[1] : subnetId)

const desiredSubnets = (tree: LoadBalancerTree) => [
  ...new Set([VIP_SUBNET, ...tree.pools.flatMap(pool => pool.members).flatMap(member => member.subnetId ?? [])]),
]

/** A warm amphora, as housekeeping leaves one. @param columns beside those of the standard flavor */
export async function addWarmAmphora(
  db: Database,
  world: AmphoraWorld,
  columns: Record<string, unknown> = {},
): Promise<string> {
  const id = randomUUID()
  const { network, compute } = world.enter()
  const { subnet } = await network.managementNetwork()
  const managementPort = await network.ensurePort({
    networkId: subnet.networkId,
    fixedIps: [{ subnetId: subnet.id }],
    projectId: 'service',
    name: `octavia-lb-mgmt-${id}`,
    deviceId: id,
    deviceOwner: 'Octavia:management',
  })
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
      heartbeatKey: randomBytes(32),
      heartbeatKeyId: 1,
    },
    healthManagers: [],
    keyChannel: channelAccessOf(NO_KEY_CHANNEL, id),
    beatIntervalSeconds: 3,
  })
  await db('amphora').insert({
    id,
    status: 'READY',
    ...PLACEMENT_COLUMNS,
    lb_network_ip: managementPort.fixedIps[0]?.address,
    management_port_id: managementPort.id,
    ...columns,
  })
  return id
}
