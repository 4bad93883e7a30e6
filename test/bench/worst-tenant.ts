import { execFile } from 'node:child_process'
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { promisify } from 'node:util'
import { type ApiClient, signIn } from '../../controller/cli/api-client.js'
import { ask, firstSuccess } from '../../controller/cli/commands/demo/traffic.js'
import { killIfThere, processesInside } from '../support/faults/crash-amphora.js'
import { inEffectAt } from './change-to-traffic.js'
import { cellsOf, ELSEWHERE, type Latencies, measure, neighbourOf, startLoad, sum } from './doors.js'
import type { Load } from './doors-load.js'
import { type BenchInstance, startInstance } from './instance.js'

const run = promisify(execFile)

const BASE = '/v2.0/lbaas'
const WARM_UP_MS = 10_000
const REQUESTS = { list: 200, login: 30, change: 20, repair: 10 }
const MAX_REPAIR_MS = 120_000

/**
 * What one tenant suffers beside another that does all it can at once, on an instance as `krater up` starts it,
 * with real amphorae.
 * @returns a table, as Markdown
 */
export async function benchWorstTenant(root: string): Promise<string> {
  // More amphorae die here than the restart limits allow.
  const limits = { KRATER_HEALTH_MANAGER_RESTART_LIMIT: '100', KRATER_HEALTH_MANAGER_PROJECT_RESTART_LIMIT: '100' }
  const instance = await startInstance(root, limits, 28_500)
  try {
    await instance.krater('demo')
    const neighbour = await neighbourOf(instance, 'neighbour')
    const traffic = await trafficOf(instance)
    const actions: readonly { what: string; count: number; pauseMs?: number; act: () => Promise<void> }[] = [
      { what: 'list of load balancers', count: REQUESTS.list, pauseMs: 100, act: neighbour.list },
      { what: 'login', count: REQUESTS.login, act: neighbour.login },
      { what: 'change of a weight, to traffic', count: REQUESTS.change, act: traffic.change },
      { what: 'killed amphora, to traffic', count: REQUESTS.repair, act: traffic.repair },
    ]
    const measureAll = async () => {
      const figures: Latencies[] = []
      for (const { what, act, count, pauseMs = 0 } of actions) {
        const measured = await measure(act, count, pauseMs)
        process.stderr.write(`${what}: ${cellsOf(measured, measured).join(' ')}, failed ${measured.denied}\n`)
        figures.push(measured)
      }
      return figures
    }
    const alone = await measureAll()
    const stop = (await loadsOf(instance)).map(startLoad)
    await delay(WARM_UP_MS)
    const beside = await measureAll()
    const outcomes = sum(await Promise.all(stop.map(end => end())))
    const nothing: Latencies = { sorted: [], denied: 0 }
    const rows = actions.map(({ what, count }, at) => {
      const [one, other] = [alone[at] ?? nothing, beside[at] ?? nothing]
      return `| ${[what, count, ...cellsOf(one, other), one.denied + other.denied].join(' | ')} |`
    })
    return [
      'One tenant at once: 50 wrong logins at 50 accounts, 4,000 idle connections, 100 bodies at one byte per second, 80 tokens/s, 16 lists with 1,000 sort keys, 16 invalid bodies of 100 kB, 8 trees of 2,400 members, 8 orders of RSA-4096, 4 certificates whose PKCS#12 wants two million rounds, 8 networks created and removed, 2 load balancers with amphorae created and removed. Its senders have the lowest priority, so that only its requests cost CPU time; the measuring client has the highest. All share the machine. Two lists are a tenth of a second apart.',
      '',
      '| the other tenant’s | times | p50 ms alone | p50 ms beside | p99 ms alone | p99 ms beside | failed |',
      '| --- | ---: | ---: | ---: | ---: | ---: | ---: |',
      ...rows,
      '',
      `What the load got: ${Object.entries(outcomes)
        .map(([name, count]) => `${name}: ${count}`)
        .join(', ')}.`,
    ].join('\n')
  } finally {
    await instance.remove()
  }
}

type Balancer = { id: string; vip_address: string; provisioning_status: string; pools: { id: string }[] }
type Member = { id: string; name: string }

