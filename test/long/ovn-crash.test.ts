import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { NORTHBOUND } from '../../controller/ovn/northbound/columns.js'
import { OWNER } from '../../controller/ovn/northbound/desired.js'
import { SOUTHBOUND } from '../../controller/ovn/southbound/columns.js'
import { OvsdbClient } from '../../controller/ovsdb/client.js'
import { killIfThere } from '../support/faults/crash-amphora.js'
import { openDatabases } from '../support/faults/crash-inventory.js'
import { recordLog } from '../support/recorded-log.js'
import { until } from '../support/worlds/krater.js'
import { startOvnKrater } from '../support/worlds/ovn-krater.js'

/** Longest time from a kill until the change is in effect, also while other tests use the processor. */
const BOUND_MS = 60_000

const PROCESSES = ['worker', 'network-worker', 'load-balancer-api', 'health-manager', 'supervisor'] as const
const DAEMONS = ['northbound', 'southbound', 'ovn-northd', 'ovn-controller', 'ovs-vswitchd', 'switch'] as const
type Part = (typeof PROCESSES)[number] | (typeof DAEMONS)[number]
const PARTS: readonly Part[] = [...PROCESSES, ...DAEMONS]

/** How far a change has come when the part dies. */
const STEPS = ['requested', 'in the northbound database', 'worked out by northd', 'installed'] as const
type Step = (typeof STEPS)[number]

