import { setTimeout as delay } from 'node:timers/promises'
import { ApiRefusal, signIn } from '../../controller/cli/api-client.js'
import { ask } from '../../controller/cli/commands/demo/traffic.js'
import { instanceId } from '../../controller/cli/state-directory/instance.js'
import { processesInside } from '../support/faults/crash-amphora.js'
import { type BenchInstance, residentMebibytes, startInstance } from './instance.js'
import { percentile } from './measure.js'
import { startMemberMachine } from './member-machine.js'

const BASE = '/v2.0/lbaas'
const LISTENERS = 10
const POOLS_OF_A_LISTENER = 10
const MEMBERS_OF_A_POOL = 100
const MEMBERS = LISTENERS * POOLS_OF_A_LISTENER * MEMBERS_OF_A_POOL
const FIRST_PORT = 10_000
const MONITOR = { type: 'HTTP', delay: 30, timeout: 10, max_retries: 1 }
const ROUNDS = 5
const TIMEOUT_SECONDS = 300
/** Answers about so many members cost the API CPU time. */
const POLL_MS = 200

type Balancer = { id: string; vip_address: string; provisioning_status: string; fault?: { text: string } | null }
/** `firstPort`: of its members; each pool has the ports after those of the pool before. */
type Listener = { id: string; url: string; poolIds: string[]; firstPort: number }
type Call = (method: string, path: string, body?: unknown) => Promise<unknown>

/**
 * A load balancer with 10 listeners, 10 pools each and 100 monitored members per pool, created through the API
 * on a real amphora: whether each pool answers and each member is checked, what changes take, and what is
 * refused beyond that. @returns a table, as Markdown
 */
export async function benchLarge(root: string): Promise<string> {
  const instance = await startInstance(root, { KRATER_LOAD_BALANCER_QUOTA_MEMBER: String(2 * MEMBERS) }, 28_600)
  const ends: (() => unknown)[] = [instance.remove]
  try {
    const ending = { teardown: (act: () => unknown) => ends.unshift(act) }
    const members = { firstPort: FIRST_PORT, count: MEMBERS, networks: 1 } as const
    const [place] = await startMemberMachine(ending, instance, members)
    if (place === undefined) throw new Error('The members have no address.')
    const call: Call = (method, path, body) => instance.api.request('load-balancer', method, `${BASE}${path}`, body)
    const rows: [string, string][] = []
    const note = (what: string, figure: string) => {
      process.stderr.write(`${what}: ${figure}\n`)
      rows.push([what, figure])
    }
    const seconds = async (act: () => Promise<unknown>) => {
      const began = performance.now()
      await act()
      return `${((performance.now() - began) / 1000).toFixed(1)} s`
    }

    const { loadbalancer } = (await call('POST', '/loadbalancers', {
      loadbalancer: { vip_subnet_id: await publicSubnet(instance) },
    })) as { loadbalancer: Balancer }
    const { id } = loadbalancer
    const faults = new Set<string>()
    const untilInEffect = () =>
      untilTrue('all is in effect', async () => {
        const { loadbalancer: shown } = (await call('GET', `/loadbalancers/${id}`)) as { loadbalancer: Balancer }
        if (shown.fault) faults.add(shown.fault.text)
        return shown.provisioning_status === 'ACTIVE'
      })
    const inEffect = async (change: () => Promise<unknown>) => {
      const began = performance.now()
      await change()
      await untilInEffect()
      return performance.now() - began
    }
    await untilInEffect()

    const listeners: Listener[] = []
    const create = async () => {
      for (let number = 0; number < LISTENERS; number++) {
        listeners.push(await createListener(call, loadbalancer, number, place))
        process.stderr.write(`${number + 1} listeners\n`)
      }
    }
    note('made, request after request', await seconds(create))
    note('then in effect', await seconds(untilInEffect))
    note('then every pool answers', await seconds(() => untilEachAnswers(listeners)))
    const poolIds = listeners.flatMap(listener => listener.poolIds)
    note('then every member was found up by its monitor', await seconds(() => untilEachIsOnline(call, poolIds)))

    const [poolId] = poolIds
    const { members: shown } = (await call('GET', `/pools/${poolId}/members?limit=1`)) as { members: { id: string }[] }
    const member = `/pools/${poolId}/members/${shown[0]?.id}`
    const weights: number[] = []
    const options: number[] = []
    for (let round = 0; round < ROUNDS; round++) {
      weights.push(await inEffect(() => call('PUT', member, { member: { weight: 2 + (round % 2) } })))
      const listener = { timeout_client_data: 40_000 + round }
      options.push(await inEffect(() => call('PUT', `/listeners/${listeners[0]?.id}`, { listener })))
    }
    note('weight of a member, from the request until it is in effect', medianAndWorst(weights))
    note('option of a listener (a reload), likewise', medianAndWorst(options))
    note('resident memory', await memoryOf(instance))
    const limited = `/listeners/${listeners[0]?.id}`
    const refusal = await refusalOf(() => call('PUT', limited, { listener: { connection_limit: 1_000_000 } }))
    note('refused: a connection limit of 1,000,000', refusal)
    const fitting = Number(/limits of (\d+) in all fit/.exec(refusal)?.[1])
    const limiting = await inEffect(() => call('PUT', limited, { listener: { connection_limit: fitting } }))
    note(`a connection limit of ${fitting}, as the refusal says, in effect`, `${limiting.toFixed(0)} ms`)
    await untilEachAnswers(listeners)
    note('faults during this, all repaired', [...faults].join(' ') || 'none')
    return [
      `${LISTENERS} listeners, each with ${POOLS_OF_A_LISTENER} pools (a default pool, the others by L7 policies) of ${MEMBERS_OF_A_POOL} members, each member with its own port and checked by HTTP every ${MONITOR.delay} s: ${MEMBERS} members in all, one real amphora.`,
      ['| what | figure |', '| --- | --- |', ...rows.map(([what, figure]) => `| ${what} | ${figure} |`)].join('\n'),
    ].join('\n\n')
  } finally {
    for (const end of ends) await end()
  }
}

