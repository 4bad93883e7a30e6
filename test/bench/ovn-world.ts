import { execFile } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { promisify } from 'node:util'
import { instanceId } from '../../controller/cli/state-directory/instance.js'
import { runningProcesses } from '../../controller/cli/state-directory/run-record.js'
import { type Place, settle } from '../support/worlds/ovn-place.js'
import { type BenchInstance, processorSeconds, residentMebibytes, startInstance } from './instance.js'
import { type StageWatch, watchStages } from './ovn-stages.js'

const run = promisify(execFile)
export const LISTENERS = 5
export const MEMBERS = 10
/** Load balancers have their VIPs on these, in turn. */
const NETWORKS = Number(process.env.BENCH_NETWORKS ?? 10)
const CLIENTS = 4
const FIRST_PORT = 8_000
const MAX_BALANCERS = 1_200
const POLL_MS = 5
const DAEMONS = ['northbound', 'southbound', 'ovn-northd', 'ovn-controller', 'ovs-vswitchd'] as const

/** A load balancer with what changes of it need. */
export type Balancer = { id: string; vip: string; poolId: string; memberId: string; listenerId: string }
type Call = <T>(method: string, path: string, body?: unknown) => Promise<T>

/** A Krater on OVN. */
export type OvnWorld = {
  instance: BenchInstance
  stages: StageWatch
  call: Call
  place: (network: string, name: string) => Promise<Place>
  /** A load balancer with one listener on the network `private`, whose members are these. */
  served: (members: readonly Place[]) => Promise<Balancer>
  /** Adds load balancers of 5 listeners with a pool of 10 members each until there are so many. @returns one */
  growTo: (count: number) => Promise<Balancer>
  /** How many of these there are. */
  balancers: () => number
  /** Waits until a load balancer is ACTIVE. @returns when. @throws Error if it fails */
  active: (id: string) => Promise<number>
  /** Waits until none is under way. */
  allActive: () => Promise<void>
  /** CPU seconds so far and resident memory, by program. */
  costs: () => Map<string, { seconds: number; mebibytes: number }>
  /** `ovn-nbctl`, in one process. */
  nbctl: (...words: string[]) => Promise<string>
  remove: () => Promise<void>
}

export async function startOvnWorld(root: string, firstPort: number): Promise<OvnWorld> {
  const most = (kind: string, count: number) => [`KRATER_LOAD_BALANCER_QUOTA_${kind}`, String(count)]
  const instance = await startInstance(
    root,
    {
      ...{ KRATER_NETWORK_DRIVER: 'ovn', KRATER_COMPUTE_WARM_AMPHORAE: '0' },
      ...Object.fromEntries([
        most('LOADBALANCER', MAX_BALANCERS),
        most('LISTENER', MAX_BALANCERS * LISTENERS),
        most('POOL', MAX_BALANCERS * LISTENERS),
        most('MEMBER', MAX_BALANCERS * LISTENERS * MEMBERS),
      ]),
    },
    firstPort,
  )
  const ends: (() => unknown)[] = [instance.remove]
  const remove = async () => {
    for (const end of ends) await end()
  }
  try {
    const stages = await watchStages(instance.directory)
    ends.unshift(stages.stop)
    const call: Call = async (method, path, body) =>
      (await instance.api.request('load-balancer', method, `/v2.0/lbaas${path}`, body)) as never
    const statusOf = async (id: string) =>
      (await call<{ loadbalancer: { provisioning_status: string } }>('GET', `/loadbalancers/${id}`)).loadbalancer
        .provisioning_status
    const active = async (id: string) => {
      for (;;) {
        const status = await statusOf(id)
        if (status === 'ACTIVE') return performance.now()
        if (status === 'ERROR') throw new Error(`${id} is in ERROR`)
        await delay(POLL_MS)
      }
    }
    const allActive = async () => {
      for (const status of ['PENDING_CREATE', 'PENDING_UPDATE', 'ERROR']) {
        const path = `/loadbalancers?provisioning_status=${status}&limit=1&fields=id`
        while ((await call<{ loadbalancers: object[] }>('GET', path)).loadbalancers.length > 0) await delay(200)
      }
    }
    const create = async (body: object): Promise<Balancer> => {
      type Created = {
        id: string
        vip_address: string
        listeners: { id: string }[]
        pools: { id: string }[]
      }
      const { loadbalancer: made } = await call<{ loadbalancer: Created }>('POST', '/loadbalancers', {
        loadbalancer: { provider: 'ovn', ...body },
      })
      const [poolId = '', listenerId = ''] = [made.pools[0]?.id, made.listeners[0]?.id]
      const { members } = await call<{ members: { id: string }[] }>('GET', `/pools/${poolId}/members`)
      return { id: made.id, vip: made.vip_address, poolId, listenerId, memberId: members[0]?.id ?? '' }
    }
    const net = async <T>(method: string, path: string, body?: unknown) =>
      (await instance.api.request('network', method, `/v2.0${path}`, body)) as T
    const subnets = await makeSubnets(net)
    const balancers: Balancer[] = []
    const growTo = async (count: number): Promise<Balancer> => {
      let next = balancers.length
      const client = async () => {
        for (let n = next++; n < count; n = next++) balancers.push(await create(bulkBalancer(n, subnets)))
      }
      await Promise.all(Array.from({ length: CLIENTS }, client))
      const last = balancers.at(-1)
      if (last === undefined) throw new Error('There is no load balancer.')
      return last
    }
    return {
      ...{ instance, stages, call, active, allActive, growTo, remove, balancers: () => balancers.length },
      place: (network, name) => {
        const command = (...args: string[]) =>
          instance.krater(...args).then(({ stdout }) => ({ status: 0, stdout, stderr: '' }))
        const ending = { teardown: (act: () => unknown) => void ends.unshift(act) }
        return settle(ending, { command, instance: () => instanceId(instance.directory) ?? '' }, network, name)
      },
      served: async members => {
        const [subnet] = (await net<{ subnets: { id: string }[] }>('GET', '/subnets?name=private-subnet')).subnets
        return create({
          vip_subnet_id: subnet?.id,
          listeners: [
            listenerOf(
              8080,
              members.map(({ v4 }) => ({ address: v4, protocol_port: 8080, subnet_id: subnet?.id })),
            ),
          ],
        })
      },
      costs: () => costsOf(instance.directory),
      nbctl: async (...words) => {
        const where = `--db=unix:${join(instance.directory, 'ovn/northbound.socket')}`
        return (await run('ovn-nbctl', [where, ...words], { timeout: 600_000, maxBuffer: 2 ** 26 })).stdout
      },
    }
  } catch (error) {
    await remove()
    throw error
  }
}

