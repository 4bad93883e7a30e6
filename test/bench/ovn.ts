import type { Place } from '../support/worlds/ovn-place.js'
import { percentile } from './measure.js'
import { type ByHand, writeByHand } from './ovn-by-hand.js'
import { type Balancer, LISTENERS, MEMBERS, type OvnWorld, startOvnWorld } from './ovn-world.js'

/** Load balancers beside which changes are measured. */
const COUNTS = (process.env.BENCH_BALANCERS ?? '10,100').split(',').map(Number)
const REPETITIONS = Number(process.env.BENCH_REPETITIONS ?? 20)
const EFFECT_LIMIT_MS = 20_000
/** A client's choice among two members is a matter of chance: so many answers without one of them are none. */
const IN_A_ROW = 20

/**
 * Load balancers in a real OVN: from a change to its effect, what it costs beside many others, a check, a repair, and
 * the same by hand. `BENCH_BALANCERS`, `BENCH_NETWORKS`, `BENCH_REPETITIONS` and `BENCH_BY_HAND` choose others.
 * @returns parts of the page, as Markdown
 */
export async function benchOvn(root: string): Promise<string[]> {
  const world = await startOvnWorld(root, 29_300)
  try {
    const effects = await effectsTable(world)
    const growth: Growth[] = []
    for (const count of COUNTS) growth.push(await measureBeside(world, count))
    const checks = await checkAndRepair(world)
    const byHand = await writeByHand(world)
    const created = growth.at(-1)
    return [
      'One `krater up` with an OVN of its own in userspace; clients, Krater, PostgreSQL and OVN share this machine. Rows are seen in both databases as they come: “rows written” is Krater’s part, “computed by northd” and “installed” are OVN’s, “ACTIVE” is Krater’s again, with the polls of the client.',
      '### From a change to its effect',
      `One load balancer with two members, a client that asks through the VIP all the time, ${REPETITIONS} changes of each kind; milliseconds after the request was sent.`,
      effects,
      '### Beside many others',
      `Load balancers of ${LISTENERS} listeners with a pool of ${MEMBERS} members each. ${REPETITIONS} times a member of one is drained or serves again.`,
      stagesTable(growth),
      'CPU milliseconds of one such change, by program:',
      costsTable(growth),
      'Resident memory, MiB:',
      memoryTable(growth),
      '### Check and repair',
      checks,
      '### By hand',
      byHandTable(byHand, created),
    ]
  } finally {
    await world.remove()
  }
}

async function effectsTable(world: OvnWorld): Promise<string> {
  const [one, two, client] = [
    await world.place('private', 'one'),
    await world.place('private', 'two'),
    await world.place('private', 'client'),
  ]
  const balancer = await world.served([one, two])
  await world.active(balancer.id)
  const { call } = world
  const members = `/pools/${balancer.poolId}/members`
  const { members: shown } = await call<{ members: { id: string; address: string; subnet_id: string }[] }>(
    'GET',
    members,
  )
  const first = shown.find(({ address }) => address === one.v4)
  if (first === undefined) throw new Error('The load balancer lacks a member.')
  let [memberId, listenerId] = [first.id, '']
  const asked = (port?: number) => async () =>
    (await client.ask(balancer.vip, { ...(port && { port }), waitMs: 500 }))?.split(' ')[0] ?? null
  const changes: Record<string, { act: () => Promise<unknown>; effect: () => Promise<number> }> = {
    'weight 0': {
      act: () => call('PUT', `${members}/${memberId}`, { member: { weight: 0 } }),
      effect: () => inEffect(asked(), one, false),
    },
    'weight 1': {
      act: () => call('PUT', `${members}/${memberId}`, { member: { weight: 1 } }),
      effect: () => inEffect(asked(), one, true),
    },
    'member removed': {
      act: () => call('DELETE', `${members}/${memberId}`),
      effect: () => inEffect(asked(), one, false),
    },
    'new member': {
      act: async () => {
        const body = { member: { address: one.v4, protocol_port: 8080, subnet_id: first.subnet_id } }
        memberId = (await call<{ member: { id: string } }>('POST', members, body)).member.id
      },
      effect: () => inEffect(asked(), one, true),
    },
    'new listener': {
      act: async () => {
        const listener = {
          ...{ loadbalancer_id: balancer.id, protocol: 'TCP', protocol_port: 9090, default_pool_id: balancer.poolId },
        }
        listenerId = (await call<{ listener: { id: string } }>('POST', '/listeners', { listener })).listener.id
      },
      effect: () => inEffect(asked(9090), one, true),
    },
    'listener removed': {
      act: () => call('DELETE', `/listeners/${listenerId}`),
      effect: () => goneAt(asked(9090)),
    },
  }
  const times = new Map(Object.keys(changes).map(name => [name, [] as Effect[]]))
  for (let round = 0; round < REPETITIONS; round++) {
    for (const [name, { act, effect }] of Object.entries(changes)) {
      const began = performance.now()
      await act()
      const answered = performance.now()
      const [active, effective] = await Promise.all([world.active(balancer.id), effect()])
      times.get(name)?.push({ answered: answered - began, active: active - began, effective: effective - began })
    }
  }
  return table(
    ['change', 'the API answers: p50', 'p99', 'ACTIVE: p50', 'p99', 'traffic follows: p50', 'p99'],
    [...times].map(([name, all]) => [
      name,
      ...(['answered', 'active', 'effective'] as const).flatMap(kind => spread(all.map(one => one[kind]))),
    ]),
  )
}

