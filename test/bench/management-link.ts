import { setTimeout as delay } from 'node:timers/promises'
import { type ApiClient, signIn } from '../../controller/cli/api-client.js'
import { instanceId } from '../../controller/cli/state-directory/instance.js'
import { processesInside } from '../support/faults/crash-amphora.js'
import { managementLink } from '../support/faults/management-link.js'
import { type BenchInstance, startInstance } from './instance.js'

const BASE = '/v2.0/lbaas'

/** A sequence of cuts, from the environment, so that a longer run needs no change here. */
const AMPHORAE = Number(process.env.BENCH_AMPHORAE ?? 50)
const CUT_SECONDS = (process.env.BENCH_CUT_SECONDS ?? '10,45').split(',').map(Number)
const REPETITIONS = Number(process.env.BENCH_REPETITIONS ?? 10)
const SHARES = (process.env.BENCH_SHARES ?? 'one,half,all').split(',')
const SEED = Number(process.env.BENCH_SEED ?? 1)

type Amphora = { id: string; loadbalancer_id: string; status: string }
type Round = { restarted: number; replaced: number; foundSeconds: number }

/**
 * Repeatedly cuts the management network of idle amphorae. In each round, one of those behind the cut dies: all
 * its processes are stopped, so nothing inside repairs anything. Counts the machines that were restarted or
 * replaced although they served, and the time until the dead one is repaired once the network is back.
 * @returns a table, as Markdown
 */
export async function benchManagementLink(root: string): Promise<string> {
  // One amphora dies in each round, more than the restart limits allow.
  const limits = { KRATER_HEALTH_MANAGER_RESTART_LIMIT: '100', KRATER_HEALTH_MANAGER_PROJECT_RESTART_LIMIT: '100' }
  const instance = await startInstance(root, { KRATER_COMPUTE_WARM_AMPHORAE: '0', ...limits }, 28_300)
  try {
    await createBalancers(instance)
    const random = createRandom(SEED)
    const rows: string[] = []
    for (const seconds of CUT_SECONDS) {
      for (const share of SHARES) {
        const rounds: Round[] = []
        for (let round = 0; round < REPETITIONS; round++) rounds.push(await playRound(instance, seconds, share, random))
        const found = rounds.map(({ foundSeconds }) => foundSeconds).sort((a, b) => a - b)
        const sum = (of: 'restarted' | 'replaced') => rounds.reduce((total, each) => total + each[of], 0)
        const times = [found[Math.floor(found.length / 2)], found.at(-1)].map(time => time?.toFixed(1) ?? '')
        rows.push(
          `| ${seconds} | ${share} | ${REPETITIONS} | ${sum('restarted')} | ${sum('replaced')} | ${times.join(' | ')} |`,
        )
        process.stderr.write(`${rows.at(-1)}\n`)
      }
    }
    return [
      `${AMPHORAE} amphorae, seed ${SEED}. In each round, one of those behind the cut dies; all others serve.`,
      '| cut, seconds | behind the cut | rounds | restarted although they served | replaced although they served | dead one repaired after the network is back, seconds, median | worst |\n| ---: | --- | ---: | ---: | ---: | ---: | ---: |\n' +
        rows.join('\n'),
    ].join('\n\n')
  } finally {
    await instance.remove()
  }
}

async function createBalancers({ api }: BenchInstance): Promise<void> {
  const { subnets } = (await api.request('network', 'GET', '/v2.0/subnets?name=public-subnet')) as {
    subnets: { id: string }[]
  }
  for (let made = 0; made < AMPHORAE; made++) {
    const pool = { name: 'pool', protocol: 'HTTP', lb_algorithm: 'ROUND_ROBIN', members: [] }
    await api.request('load-balancer', 'POST', `${BASE}/loadbalancers`, {
      loadbalancer: {
        vip_subnet_id: subnets[0]?.id,
        listeners: [{ protocol: 'HTTP', protocol_port: 80, default_pool: pool }],
      },
    })
  }
  await untilTrue('all are ACTIVE', 600, () => notActive(api))
}

