import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { AGENT_SOCKET } from '../../amphora-agent/protocol/messages.js'
import { instanceId } from '../../controller/cli/state-directory/instance.js'
import { chooseAcceleration } from '../../controller/compute/qemu/acceleration.js'
import { processesInside } from '../support/faults/crash-amphora.js'
import { oneMoreOfDemo } from './first-traffic.js'
import { costOf, timeUntilServed } from './idle-amphorae.js'
import { type BenchInstance, startInstance, TICKS_PER_SECOND } from './instance.js'
import { percentile } from './measure.js'
import { load } from './wrk.js'

const BASE = '/v2.0/lbaas'
const ROUNDS = 5
const AT_ONCE = 10
const SECONDS = 10
const SETTLE_SECONDS = 20
const AMPHORA_ID = /-([0-9a-f]{8}-[0-9a-f-]{27})$/

type Figures = {
  /** Milliseconds, sorted. */
  alone: number[]
  atOnce: number[]
  /** Milliseconds from the start of a machine until its agent listens, sorted. */
  starts: number[]
  /** MiB of one amphora's processes, shared pages divided, when idle; sorted. */
  memory: number[]
  keptOpen: number
  reopened: number
}

/**
 * Starts load balancers one by one and many at once, on amphorae in namespaces and in virtual machines, and measures what
 * they cost and carry. @returns a table, as Markdown
 */
export async function benchMachines(root: string): Promise<string> {
  const namespace = await measure(root, 'namespace', 29_000)
  const machine = await measure(root, 'qemu', 29_100)
  const seconds = (values: number[], share: number) => (percentile(values, share) / 1000).toFixed(1)
  const rows: [string, (figures: Figures) => string][] = [
    [
      `from the POST to the first 200, one at a time, ${ROUNDS} times; median and worst, s`,
      ({ alone }) => `${seconds(alone, 0.5)}, ${seconds(alone, 1)}`,
    ],
    [
      `the same, ${AT_ONCE} at once; median and worst, s`,
      ({ atOnce }) => `${seconds(atOnce, 0.5)}, ${seconds(atOnce, 1)}`,
    ],
    [
      `from the start of the machine until its agent is ready, ${ROUNDS} times; median and worst, s`,
      ({ starts }) => `${seconds(starts, 0.5)}, ${seconds(starts, 1)}`,
    ],
    ['memory of one, idle; median, MiB', ({ memory }) => percentile(memory, 0.5).toFixed(0)],
    ['requests/s, 16 connections kept open', ({ keptOpen }) => keptOpen.toFixed(0)],
    ['requests/s, a connection for each', ({ reopened }) => reopened.toFixed(0)],
  ]
  return [
    `Load balancers with a listener, a pool and two members, each with a new amphora. Memory is that of all its processes, with QEMU. The members are the demonstration’s. ${await accelerationText()}`,
    [
      '| | namespace | virtual machine |\n| --- | ---: | ---: |',
      ...rows.map(([what, text]) => `| ${what} | ${text(namespace)} | ${text(machine)} |`),
    ].join('\n'),
  ].join('\n\n')
}

async function accelerationText(): Promise<string> {
  const { kind } = await chooseAcceleration('auto')
  return kind === 'kvm' ? 'The virtual machines run with KVM.' : 'The virtual machines are emulated.'
}

