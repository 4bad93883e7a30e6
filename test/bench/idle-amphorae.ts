import { readdirSync, readFileSync } from 'node:fs'
import { setTimeout as delay } from 'node:timers/promises'
import { firstSuccess } from '../../controller/cli/commands/demo/traffic.js'
import { runningPostmaster } from '../../controller/cli/host/postgres.js'
import { instanceId } from '../../controller/cli/state-directory/instance.js'
import { runningProcesses } from '../../controller/cli/state-directory/run-record.js'
import { processesInside } from '../support/faults/crash-amphora.js'
import { oneMoreOfDemo } from './first-traffic.js'
import { type BenchInstance, startInstance, TICKS_PER_SECOND } from './instance.js'
import { percentile } from './measure.js'

const BASE = '/v2.0/lbaas'
const AMPHORAE = Number(process.env.BENCH_AMPHORAE ?? 50)
const SECONDS = Number(process.env.BENCH_SECONDS ?? 60)
const SETTLE_SECONDS = Number(process.env.BENCH_SETTLE_SECONDS ?? 30)
const FIRST_LIMIT_MS = 300_000

type Balancer = { id: string; vip_address: string; provisioning_status: string }

/**
 * Creates many load balancers at once, measures until each answers, then leaves them alone and measures what
 * they and the programs that watch them cost. @returns tables, as Markdown
 */
export async function benchIdleAmphorae(root: string): Promise<string> {
  const instance = await startInstance(root, { KRATER_COMPUTE_WARM_AMPHORAE: '0' }, 28_900)
  try {
    await instance.krater('demo')
    const desired = await oneMoreOfDemo(instance)
    const firsts = await Promise.all(Array.from({ length: AMPHORAE }, () => timeUntilServed(instance, desired)))
    firsts.sort((a, b) => a - b)
    const at = (share: number) => (percentile(firsts, share) / 1000).toFixed(1)
    await delay(SETTLE_SECONDS * 1000)
    return [
      `${AMPHORAE} load balancers with a listener, a pool and two members, created at once: from the POST to the first 200 of each ${at(0.5)} s at the median, ${at(1)} s at most.`,
      `What they cost when idle, over ${SECONDS} s:`,
      await idleTable(instance),
    ].join('\n\n')
  } finally {
    await instance.remove()
  }
}

/** Creates a load balancer. @returns milliseconds from the POST to the first 200 through its VIP */
export async function timeUntilServed({ api }: BenchInstance, desired: Record<string, unknown>): Promise<number> {
  const asked = performance.now()
  const { loadbalancer } = (await api.request('load-balancer', 'POST', `${BASE}/loadbalancers`, {
    loadbalancer: desired,
  })) as { loadbalancer: Balancer }
  const first = await firstSuccess(`http://${loadbalancer.vip_address}/`, FIRST_LIMIT_MS)
  if (first === null) throw new Error(`Load balancer ${loadbalancer.id} did not answer in time.`)
  return first.at - asked
}

async function idleTable(instance: BenchInstance): Promise<string> {
  const before = await costsOf(instance)
  const started = performance.now()
  await delay(SECONDS * 1000)
  const after = await costsOf(instance)
  const seconds = (performance.now() - started) / 1000
  const share = (name: string) => (((after.get(name)?.seconds ?? 0) - (before.get(name)?.seconds ?? 0)) / seconds) * 100
  const names = [...after.keys()].sort((one, other) => share(other) - share(one))
  const rows = names.map(
    name => `| ${name} | ${share(name).toFixed(2)} | ${(after.get(name)?.mebibytes ?? 0).toFixed(0)} |`,
  )
  const total = names.reduce((sum, name) => sum + share(name), 0)
  const inside = names.filter(name => name.startsWith('amphorae'))
  const memory = inside.reduce((sum, name) => sum + (after.get(name)?.mebibytes ?? 0), 0)
  return [
    '| programs | of one core, % | memory, MiB |\n| --- | ---: | ---: |',
    ...rows,
    `| all | ${total.toFixed(2)} | |`,
    `| one amphora | ${(inside.reduce((sum, name) => sum + share(name), 0) / (AMPHORAE + 1)).toFixed(3)} | ${(memory / (AMPHORAE + 1)).toFixed(1)} |`,
  ].join('\n')
}

type Cost = { seconds: number; mebibytes: number }

/** CPU seconds, including those of ended children, and memory (shared pages divided), by program. */
async function costsOf({ directory }: BenchInstance): Promise<Map<string, Cost>> {
  const costs = new Map<string, Cost>()
  const add = (name: string, pid: number) => {
    const cost = costOf(pid)
    const sum = costs.get(name) ?? { seconds: 0, mebibytes: 0 }
    costs.set(name, { seconds: sum.seconds + cost.seconds, mebibytes: sum.mebibytes + cost.mebibytes })
  }
  const prefix = `krater-${instanceId(directory)}-`
  const namespaces = readdirSync('/run/netns').filter(
    name => /-[0-9a-f]{8}-[0-9a-f-]{27}$/.test(name) && name.startsWith(prefix),
  )
  for (const namespace of namespaces) {
    for (const { pid, command } of await processesInside(namespace)) add(`amphorae: ${programOf(command)}`, pid)
  }
  for (const { name, identity } of runningProcesses(directory)) add(name, identity.pid)
  const postmaster = runningPostmaster(directory)?.pid
  if (postmaster !== undefined) for (const pid of [postmaster, ...childrenOf(postmaster)]) add('PostgreSQL', pid)
  return costs
}

const PROGRAMS = ['agent.mjs', 'init.sh', 'sshd', 'haproxy', 'keepalived', 'nft', 'ip'] as const

const programOf = (command: string): string => PROGRAMS.find(program => command.includes(program)) ?? 'others'

/** What a process has cost so far; nothing if it has just ended. */
export function costOf(pid: number): Cost {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
    const ticks = stat
      .slice(stat.lastIndexOf(')') + 2)
      .split(' ')
      .slice(11, 15)
    const [, kibibytes] = /^Pss:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8')) ?? []
    return {
      seconds: ticks.reduce((sum, value) => sum + Number(value), 0) / TICKS_PER_SECOND,
      mebibytes: Number(kibibytes ?? 0) / 1024,
    }
  } catch {
    // It has just ended.
    return { seconds: 0, mebibytes: 0 }
  }
}

const childrenOf = (pid: number): number[] =>
  readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').split(' ').filter(Boolean).map(Number)