/** @returns the load balancers that are not ACTIVE */
async function notActive(api: ApiClient): Promise<string[]> {
  const { loadbalancers } = (await api.request('load-balancer', 'GET', `${BASE}/loadbalancers`)) as {
    loadbalancers: { id: string; provisioning_status: string; operating_status: string }[]
  }
  return loadbalancers
    .filter(({ provisioning_status }) => provisioning_status !== 'ACTIVE')
    .map(({ id, provisioning_status, operating_status }) => `${id} ${provisioning_status} ${operating_status}`)
}

async function playRound(
  { api, directory }: BenchInstance,
  seconds: number,
  share: string,
  random: () => number,
): Promise<Round> {
  const instance = instanceId(directory) ?? ''
  const namespaceOf = (id: string) => `krater-${instance}-${id}`
  const link = managementLink(instance, directory)
  const admin = await signIn(directory, 'krater-admin')
  const amphorae = await serving(admin)
  const shuffled = amphorae.map(id => ({ id, key: random() })).sort((a, b) => a.key - b.key)
  const count = share === 'one' ? 1 : share === 'half' ? Math.ceil(amphorae.length / 2) : amphorae.length
  const behind = shuffled.slice(0, count).map(({ id }) => id)
  const dead = count === 1 ? shuffled[1]?.id : behind[0]
  if (dead === undefined) throw new Error('There are too few amphorae.')
  const firsts = new Map<string, number | null>()
  for (const id of amphorae) firsts.set(id, await firstProcessOf(namespaceOf(id)))

  const cut = share === 'all' ? 'all' : behind
  await link.cut(cut)
  await delay(random() * 1_000)
  for (const { pid } of await processesInside(namespaceOf(dead))) process.kill(pid, 'SIGSTOP')
  await delay(seconds * 1_000)
  await link.mend(cut)
  const mended = performance.now()
  await untilTrue(`${dead} serves again, ${count} behind the cut`, 120, async () => {
    const inside = await processesInside(namespaceOf(dead)).catch(() => [])
    const first = inside.find(({ isFirst }) => isFirst)?.pid ?? null
    const isNew = first !== firsts.get(dead) && inside.some(({ command }) => command.includes('haproxy'))
    return isNew ? notActive(api) : [`its first process is ${first}, before ${firsts.get(dead)}`]
  })
  const foundSeconds = (performance.now() - mended) / 1000
  const now = await serving(admin)
  const others = amphorae.filter(id => id !== dead)
  const replaced = others.filter(id => !now.includes(id))
  let restarted = 0
  for (const id of others) {
    if (!replaced.includes(id) && (await firstProcessOf(namespaceOf(id))) !== firsts.get(id)) restarted += 1
  }
  return { restarted, replaced: replaced.length, foundSeconds }
}

async function serving(api: ApiClient): Promise<string[]> {
  const { amphorae } = (await api.request('load-balancer', 'GET', '/v2.0/octavia/amphorae')) as { amphorae: Amphora[] }
  return amphorae.filter(({ status }) => status === 'ALLOCATED').map(({ id }) => id)
}

async function firstProcessOf(namespace: string): Promise<number | null> {
  return (await processesInside(namespace).catch(() => [])).find(({ isFirst }) => isFirst)?.pid ?? null
}

/** @param lacking returns what is still missing */
async function untilTrue(what: string, seconds: number, lacking: () => Promise<string[]>): Promise<void> {
  let last: string[] = []
  for (const until = performance.now() + seconds * 1000; performance.now() < until; await delay(200)) {
    last = await lacking()
    if (last.length === 0) return
  }
  throw new Error(`In ${seconds} s this did not happen: ${what}. Lacking: ${last.join(', ')}`)
}

/** Numbers from 0 to 1, the same for the same seed (mulberry32). */
function createRandom(seed: number): () => number {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296
  }
}