async function measure(root: string, driver: string, firstPort: number): Promise<Figures> {
  const settings = { KRATER_COMPUTE_DRIVER: driver, KRATER_COMPUTE_WARM_AMPHORAE: '0' }
  const instance = await startInstance(root, settings, firstPort)
  try {
    if (driver === 'qemu') await instance.krater('image', 'import', join(root, 'images/out'))
    await instance.krater('demo')
    const traffic = await carried(instance)
    const desired = await oneMoreOfDemo(instance)
    const [demo] = machinesOf(instance)
    const alone: number[] = []
    const starts: number[] = []
    for (let round = 0; round < ROUNDS; round++) {
      alone.push(await timeUntilServed(instance, desired))
      const [newest] = machinesOf(instance).filter(namespace => namespace !== demo)
      starts.push(await startToAgent(instance, newest ?? ''))
      await removeOthers(instance)
    }
    const atOnce = await Promise.all(Array.from({ length: AT_ONCE }, () => timeUntilServed(instance, desired)))
    await delay(SETTLE_SECONDS * 1000)
    const memory = await memoryOfEach(instance)
    const sorted = (values: number[]) => values.toSorted((a, b) => a - b)
    return { alone: sorted(alone), starts: sorted(starts), atOnce: sorted(atOnce), memory: sorted(memory), ...traffic }
  } finally {
    await instance.remove()
  }
}

type Listed = { id: string; name: string; vip_address: string }

async function balancers({ api }: BenchInstance): Promise<Listed[]> {
  const { loadbalancers } = (await api.request('load-balancer', 'GET', `${BASE}/loadbalancers`)) as {
    loadbalancers: Listed[]
  }
  return loadbalancers
}

/** Deletes all but the demonstration's, and waits until they are gone. */
async function removeOthers(instance: BenchInstance): Promise<void> {
  const others = async () => (await balancers(instance)).filter(({ name }) => name !== 'krater-demo')
  for (const { id } of await others())
    await instance.api.request('load-balancer', 'DELETE', `${BASE}/loadbalancers/${id}?cascade=true`)
  const until = performance.now() + 120_000
  while ((await others()).length > 0) {
    if (performance.now() > until) throw new Error('A load balancer was not deleted within 120 s.')
    await delay(200)
  }
}

/** Requests per second through the demonstration's load balancer. */
async function carried(instance: BenchInstance): Promise<Pick<Figures, 'keptOpen' | 'reopened'>> {
  const demo = (await balancers(instance)).find(({ name }) => name === 'krater-demo')
  const rate = async (newConnections: boolean) => {
    const words = { host: demo?.vip_address ?? '', port: 80, path: '/', connections: 16, newConnections }
    const { requestsPerSecond, broken } = await load({ ...words, seconds: SECONDS })
    if (broken > 0) process.stderr.write(`${broken} requests failed\n`)
    return requestsPerSecond
  }
  return { keptOpen: await rate(false), reopened: await rate(true) }
}

/** The network namespaces of the amphorae. */
function machinesOf({ directory }: BenchInstance): string[] {
  const prefix = `krater-${instanceId(directory)}-`
  return readdirSync('/run/netns').filter(name => name.startsWith(prefix) && AMPHORA_ID.test(name))
}

async function memoryOfEach(instance: BenchInstance): Promise<number[]> {
  return Promise.all(
    machinesOf(instance).map(async namespace =>
      (await processesInside(namespace)).reduce((sum, { pid }) => sum + costOf(pid).mebibytes, 0),
    ),
  )
}

/** Milliseconds; the time in which the amphora's answer comes is part of it. */
async function startToAgent(instance: BenchInstance, namespace: string): Promise<number> {
  const started = Math.min(...(await processesInside(namespace)).map(({ pid }) => startOf(pid)))
  const id = AMPHORA_ID.exec(namespace)?.[1] ?? ''
  // The clock of a machine may be another one; how long ago something was is the same on both. The end of the session
  // counts too.
  const { stdout } = await instance.krater('amphora', 'ssh', id, `stat -c %.9Y ${AGENT_SOCKET}; date +%s.%N`)
  const [listening = Number.NaN, now = Number.NaN] = stdout.trim().split('\n').map(Number)
  return uptime() - started - (now - listening) * 1000
}

/** Milliseconds from the start of this host to that of a process. */
function startOf(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
  return Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19]) * (1000 / TICKS_PER_SECOND)
}

const uptime = (): number => Number(readFileSync('/proc/uptime', 'utf8').split(' ')[0]) * 1000