t.test('every part dies at every step of a change, and nothing is lost or left', async t => {
  const world = await startOvnKrater(t)
  const { krater, lb, net } = world
  const tables = openDatabases(t, krater)
  const { log } = recordLog()
  const socket = (name: string) => [{ kind: 'unix', path: join(krater.directory, 'ovn', `${name}.socket`) } as const]
  const nb = new OvsdbClient({ addresses: socket('northbound'), database: 'OVN_Northbound', tables: NORTHBOUND, log })
  const sb = new OvsdbClient({ addresses: socket('southbound'), database: 'OVN_Southbound', tables: SOUTHBOUND, log })
  t.teardown(() => Promise.all([nb.stop(), sb.stop()]))

  const one = await world.settle('private', 'one')
  const two = await world.settle('private', 'two')
  const client = await world.settle('private', 'client')
  const { subnets } = await net<{ subnets: { id: string }[] }>('GET', '/subnets?name=private-subnet')
  const subnet_id = subnets[0]!.id
  const member = (place: { v4: string }) => ({ address: place.v4, protocol_port: 8080, subnet_id })
  const tree = (name: string) => ({
    ...{ name, provider: 'ovn', vip_subnet_id: subnet_id },
    listeners: [
      {
        ...{ protocol: 'TCP', protocol_port: 8080 },
        default_pool: {
          ...{ name, protocol: 'TCP', lb_algorithm: 'SOURCE_IP_PORT', members: [member(one)] },
          healthmonitor: { type: 'TCP', delay: 1, timeout: 1, max_retries: 1 },
        },
      },
    ],
  })

  /** Every part is asked until it answers: it may be what has just died. */
  const request = async <T>(method: string, path: string, body?: unknown): Promise<T> => {
    let done: { answer: T } | null = null
    await until(`${method} ${path} is answered`, async () => {
      done = await lb<T>(method, path, body).then(
        answer => ({ answer }),
        () => null,
      )
      return done !== null
    })
    return done!.answer
  }
  const find = async (name: string) =>
    (await request<{ loadbalancers: Shown[] }>('GET', `/loadbalancers?name=${name}`)).loadbalancers[0]
  type Shown = { id: string; provisioning_status: string; vip_address: string }

  const pidOfDaemon = (name: string): number => {
    const file = join(krater.directory, 'ovn', `${name}.pid`)
    return existsSync(file) ? Number(readFileSync(file, 'utf8')) : 0
  }
  const isDaemon = (part: Part): part is (typeof DAEMONS)[number] => (DAEMONS as readonly string[]).includes(part)
  const processOf = (part: (typeof PROCESSES)[number]) => (part === 'supervisor' ? 'up' : part)
  const isRunning = (part: Part): boolean =>
    isDaemon(part) ? existsSync(`/proc/${pidOfDaemon(part)}`) : krater.running().includes(processOf(part))
  const kill = (part: Part): void => killIfThere(isDaemon(part) ? pidOfDaemon(part) : krater.pidOf(processOf(part)))

  /** Waits until a change has come as far as the step, or is over. */
  const reach = async (step: Step, isInNorthbound: () => boolean, isOver: () => Promise<boolean>): Promise<void> => {
    if (step === 'requested') return
    if (!(await nb.until(isInNorthbound, BOUND_MS))) return
    if (step === 'in the northbound database') return
    const change = [...nb.rows('NB_Global').values()][0]?.nb_cfg ?? 0
    await sb.until(() => ([...sb.rows('SB_Global').values()][0]?.nb_cfg ?? 0) >= change, BOUND_MS)
    if (step === 'worked out by northd') return
    await sb.until(() => [...sb.rows('Chassis_Private').values()].every(({ nb_cfg }) => nb_cfg >= change), BOUND_MS)
    await isOver()
  }

  const rowsOf = (id: string) =>
    [...nb.rows('Load_Balancer').values()].filter(({ external_ids }) => external_ids[OWNER] === `load-balancer/${id}`)
  const backends = (id: string) =>
    rowsOf(id).flatMap(({ vips }) => Object.values(vips).flatMap(text => text.split(',')))
  const slowest: { part: Part; step: Step; what: string; ms: number }[] = []
  const left = async (id: string): Promise<string[]> => {
    const owned = (['Load_Balancer', 'Load_Balancer_Health_Check', 'ACL', 'Logical_Router_Port'] as const).flatMap(
      table => [...nb.rows(table).values()].filter(({ external_ids }) => external_ids[OWNER] === `load-balancer/${id}`),
    )
    const uses = await tables.loadBalancer('ovn_address_use').where({ load_balancer_id: id })
    const ports = await tables.network('port').where('name', 'like', `%${id}%`)
    return [...owned, ...uses, ...ports].map(row => JSON.stringify(row))
  }

  const steady = (await request<{ loadbalancer: Shown }>('POST', '/loadbalancers', { loadbalancer: tree('steady') }))
    .loadbalancer
  await world.settled(steady.id)

  for (const step of STEPS) {
    for (const part of PARTS) {
      const name = `${part} ${step}`.replaceAll(' ', '-')
      const through = async (
        what: string,
        ask: () => Promise<unknown>,
        { isInNorthbound, isDone }: { isInNorthbound: () => boolean; isDone: () => Promise<boolean> },
      ) => {
        await until(`${part} is there`, () => isRunning(part))
        // What it asks for may be lost with the part that it asks, as any client's request.
        const asked = ask().catch(() => undefined)
        if (step !== 'requested') await asked
        await reach(step, isInNorthbound, isDone)
        const killed = performance.now()
        kill(part)
        if (part === 'supervisor') await krater.up()
        await asked
        await until(`${what} is done after the end of ${part}, ${step}`, async () => {
          if (await isDone()) return true
          const shown = await find(name)
          if (shown?.provisioning_status === 'ERROR') {
            throw new Error(`${what} failed: ${part}, ${step}`)
          }
          if (what === 'create' ? shown === undefined : shown?.provisioning_status === 'ACTIVE')
            await ask().catch(() => undefined)
          return false
        })
        const ms = performance.now() - killed
        slowest.push({ part, step, what, ms })
        t.ok(ms < BOUND_MS, `${part}, ${step}: ${what} is done in ${Math.round(ms)} ms`)
      }
      let id = ''
      const known = async () => {
        id ||= (await find(name))?.id ?? ''
        return id !== ''
      }
      const create = async () => {
        const made = await lb<{ loadbalancer: Shown }>('POST', '/loadbalancers', { loadbalancer: tree(name) })
        id = made.loadbalancer.id
      }
      await through('create', create, {
        isInNorthbound: () => id !== '' && backends(id).length === 1,
        isDone: async () =>
          (await known()) && (await find(name))?.provisioning_status === 'ACTIVE' && backends(id).length === 1,
      })
      const { vip_address: vip } = (await find(name))!
      await until(`${name} answers`, async () => (await client.ask(vip)) === `one ${client.v4}`)
      const { pools } = await request<{ pools: { id: string }[] }>('GET', `/pools?loadbalancer_id=${id}`)
      await through(
        'add a member',
        () => lb('PUT', `/pools/${pools[0]!.id}/members`, { members: [member(one), member(two)] }),
        {
          isInNorthbound: () => backends(id).length === 2,
          isDone: async () => (await find(name))?.provisioning_status === 'ACTIVE' && backends(id).length === 2,
        },
      )
      await through('delete', () => lb('DELETE', `/loadbalancers/${id}?cascade=true`), {
        isInNorthbound: () => rowsOf(id).length === 0,
        isDone: async () => (await find(name)) === undefined,
      })
      t.same(await left(id), [], `${part}, ${step}: nothing of it is left`)
      // Its monitor may have seen the end of the switch.
      await until('the other one serves', async () => (await client.ask(steady.vip_address)) !== null)
    }
  }
  for (const part of PARTS) {
    const ms = slowest.filter(one => one.part === part).map(one => one.ms)
    t.comment(
      `${part}: median ${Math.round(ms.sort((a, b) => a - b)[ms.length >> 1]!)} ms, most ${Math.round(ms.at(-1)!)} ms`,
    )
  }
  await until('OVN has what the tables say', async () => (await krater.command('ovn', 'check')).status === 0)
  await world.remove(steady.id)
  const { ports } = await net<{ ports: { device_owner: string }[] }>('GET', '/ports')
  t.same(
    ports.filter(({ device_owner }) => /^(Octavia|krater:balancer|ovn-lb-hm)/.test(device_owner)),
    [],
  )
  await until('and nothing more', async () => (await krater.command('ovn', 'check')).status === 0)
})