/** Actions on the demonstration's load balancer, each until its traffic shows it. */
export async function trafficOf({ directory, api }: BenchInstance) {
  const admin = await signIn(directory, 'krater-admin')
  const list = async <Item>(client: ApiClient, path: string, key: string): Promise<Item[]> =>
    ((await client.request('load-balancer', 'GET', path)) as Record<string, Item[]>)[key] ?? []
  const balancer = async () => {
    const [found] = await list<Balancer>(api, `${BASE}/loadbalancers?name=krater-demo`, 'loadbalancers')
    if (found === undefined) throw new Error('The demonstration has no load balancer.')
    return found
  }
  const { id, vip_address, pools } = await balancer()
  const url = `http://${vip_address}/`
  const path = `${BASE}/pools/${pools[0]?.id}/members`
  const members = await list<Member>(api, path, 'members')
  const member = members.find(({ name }) => name === 'web-1')
  const settled = async () => {
    while ((await balancer()).provisioning_status !== 'ACTIVE') await delay(100)
  }
  let weight = 1
  return {
    change: async () => {
      weight = 1 - weight
      await api.request('load-balancer', 'PUT', `${path}/${member?.id}`, { member: { weight } })
      await inEffectAt(url, 'web-1', weight === 1)
    },
    repair: async () => {
      const [amphora] = await list<{ id: string }>(
        admin,
        `/v2.0/octavia/amphorae?loadbalancer_id=${id}&status=ALLOCATED`,
        'amphorae',
      )
      const namespace = readdirSync('/run/netns').find(name => name.endsWith(`-${amphora?.id}`))
      if (namespace === undefined) throw new Error('The demonstration has no amphora.')
      for (const { pid, isFirst } of await processesInside(namespace)) if (isFirst) killIfThere(pid)
      while ((await ask(url)) !== null) await delay(5)
      if ((await firstSuccess(url, MAX_REPAIR_MS)) === null) throw new Error('The traffic did not come back.')
      // The next kill needs a settled load balancer.
      await settled()
    },
    failover: async () => {
      await admin.request('load-balancer', 'PUT', `${BASE}/loadbalancers/${id}/failover`)
      await settled()
    },
  }
}

/** All that a tenant can do. */
async function loadsOf(instance: BenchInstance): Promise<Load[]> {
  const { urlOf } = instance.api
  const { token } = await neighbourOf(instance, 'hostile')
  const post = async <Made>(url: string, body: object): Promise<Made> => {
    const headers = { 'X-Auth-Token': token, 'Content-Type': 'application/json' }
    const answer = await fetch(url, { method: 'POST', headers, body: JSON.stringify(body) })
    if (!answer.ok) throw new Error(`${url} answered ${answer.status}: ${await answer.text()}`)
    return (await answer.json()) as Made
  }
  const networks = `${urlOf('network')}/v2.0/networks`
  const { network } = await post<{ network: { id: string } }>(networks, { network: { name: 'hostile' } })
  const {
    subnet: { id: subnet },
  } = await post<{ subnet: { id: string } }>(`${urlOf('network')}/v2.0/subnets`, {
    subnet: { network_id: network.id, ip_version: 4, cidr: '192.168.0.0/16' },
  })
  const keys = urlOf('key-manager').replace(/\/v1$/, '')
  const { secret_ref } = await post<{ secret_ref: string }>(`${keys}/v1/secrets`, {
    payload: await laboriousPkcs12(),
    payload_content_type: 'application/octet-stream',
    payload_content_encoding: 'base64',
  })

  const tokens = `${urlOf('identity').replace(/\/v3$/, '')}/v3/auth/tokens`
  const balancers = `${urlOf('load-balancer')}${BASE}/loadbalancers`
  const requests = (clients: number, method: string, url: string, rest: object) =>
    ({ kind: 'requests', from: ELSEWHERE, clients, method, url, token, ...rest }) as Load
  const terminated = { protocol: 'TERMINATED_HTTPS', protocol_port: 443, default_tls_container_ref: secret_ref }
  const sockets = (url: string): Load => ({ kind: 'sockets', from: ELSEWHERE, url, count: 2000 })
  return [
    { kind: 'requests', from: ELSEWHERE, clients: 50, method: 'POST', url: tokens, body: 'wrong logins' },
    sockets(balancers),
    sockets(tokens),
    { kind: 'slow bodies', from: ELSEWHERE, url: balancers, count: 100, token },
    requests(8, 'POST', tokens, { body: 'rescope', perSecond: 80 }),
    requests(16, 'GET', `${balancers}?sort=${'name,'.repeat(1000)}`, { body: 'none' }),
    requests(16, 'POST', balancers, { body: 'invalid' }),
    requests(8, 'POST', balancers, { body: 'tree', subnet }),
    requests(8, 'POST', `${keys}/v1/orders`, {
      body: { type: 'asymmetric', meta: { name: 'k', algorithm: 'rsa', bit_length: 4096 } },
    }),
    requests(4, 'POST', balancers, {
      body: { loadbalancer: { vip_subnet_id: subnet, provider: 'noop_driver', listeners: [terminated] } },
    }),
    requests(8, 'POST', networks, { body: { network: {} }, isRemoved: true }),
    requests(2, 'POST', balancers, { body: { loadbalancer: { vip_subnet_id: subnet } }, isRemoved: true }),
  ]
}

/** @returns a key and certificate, in base64, behind as many rounds of key derivation as anyone would wait for */
async function laboriousPkcs12(): Promise<string> {
  const directory = mkdtempSync(join(tmpdir(), 'p12-'))
  const at = (name: string) => join(directory, name)
  const openssl = (...args: string[]) => run('openssl', args, { timeout: 60_000 })
  try {
    const request = ['req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-subj', '/CN=hostile', '-days', '30']
    await openssl(...request, '-keyout', at('key'), '-out', at('certificate'))
    const bundle = ['pkcs12', '-export', '-inkey', at('key'), '-in', at('certificate'), '-out', at('bundle')]
    await openssl(...bundle, '-passout', 'pass:', '-iter', '2000000', '-nomaciter')
    return readFileSync(at('bundle')).toString('base64')
  } finally {
    rmSync(directory, { recursive: true })
  }
}
