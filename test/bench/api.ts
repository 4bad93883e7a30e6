import { randomUUID } from 'node:crypto'
import { setTimeout as delay } from 'node:timers/promises'
import { type BenchInstance, startInstance } from './instance.js'
import { type Figures, measure } from './measure.js'

const BASE = '/v2.0/lbaas'
const CLIENTS = [1, 16] as const
const NOOP = { KRATER_NETWORK_DRIVER: 'noop', KRATER_COMPUTE_DRIVER: 'noop', KRATER_COMPUTE_WARM_AMPHORAE: '0' }

type LoadBalancer = { id: string; provisioning_status: string }

/** @returns the table of API figures, as Markdown */
export async function benchApi(root: string): Promise<string> {
  const instance = await startInstance(root, NOOP, 28_100)
  try {
    const rows: string[] = []
    const row = (what: string, clients: number, figures: Figures) => {
      rows.push(rowOf(what, clients, figures))
      process.stderr.write(`${what}, ${clients} clients: ${figures.requestsPerSecond.toFixed(0)} requests/s\n`)
    }
    for (const clients of CLIENTS) {
      row(
        'create a load balancer',
        clients,
        await measure(instance, { clients, count: 100 * (clients > 1 ? 2 : 1), request: () => create(instance) }),
      )
    }
    const some = await create(instance)
    for (const clients of CLIENTS) {
      const request = () => instance.api.request('load-balancer', 'GET', `${BASE}/loadbalancers/${some.id}`)
      row('show a load balancer', clients, await measure(instance, { clients, count: 600, request }))
    }
    await ensureLoadBalancers(instance, 1000)
    await untilNothingIsPending(instance)
    for (const [limit, count] of [
      [100, 100],
      [1000, 32],
    ] as const) {
      for (const clients of CLIENTS) {
        const request = () => instance.api.request('load-balancer', 'GET', `${BASE}/loadbalancers?limit=${limit}`)
        row(`list ${limit} load balancers`, clients, await measure(instance, { clients, count, request }))
      }
    }
    const pools = await Promise.all(Array.from({ length: 16 }, () => createPool(instance)))
    for (const clients of CLIENTS) {
      const request = (n: number) => {
        const pool = pools[n % pools.length]
        return instance.api.request('load-balancer', 'PUT', `${BASE}/pools/${pool}/members`, { members: members(n) })
      }
      row('batch of 50 members', clients, await measure(instance, { clients, count: 64, request }))
    }
    return [
      '| request | clients | requests/s | p50 ms | p99 ms | processor ms per request | transactions per request |',
      '| --- | ---: | ---: | ---: | ---: | ---: | ---: |',
      ...rows,
    ].join('\n')
  } finally {
    await instance.remove()
  }
}

function rowOf(
  what: string,
  clients: number,
  { requestsPerSecond, p50, p99, processor, transactions }: Figures,
): string {
  const cells = [
    requestsPerSecond.toFixed(0),
    p50.toFixed(1),
    p99.toFixed(1),
    processor.toFixed(2),
    transactions.toFixed(1),
  ]
  return `| ${what} | ${clients} | ${cells.join(' | ')} |`
}

async function create({ api }: BenchInstance): Promise<LoadBalancer> {
  const { loadbalancer } = (await api.request('load-balancer', 'POST', `${BASE}/loadbalancers`, {
    loadbalancer: { name: 'bench', vip_subnet_id: randomUUID(), provider: 'noop_driver' },
  })) as { loadbalancer: LoadBalancer }
  return loadbalancer
}

async function ensureLoadBalancers(instance: BenchInstance, count: number): Promise<void> {
  const { loadbalancers } = (await instance.api.request('load-balancer', 'GET', `${BASE}/loadbalancers`)) as {
    loadbalancers: unknown[]
  }
  for (let missing = count - loadbalancers.length; missing > 0; missing -= 8) {
    await Promise.all(Array.from({ length: Math.min(8, missing) }, () => create(instance)))
  }
}

/** The worker's part of what was created so far is not to be counted as the next requests'. */
async function untilNothingIsPending({ api }: BenchInstance): Promise<void> {
  const path = `${BASE}/loadbalancers?provisioning_status=PENDING_CREATE&limit=1`
  const until = performance.now() + 120_000
  while (performance.now() < until) {
    const { loadbalancers } = (await api.request('load-balancer', 'GET', path)) as { loadbalancers: unknown[] }
    if (loadbalancers.length === 0) return
    await delay(200)
  }
  throw new Error('Load balancers were still pending after two minutes.')
}

async function createPool(instance: BenchInstance): Promise<string> {
  const { api } = instance
  const { id } = await create(instance)
  const { pool } = (await api.request('load-balancer', 'POST', `${BASE}/pools`, {
    pool: { loadbalancer_id: id, protocol: 'HTTP', lb_algorithm: 'ROUND_ROBIN' },
  })) as { pool: { id: string } }
  return pool.id
}

/** Fifty members, other ones for every n, so that each batch removes and adds. */
const members = (n: number) =>
  Array.from({ length: 50 }, (_, at) => ({
    address: `198.51.${n % 250}.${at + 1}`,
    protocol_port: 80,
    weight: 1 + (n % 10),
  }))
