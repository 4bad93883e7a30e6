import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { constants, setPriority } from 'node:os'
import { dirname, join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { type ApiClient, signIn } from '../../controller/cli/api-client.js'
import type { Load } from './doors-load.js'
import { type BenchInstance, startInstance } from './instance.js'
import { percentile } from './measure.js'

const SETTINGS = {
  KRATER_NETWORK_DRIVER: 'noop',
  KRATER_COMPUTE_DRIVER: 'noop',
  KRATER_COMPUTE_WARM_AMPHORAE: '0',
}
/** The hostile tenant's address, when it does not share the other tenant's. */
export const ELSEWHERE = '127.0.0.66'
const HERE = '127.0.0.1'
/** One process of the load may open fewer files than this. */
const SOCKETS_OF_A_PROCESS = 5000
const REQUEST_TIMEOUT_MS = 20_000
/** Runs only cases whose name contains this. */
const CHOSEN = process.env.BENCH_CASES ?? ''
const LOWEST_PRIORITY = 19

export type Neighbour = { token: string; login: () => Promise<void>; list: () => Promise<void> }

/** What the other account does, and the load beside it. */
type Case = { what: string; of: 'login' | 'list'; count: number; loads: readonly Load[]; warmUpMs?: number }

/**
 * @returns the table of what a hostile account costs another one, as Markdown; `BENCH_CASES` chooses cases by
 * part of their names
 */
export async function benchDoors(root: string): Promise<string> {
  const instance = await startInstance(root, SETTINGS, 28_700)
  try {
    const demo = await signIn(instance.directory, 'krater')
    const neighbour = await neighbourOf(instance, 'neighbour')
    const rows: string[] = []
    for (const each of casesOf(demo).filter(({ what }) => what.includes(CHOSEN))) {
      const alone = await measure(neighbour[each.of], each.count)
      const stop = each.loads.map(startLoad)
      await delay(each.warmUpMs ?? 3000)
      const beside = await measure(neighbour[each.of], each.count)
      const outcomes = await Promise.all(stop.map(end => end()))
      rows.push(rowOf(each, alone, beside, sum(outcomes)))
      process.stderr.write(`${rows.at(-1)}\n`)
      await delay(2000)
    }
    return [
      '| beside | the other’s | p50 ms alone | p50 ms beside | p99 ms alone | p99 ms beside | denied | what the load got |',
      '| --- | --- | ---: | ---: | ---: | ---: | ---: | --- |',
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

function casesOf({ urlOf, token }: ApiClient): Case[] {
  const identity = urlOf('identity').replace(/\/v3$/, '')
  const loadBalancers = `${urlOf('load-balancer')}/v2.0/lbaas/loadbalancers`
  const logins = (from: string, body: 'wrong login' | 'wrong logins'): Load[] => [
    { kind: 'requests', from, url: `${identity}/v3/auth/tokens`, clients: 150, method: 'POST', body },
  ]
  const sockets = (from: string, url: string): Load[] =>
    Array.from({ length: 20_000 / SOCKETS_OF_A_PROCESS }, () => ({
      kind: 'sockets',
      from,
      url,
      count: SOCKETS_OF_A_PROCESS,
    }))
  const requests = (clients: number, method: string, url: string, body: 'none' | 'invalid' | 'tree'): Load => ({
    kind: 'requests',
    ...{ from: ELSEWHERE, clients, method, url, token, body },
  })
  const rescope: Load = {
    kind: 'requests',
    from: ELSEWHERE,
    url: `${identity}/v3/auth/tokens`,
    clients: 8,
    method: 'POST',
    token,
    body: 'rescope',
    perSecond: 80,
  }
  return [
    { what: '150 wrong logins at one account', of: 'login', count: 60, loads: logins(ELSEWHERE, 'wrong login') },
    { what: '150 wrong logins at 150 accounts', of: 'login', count: 60, loads: logins(ELSEWHERE, 'wrong logins') },
    { what: 'the same, from its own address', of: 'login', count: 60, loads: logins(HERE, 'wrong logins') },
    { what: '80 tokens/s of one user', of: 'login', count: 60, loads: [rescope] },
    {
      what: '16 lists with 1,000 sort keys, 16 invalid bodies of 100 kB, 8 trees of 2,400 members',
      of: 'list',
      count: 300,
      loads: [
        requests(16, 'GET', `${loadBalancers}?sort=${'name,'.repeat(1000)}`, 'none'),
        requests(16, 'POST', loadBalancers, 'invalid'),
        requests(8, 'POST', loadBalancers, 'tree'),
      ],
    },
    {
      what: '20,000 idle connections',
      of: 'list',
      count: 300,
      loads: sockets(ELSEWHERE, loadBalancers),
      warmUpMs: 15_000,
    },
    {
      what: 'the same, from its own address',
      of: 'list',
      count: 300,
      loads: sockets(HERE, loadBalancers),
      warmUpMs: 15_000,
    },
  ]
}

/** A user with a project. */
export async function neighbourOf({ directory }: BenchInstance, name: string): Promise<Neighbour> {
  const admin = await signIn(directory, 'krater-admin')
  const make = async (path: string, singular: string, body: object): Promise<string> => {
    const answer = await admin.request('identity', 'POST', path, { [singular]: body })
    return (answer as Record<string, { id: string }>)[singular]?.id ?? ''
  }
  const project = await make('/projects', 'project', { name })
  const user = await make('/users', 'user', { name, password: 'neighbour-pw' })
  for (const role of ['member', 'load-balancer_member', 'creator']) {
    const { roles } = (await admin.request('identity', 'GET', `/roles?name=${role}`)) as { roles: { id: string }[] }
    await admin.request('identity', 'PUT', `/projects/${project}/users/${user}/roles/${roles[0]?.id}`)
  }
  const login = async () => {
    const answer = await fetch(`${admin.urlOf('identity')}/auth/tokens`, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify({
        auth: {
          identity: { methods: ['password'], password: { user: { id: user, password: 'neighbour-pw' } } },
          scope: { project: { id: project } },
        },
      }),
      signal: AbortSignal.timeout(REQUEST_TIMEOUT_MS),
    })
    await answer.text()
    if (answer.status !== 201) throw new Error(`The login was answered by ${answer.status}.`)
    return answer.headers.get('X-Subject-Token') ?? ''
  }
  const token = await login()
  const list = async () => {
    const answer = await fetch(`${admin.urlOf('load-balancer')}/v2.0/lbaas/loadbalancers`, {
      headers: { 'X-Auth-Token': token, Connection: 'close' },
      signal: AbortSignal.timeout(REQUEST_TIMEOUT_MS),
    })
    await answer.text()
    if (answer.status !== 200) throw new Error(`The list was answered by ${answer.status}.`)
  }
  return { token, list, login: () => login().then(() => undefined) }
}

export type Latencies = { sorted: number[]; denied: number }

/** Sends `count` requests, one after another. @param pauseMs between two */
export async function measure(request: () => Promise<void>, count: number, pauseMs = 0): Promise<Latencies> {
  const sorted: number[] = []
  let denied = 0
  // Waiting for a CPU here would distort the figures: real clients have their own machines.
  setPriority(constants.priority.PRIORITY_HIGHEST)
  for (let asked = 0; asked < count && denied < 5; asked++) {
    const started = performance.now()
    await request().then(
      () => sorted.push(performance.now() - started),
      () => denied++,
    )
    await delay(pauseMs)
  }
  setPriority(constants.priority.PRIORITY_NORMAL)
  sorted.sort((a, b) => a - b)
  return { sorted, denied }
}

/** @returns a function that ends the load and returns its outcomes */
export function startLoad(load: Load): () => Promise<Record<string, number>> {
  const program = join(dirname(process.argv[1] ?? ''), 'doors-load.mjs')
  const child = spawn(process.execPath, [program, JSON.stringify([load])], { stdio: ['ignore', 'pipe', 'inherit'] })
  // The sender must not take CPU time from the service that it loads.
  setPriority(child.pid ?? 0, LOWEST_PRIORITY)
  let said = ''
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    said += text
  })
  const ended = once(child, 'close')
  return async () => {
    child.kill('SIGTERM')
    await ended
    return JSON.parse(said || '{}') as Record<string, number>
  }
}

export function sum(outcomes: readonly Record<string, number>[]): Record<string, number> {
  const all: Record<string, number> = {}
  for (const each of outcomes) for (const [name, count] of Object.entries(each)) all[name] = (all[name] ?? 0) + count
  return all
}

function rowOf({ what, of }: Case, alone: Latencies, beside: Latencies, outcomes: Record<string, number>): string {
  const figures = cellsOf(alone, beside)
  const got = Object.entries(outcomes).map(([name, count]) => `${name}: ${count}`)
  return `| ${[what, of, ...figures, String(beside.denied), got.join(', ')].join(' | ')} |`
}

/** Median and 99 %, each alone and beside the load. */
export const cellsOf = (alone: Latencies, beside: Latencies): string[] =>
  [0.5, 0.99].flatMap(share =>
    [alone, beside].map(({ sorted }) => (sorted.length === 0 ? '-' : percentile(sorted, share).toFixed(0))),
  )
