import { randomUUID } from 'node:crypto'
import { setTimeout as delay } from 'node:timers/promises'
import { type BenchInstance, startInstance } from './instance.js'
import { type Figures, measure } from './measure.js'
import { countStatements, WITHOUT_QUOTAS } from './statements.js'

const BASE = '/v2.0/lbaas'
const CLIENTS = [1, 16] as const
const NOOP = { KRATER_NETWORK_DRIVER: 'noop', KRATER_COMPUTE_DRIVER: 'noop', KRATER_COMPUTE_WARM_AMPHORAE: '0' }
const NO_QUOTAS = Object.fromEntries(
  Object.entries(WITHOUT_QUOTAS).map(([kind, most]) => [
    `KRATER_LOAD_BALANCER_QUOTA_${kind.toUpperCase()}`,
    String(most),
  ]),
)

type Request = { method: string; path: string; body?: unknown }

/** One row of the table: the request, its count, and the n-th request. */
type Case = { what: string; count: number; request: (n: number) => Request }

/** @returns the tables of API figures and of the processes' memory, as Markdown */
export async function benchApi(root: string): Promise<string> {
  const instance = await startInstance(root, { ...NOOP, ...NO_QUOTAS }, 28_100)
  try {
    const rows: string[] = []
    const counter = await countStatements(instance)
    try {
      for await (const each of casesOf(instance)) {
        await untilNothingIsPending(instance)
        for (const clients of CLIENTS) {
          const request = (n: number) => ask(instance, each.request(n))
          const count = each.count * (clients > 1 ? 2 : 1)
          const figures = await measure(instance, { clients, count, request })
          const { method, path, body } = each.request(count)
          rows.push(rowOf(each.what, clients, figures, await counter.countOf(method, path, body)))
          process.stderr.write(`${rows.at(-1)}\n`)
        }
      }
    } finally {
      await counter.stop()
    }
    return [
      '| request | clients | requests/s | p50 ms | p99 ms | processor ms per request | PostgreSQL ms | statements after authentication |',
      '| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |',
      ...rows,
      '',
      '| process, after all that | resident memory, MiB |',
      '| --- | ---: |',
      ...instance.memory().map(({ name, mebibytes }) => `| ${name} | ${mebibytes.toFixed(0)} |`),
    ].join('\n')
  } finally {
    await instance.remove()
  }
}

/** The cases in an order in which each finds what it needs. */
async function* casesOf(instance: BenchInstance): AsyncGenerator<Case> {
  const create = (): Request => ({
    method: 'POST',
    path: `${BASE}/loadbalancers`,
    body: { loadbalancer: { name: 'bench', vip_subnet_id: randomUUID(), provider: 'noop_driver' } },
  })
  yield { what: 'create a load balancer', count: 1000, request: create }
  const some = await idOf(instance, create(), 'loadbalancer')
  const show = { method: 'GET', path: `${BASE}/loadbalancers/${some}` }
  yield { what: 'show a load balancer', count: 3000, request: () => show }

  await deleteAll(instance)
  for (let made = 0; made < 1000; made += 8) {
    await Promise.all(Array.from({ length: 8 }, () => ask(instance, treeOf(1, 2))))
  }
  for (const [limit, count] of [
    [100, 300],
    [1000, 60],
  ] as const) {
    const list = { method: 'GET', path: `${BASE}/loadbalancers?limit=${limit}` }
    yield { what: `list ${limit} load balancers with children`, count, request: () => list }
  }

  const big = await idOf(instance, treeOf(50, 20), 'loadbalancer')
  const status = { method: 'GET', path: `${BASE}/loadbalancers/${big}/status` }
  yield { what: 'status tree of 50 listeners x 20 members', count: 200, request: () => status }

  const pools: string[] = []
  for (let made = 0; made < 16; made++) {
    const above = await idOf(instance, create(), 'loadbalancer')
    const body = { pool: { loadbalancer_id: above, protocol: 'HTTP', lb_algorithm: 'ROUND_ROBIN' } }
    pools.push(await idOf(instance, { method: 'POST', path: `${BASE}/pools`, body }, 'pool'))
  }
  for (const [size, count] of [
    [50, 400],
    [1000, 24],
  ] as const) {
    const batch = (n: number): Request => ({
      method: 'PUT',
      path: `${BASE}/pools/${pools[n % pools.length]}/members`,
      body: { members: membersOf(size, n) },
    })
    yield { what: `batch of ${size} members`, count, request: batch }
  }
}

function rowOf(
  what: string,
  clients: number,
  { requestsPerSecond, p50, p99, processor, database }: Figures,
  statements: number,
): string {
  const times = [p50.toFixed(1), p99.toFixed(1), processor.toFixed(2), database.toFixed(2)]
  const cells = [requestsPerSecond.toFixed(0), ...times, String(statements)]
  return `| ${what} | ${clients} | ${cells.join(' | ')} |`
}

const ask = ({ api }: BenchInstance, { method, path, body }: Request): Promise<unknown> =>
  api.request('load-balancer', method, path, body)

async function idOf(instance: BenchInstance, request: Request, key: string): Promise<string> {
  const answer = (await ask(instance, request)) as Record<string, { id: string }>
  return answer[key]?.id ?? ''
}

function treeOf(listeners: number, members: number): Request {
  const body = {
    name: 'bench',
    vip_subnet_id: randomUUID(),
    provider: 'noop_driver',
    listeners: Array.from({ length: listeners }, (_, at) => ({
      protocol: 'HTTP',
      protocol_port: 1000 + at,
      default_pool: {
        name: `pool ${at}`,
        protocol: 'HTTP',
        lb_algorithm: 'ROUND_ROBIN',
        members: membersOf(members, at),
      },
    })),
  }
  return { method: 'POST', path: `${BASE}/loadbalancers`, body: { loadbalancer: body } }
}

async function deleteAll(instance: BenchInstance): Promise<void> {
  for (;;) {
    const page = (await ask(instance, { method: 'GET', path: `${BASE}/loadbalancers?fields=id&limit=100` })) as {
      loadbalancers: { id: string }[]
    }
    if (page.loadbalancers.length === 0) return
    for (const { id } of page.loadbalancers) {
      await ask(instance, { method: 'DELETE', path: `${BASE}/loadbalancers/${id}` })
    }
    await delay(200)
  }
}

/** Waits until the worker is done, so that its share of earlier requests does not count for the next ones. */
async function untilNothingIsPending(instance: BenchInstance): Promise<void> {
  const request = { method: 'GET', path: `${BASE}/loadbalancers?provisioning_status=ACTIVE&fields=id` }
  const all = { method: 'GET', path: `${BASE}/loadbalancers?fields=id` }
  const until = performance.now() + 120_000
  const count = async (asked: Request) =>
    ((await ask(instance, asked)) as { loadbalancers: unknown[] }).loadbalancers.length
  while (performance.now() < until) {
    if ((await count(request)) === (await count(all))) return
    await delay(200)
  }
  throw new Error('Load balancers were still pending after two minutes.')
}

/** Members that differ for every n, so that each batch removes and adds. */
const membersOf = (size: number, n: number) =>
  Array.from({ length: size }, (_, at) => ({
    address: `198.${18 + (n % 2)}.${(n + Math.floor(at / 250)) % 250}.${(at % 250) + 1}`,
    protocol_port: 80,
    weight: 1 + (n % 10),
  }))