type Effect = { answered: number; active: number; effective: number }
type Ask = () => Promise<string | null>

/** When a member was first seen, or last seen before many answers came from others. */
async function inEffect(ask: Ask, member: Place, serves: boolean): Promise<number> {
  const until = performance.now() + EFFECT_LIMIT_MS
  let last = performance.now()
  for (let others = 0; performance.now() < until; ) {
    const name = await ask()
    if (serves && name === member.name) return performance.now()
    if (serves || name !== member.name) others += 1
    else [others, last] = [0, performance.now()]
    if (!serves && others === IN_A_ROW) return last
  }
  throw new Error('The change did not take effect in time.')
}

async function goneAt(ask: Ask): Promise<number> {
  const until = performance.now() + EFFECT_LIMIT_MS
  while (performance.now() < until) if ((await ask()) === null) return performance.now()
  throw new Error('The listener did not go in time.')
}

type Growth = {
  count: number
  /** Milliseconds until those that were added were ACTIVE, and how many these were. */
  creation: { added: number; milliseconds: number }
  /** Milliseconds of each part of the way of each change. */
  parts: Record<(typeof PARTS)[number], number[]>
  /** CPU milliseconds of a change, by program. */
  cpu: ReadonlyMap<string, number>
  memory: ReadonlyMap<string, number>
}

const PARTS = ['rows written', 'computed by northd', 'installed', 'ACTIVE', 'all'] as const

async function measureBeside(world: OvnWorld, count: number): Promise<Growth> {
  const before = world.balancers()
  const began = performance.now()
  const balancer = await world.growTo(count)
  await world.allActive()
  const creation = { added: count - before, milliseconds: performance.now() - began }
  progress(`${count} load balancers: ${(creation.milliseconds / 1000).toFixed(0)} s`)
  await world.stages.rest()
  const parts: Growth['parts'] = {
    ...{ 'rows written': [], 'computed by northd': [], installed: [], ACTIVE: [], all: [] },
  }
  const costs = world.costs()
  for (let round = 0; round < REPETITIONS; round++) {
    const { written, computed, installed, sent, active } = await change(world, balancer, round % 2)
    parts['rows written'].push(written - sent)
    parts['computed by northd'].push(computed - written)
    parts.installed.push(installed - computed)
    parts.ACTIVE.push(Math.max(0, active - installed))
    parts.all.push(active - sent)
  }
  const after = world.costs()
  const cpu = new Map(
    [...after].map(([name, { seconds }]) => [name, ((seconds - (costs.get(name)?.seconds ?? 0)) * 1000) / REPETITIONS]),
  )
  progress(stagesTable([{ count, creation, parts, cpu, memory: new Map() }]))
  progress([...cpu].map(([name, milliseconds]) => `${name} ${milliseconds.toFixed(0)} ms`).join(', '))
  return { count, creation, parts, cpu, memory: new Map([...after].map(([name, { mebibytes }]) => [name, mebibytes])) }
}