type Net = <T>(method: string, path: string, body?: unknown) => Promise<T>
type BenchSubnet = { id: string; prefix: string }

async function makeSubnets(net: Net): Promise<BenchSubnet[]> {
  const made: BenchSubnet[] = []
  for (let n = 0; n < NETWORKS; n++) {
    const { network } = await net<{ network: { id: string } }>('POST', '/networks', { network: { name: `bench-${n}` } })
    const prefix = `10.${n}`
    const { subnet } = await net<{ subnet: { id: string } }>('POST', '/subnets', {
      subnet: { network_id: network.id, ip_version: 4, cidr: `${prefix}.0.0/16` },
    })
    made.push({ id: subnet.id, prefix })
  }
  return made
}

/** Nothing is at the members' addresses. */
function bulkBalancer(n: number, subnets: readonly BenchSubnet[]): object {
  const subnet = subnets[n % subnets.length]
  const members = Array.from({ length: MEMBERS }, (_, at) => ({
    ...{ address: `${subnet?.prefix}.${200 + (n % 50)}.${1 + at}`, protocol_port: FIRST_PORT, subnet_id: subnet?.id },
  }))
  return {
    vip_subnet_id: subnet?.id,
    listeners: Array.from({ length: LISTENERS }, (_, at) => listenerOf(FIRST_PORT + at, members)),
  }
}

const listenerOf = (port: number, members: readonly object[]) => ({
  ...{ name: `port-${port}`, protocol: 'TCP', protocol_port: port },
  default_pool: { name: `port-${port}`, protocol: 'TCP', lb_algorithm: 'SOURCE_IP_PORT', members },
})

function costsOf(directory: string): Map<string, { seconds: number; mebibytes: number }> {
  const pids = [
    ...runningProcesses(directory)
      .filter(({ name }) => name === 'worker' || name === 'network-worker')
      .map(({ name, identity }) => [name, identity.pid] as const),
    ...DAEMONS.map(name => [name, Number(readFileSync(join(directory, `ovn/${name}.pid`), 'utf8'))] as const),
  ]
  return new Map(
    pids.map(([name, pid]) => [name, { seconds: processorSeconds(pid), mebibytes: residentMebibytes(pid) }]),
  )
}