async function publicSubnet({ api }: BenchInstance): Promise<string | undefined> {
  const { subnets } = (await api.request('network', 'GET', '/v2.0/subnets?name=public-subnet')) as {
    subnets: { id: string }[]
  }
  return subnets[0]?.id
}

type Place = { subnetId: string; address: string }

/** A listener with a default pool, and a policy for each further pool: `/1` leads to the first of them. */
async function createListener(
  call: Call,
  { id, vip_address }: Balancer,
  number: number,
  place: Place,
): Promise<Listener> {
  const port = 8000 + number
  const firstPort = FIRST_PORT + number * POOLS_OF_A_LISTENER * MEMBERS_OF_A_POOL
  const poolIds: string[] = []
  for (let at = 0; at < POOLS_OF_A_LISTENER; at++) {
    const members = Array.from({ length: MEMBERS_OF_A_POOL }, (_, member) => ({
      address: place.address,
      subnet_id: place.subnetId,
      protocol_port: firstPort + at * MEMBERS_OF_A_POOL + member,
    }))
    const desired = {
      loadbalancer_id: id,
      protocol: 'HTTP',
      lb_algorithm: 'ROUND_ROBIN',
      members,
      healthmonitor: MONITOR,
    }
    const { pool } = (await call('POST', '/pools', { pool: desired })) as { pool: { id: string } }
    poolIds.push(pool.id)
  }
  const { listener } = (await call('POST', '/listeners', {
    listener: { loadbalancer_id: id, protocol: 'HTTP', protocol_port: port, default_pool_id: poolIds[0] },
  })) as { listener: { id: string } }
  for (const [at, redirect_pool_id] of poolIds.entries()) {
    if (at === 0) continue
    const rules = [{ type: 'PATH', compare_type: 'EQUAL_TO', value: `/${at}` }]
    const l7policy = { listener_id: listener.id, action: 'REDIRECT_TO_POOL', redirect_pool_id, rules }
    await call('POST', '/l7policies', { l7policy })
  }
  return { id: listener.id, url: `http://${vip_address}:${port}/`, poolIds, firstPort }
}

/** Waits until a member of the right pool answers at each path of each listener. */
async function untilEachAnswers(listeners: readonly Listener[]): Promise<void> {
  const open = new Set(
    listeners.flatMap(({ url, poolIds, firstPort }) =>
      poolIds.map((_, at) => ({ url: `${url}${at === 0 ? '' : at}`, first: firstPort + at * MEMBERS_OF_A_POOL })),
    ),
  )
  await untilTrue('each pool answers', async () => {
    for (const one of open) {
      const reply = await ask(one.url)
      const port = Number(/:(\d+)$/.exec(reply?.body ?? '')?.[1])
      if (port >= one.first && port < one.first + MEMBERS_OF_A_POOL) open.delete(one)
    }
    return open.size === 0
  })
}

async function untilEachIsOnline(call: Call, poolIds: readonly string[]): Promise<void> {
  await untilTrue('each member is ONLINE', async () => {
    for (const poolId of poolIds) {
      const { members } = (await call('GET', `/pools/${poolId}/members?fields=operating_status`)) as {
        members: { operating_status: string }[]
      }
      if (members.length < MEMBERS_OF_A_POOL) throw new Error(`A pool has ${members.length} members.`)
      if (members.some(member => member.operating_status !== 'ONLINE')) return false
    }
    return true
  })
}

async function untilTrue(what: string, probe: () => Promise<boolean>): Promise<void> {
  for (const until = performance.now() + TIMEOUT_SECONDS * 1000; performance.now() < until; await delay(POLL_MS)) {
    if (await probe()) return
  }
  throw new Error(`In ${TIMEOUT_SECONDS} s this did not happen: ${what}.`)
}

function medianAndWorst(milliseconds: readonly number[]): string {
  const sorted = milliseconds.toSorted((a, b) => a - b)
  return `${percentile(sorted, 0.5).toFixed(0)} ms at the median, ${percentile(sorted, 1).toFixed(0)} ms at most`
}

/** Memory of the programs in the amphora, and of the controller's processes. */
async function memoryOf({ directory, memory }: BenchInstance): Promise<string> {
  const admin = await signIn(directory, 'krater-admin')
  const { amphorae } = (await admin.request('load-balancer', 'GET', '/v2.0/octavia/amphorae')) as {
    amphorae: { id: string; status: string }[]
  }
  const serving = amphorae.find(({ status }) => status === 'ALLOCATED')
  const inside = await processesInside(`krater-${instanceId(directory)}-${serving?.id}`)
  const sum = (word: RegExp) =>
    inside
      .filter(({ command }) => word.test(command))
      .reduce((total, { pid }) => total + residentMebibytes(pid), 0)
      .toFixed(0)
  const ours = memory().map(({ name, mebibytes }) => `${name} ${mebibytes.toFixed(0)} MiB`)
  return [`HAProxy ${sum(/^\S*haproxy /)} MiB`, `agent ${sum(/agent\.[cm]js/)} MiB`, ...ours].join(', ')
}

/** @returns the API's refusal */
async function refusalOf(request: () => Promise<unknown>): Promise<string> {
  const refusal = await request().then(
    () => null,
    (error: unknown) => error,
  )
  if (!(refusal instanceof ApiRefusal)) throw new Error('This was not refused, although no machine can provide it.')
  return refusal.message
}