async function change({ call, active, stages }: OvnWorld, { id, poolId, memberId }: Balancer, weight: number) {
  const seen = stages.next()
  const sent = performance.now()
  await call('PUT', `/pools/${poolId}/members/${memberId}`, { member: { weight } })
  const [activeAt, stage] = await Promise.all([active(id), seen])
  return { ...stage, sent, active: activeAt }
}

async function checkAndRepair({ instance, stages, nbctl, allActive }: OvnWorld): Promise<string> {
  const seconds = async (act: () => Promise<unknown>) => {
    const began = performance.now()
    await act()
    return ((performance.now() - began) / 1000).toFixed(1)
  }
  const checked = await seconds(() => instance.krater('ovn', 'check'))
  progress(`check: ${checked} s`)
  const tables = ['Logical_Switch', 'Logical_Router', 'Load_Balancer', 'Port_Group', 'Address_Set', 'DHCP_Options']
  const destroy = tables.flatMap(name => ['--', '--all', 'destroy', name]).slice(1)
  const written = ((await stages.repaired(() => nbctl(...destroy))) / 1000).toFixed(1)
  progress(`repair: ${written} s`)
  const installed = await seconds(async () => {
    await stages.rest()
    await allActive()
  })
  const again = await seconds(() => instance.krater('ovn', 'check'))
  return table(
    ['what', 'seconds'],
    [
      ['`krater ovn check`, all as it should be', checked],
      ['emptied northbound database: until all rows are back', written],
      ['then until all are installed', installed],
      ['`krater ovn check` after it', again],
    ],
  )
}

const stagesTable = (growth: readonly Growth[]): string =>
  table(
    ['load balancers', ...PARTS.flatMap(part => [`${part === 'all' ? 'request to ACTIVE' : part}: p50`, 'p99'])],
    growth.map(({ count, parts }) => [String(count), ...PARTS.flatMap(part => spread(parts[part]))]),
  )

const programs = (growth: readonly Growth[]) => [...(growth[0]?.cpu.keys() ?? [])]

const costsTable = (growth: readonly Growth[]): string =>
  table(
    ['program', ...growth.map(({ count }) => `${count} load balancers`)],
    programs(growth).map(name => [name, ...growth.map(({ cpu }) => (cpu.get(name) ?? 0).toFixed(0))]),
  )

const memoryTable = (growth: readonly Growth[]): string =>
  table(
    ['program', ...growth.map(({ count }) => `${count} load balancers`)],
    programs(growth).map(name => [name, ...growth.map(({ memory }) => (memory.get(name) ?? 0).toFixed(0))]),
  )

function byHandTable({ balancers, commands, batch, changes }: ByHand, created: Growth | undefined): string {
  const each = (milliseconds: number) => (milliseconds / balancers).toFixed(1)
  const { added, milliseconds } = created?.creation ?? { added: 1, milliseconds: 0 }
  return table(
    ['what', 'milliseconds'],
    [
      ['rows of a load balancer, `ovn-nbctl` with a process for each command (written, not installed)', each(commands)],
      [`the same, ${balancers} load balancers in one \`ovn-nbctl\``, each(batch)],
      [
        'a load balancer by Krater, four clients of its API, until ACTIVE',
        (milliseconds / Math.max(1, added)).toFixed(1),
      ],
      ['change of a member, `ovn-nbctl --wait=hv`, p50 / p99', spread(changes).join(' / ')],
      ['the same by Krater, request to ACTIVE, p50 / p99', spread(created?.parts.all ?? []).join(' / ')],
    ],
  )
}

const table = (head: readonly string[], rows: readonly (readonly string[])[]): string =>
  [head, head.map((_, at) => (at === 0 ? '---' : '---:')), ...rows].map(cells => `| ${cells.join(' | ')} |`).join('\n')

function spread(values: readonly number[]): string[] {
  const sorted = values.toSorted((a, b) => a - b)
  return [0.5, 0.99].map(share => percentile(sorted, share).toFixed(0))
}

const progress = (text: string) => process.stderr.write(`${text}\n`)
