import { execFile, execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import type { DatagramListener, DatagramPool } from '../../amphora-agent/protocol/datagrams.js'
import { startKnot } from '../support/services/knot.js'
import { createNamespace } from '../support/worlds/amphora.js'
import { createDatagramWorld, VIP } from '../support/worlds/datagram-amphora.js'
import {
  datagramListener,
  datagramMember,
  datagramPool,
  memberId,
  poolId,
} from '../support/worlds/datagrams-desired.js'
import { median, ROUNDS, SECONDS, spread } from './turns.js'

const run = promisify(execFile)

/** The gateway that a careful engineer would set up by hand: no limits, counters or learned clients. */
const BY_HAND = { client: '10.67.0.2', gateway: '10.67.0.1', vip: '10.67.0.100', members: ['10.67.1.1', '10.67.1.2'] }
const RULESET = `table ip balancer {
  chain prerouting {
    type nat hook prerouting priority dstnat;
    ip daddr ${BY_HAND.vip} udp dport 53 dnat ip to numgen inc mod 2 map { 0 : ${BY_HAND.members[0]} . 53, 1 : ${BY_HAND.members[1]} . 53 }
  }
  chain postrouting { type nat hook postrouting priority srcnat; ct status dnat masquerade; }
}
`

const KINDS = [
  { name: 'as many as possible', words: ['-c', '16', '-q', '64'] },
  { name: 'one at a time', words: ['-c', '1', '-q', '1'] },
]
const LARGE_POOL = 1_000
const CHANGES = 20
const [MANY_LISTENERS, FEW_MEMBERS] = [100, 20]

type World = Awaited<ReturnType<typeof createDatagramWorld>>
type Measured = { perSecond: number; microseconds: number; lost: number }

/**
 * UDP through an amphora, compared with a ruleset written by hand in a plain namespace: queries of dnsperf to two
 * addresses of one knot, and how long changes of the rules take.
 * @returns tables, as Markdown
 */
export async function benchDatagrams(): Promise<string[]> {
  const directory = mkdtempSync(join(tmpdir(), 'krater-datagrams-'))
  const ends: (() => unknown)[] = [() => rmSync(directory, { recursive: true, force: true })]
  const teardown = (end: () => unknown) => void ends.unshift(end)
  try {
    const world = await createDatagramWorld()
    teardown(world.end)
    await plugByHand(world, teardown)
    const namespace = `knot-${process.pid}`
    execFileSync('ip', ['netns', 'attach', namespace, String(world.memberNetwork.pid)])
    teardown(() => execFileSync('ip', ['netns', 'delete', namespace]))
    await startKnot({ teardown }, { namespace, address: '0.0.0.0', number: 1 })
    return [await traffic(world, directory), await changes(world)]
  } finally {
    for (const end of ends) await end()
  }
}

/** A gateway between the same clients and members, on links of its own. */
async function plugByHand({ clientNetwork, memberNetwork }: World, teardown: (end: () => unknown) => void) {
  const gateway = createNamespace()
  await gateway.ready
  teardown(gateway.end)
  const link = (other: typeof clientNetwork, here: string, there: readonly string[]) => {
    const name = `g${other.pid}`
    gateway.ip('link', 'add', name, 'type', 'veth', 'peer', 'name', 'g0', 'netns', String(other.pid))
    gateway.ip('address', 'add', `${here}/24`, 'dev', name)
    gateway.ip('link', 'set', name, 'up')
    for (const address of there) other.ip('address', 'add', `${address}/24`, 'dev', 'g0')
    other.ip('link', 'set', 'g0', 'up')
  }
  link(clientNetwork, BY_HAND.gateway, [BY_HAND.client])
  link(memberNetwork, '10.67.1.254', BY_HAND.members)
  clientNetwork.ip('route', 'add', BY_HAND.vip, 'via', BY_HAND.gateway)
  clientNetwork.ip('route', 'add', '10.67.1.0/24', 'via', BY_HAND.gateway)
  memberNetwork.ip('route', 'add', '10.67.0.0/24', 'via', '10.67.1.254')
  const inside = ['-t', String(gateway.pid), '-n']
  execFileSync('nsenter', [...inside, 'sysctl', '-q', 'net.ipv4.ip_forward=1'])
  execFileSync('nsenter', [...inside, 'nft', '-f', '-'], { input: RULESET })
}

async function traffic(world: World, directory: string): Promise<string> {
  const questions = join(directory, 'questions')
  writeFileSync(questions, 'who.test A\n')
  const members = [1, 2].map(number => datagramMember(number, { port: 53 }))
  await world.apply([datagramListener(1)], [datagramPool(1, members)])
  const contestants = [
    { name: 'by hand', address: BY_HAND.vip },
    { name: 'amphora', address: VIP },
    { name: 'routed, not balanced', address: BY_HAND.members[0]! },
  ]
  const rows: string[] = []
  for (const { name: kind, words } of KINDS) {
    const measured: Measured[][] = contestants.map(() => [])
    for (let round = -1; round < ROUNDS; round++) {
      const order = [...contestants.keys()]
      for (const at of round % 2 === 0 ? order : order.reverse()) {
        const found = await perform(world, questions, [...words, '-s', contestants[at]!.address])
        if (round >= 0) measured[at]!.push(found)
      }
    }
    rows.push(...contestants.map(({ name }, at) => rowOf(kind, name, measured[at]!, measured[0]!)))
  }
  return [
    `dnsperf, knot and the balancers share this machine; ${ROUNDS} turns of ${SECONDS} s each. A query and its answer are two packets of a flow that is kept. The ratio is that of the time per query, the median over the turns with the least and the greatest.`,
    '',
    '| queries | through | per second | time, µs | time, ratio to by hand | lost |',
    '| --- | --- | ---: | ---: | ---: | ---: |',
    ...rows,
  ].join('\n')
}

function rowOf(kind: string, name: string, turns: readonly Measured[], reference: readonly Measured[]): string {
  const cells = [
    median(turns.map(({ perSecond }) => perSecond)).toFixed(0),
    median(turns.map(({ microseconds }) => microseconds)).toFixed(0),
    turns === reference
      ? ''
      : spread(turns.map(({ microseconds }, round) => microseconds / reference[round]!.microseconds)),
    turns.reduce((sum, { lost }) => sum + lost, 0),
  ]
  return `| ${kind} | ${name} | ${cells.join(' | ')} |`
}

async function perform({ clientNetwork }: World, questions: string, words: readonly string[]): Promise<Measured> {
  const argv = ['-t', String(clientNetwork.pid), '-n', 'dnsperf', '-d', questions, '-T', '1', '-l', String(SECONDS)]
  const { stdout } = await run('nsenter', [...argv, ...words], { timeout: (SECONDS + 30) * 1000 })
  const numberAfter = (name: string) => Number(new RegExp(`${name}: +([\\d.]+)`).exec(stdout)?.[1])
  return {
    perSecond: numberAfter('Queries per second'),
    microseconds: numberAfter('Average Latency \\(s\\)') * 1e6,
    lost: numberAfter('Queries lost'),
  }
}

/** Members that need not exist. */
const manyMembers = (count: number) =>
  Array.from({ length: count }, (_, at) =>
    datagramMember(1, { id: memberId(at + 1), address: `10.68.${at >> 8}.${at & 255}` }),
  )

async function changes(world: World): Promise<string> {
  const timed = async (listeners: DatagramListener[], pools: DatagramPool[]) => {
    const started = performance.now()
    await world.apply(listeners, pools)
    return performance.now() - started
  }
  const rows: string[] = []
  const row = (what: string, times: readonly number[]) =>
    rows.push(`| ${what} | ${median(times).toFixed(0)} | ${Math.max(...times).toFixed(0)} |`)
  const members = manyMembers(LARGE_POOL)
  for (const algorithm of ['ROUND_ROBIN', 'SOURCE_IP'] as const) {
    const [full, fewer] = [members, members.slice(1)].map(some => datagramPool(1, some, { algorithm }))
    await timed([datagramListener(1)], [full!])
    const times: number[] = []
    for (let change = 0; change < CHANGES; change++)
      times.push(await timed([datagramListener(1)], [[fewer!, full!][change % 2]!]))
    row(`a member leaves or joins ${LARGE_POOL.toLocaleString('en')}, ${algorithm}`, times)
  }
  const numbers = Array.from({ length: MANY_LISTENERS }, (_, at) => at + 1)
  const listeners = numbers.map(number => datagramListener(number, { port: 1000 + number, poolId: poolId(number) }))
  const pools = numbers.map(number => datagramPool(number, manyMembers(FEW_MEMBERS)))
  const loads: number[] = []
  for (let load = 0; load < 5; load++) {
    await timed([], [])
    loads.push(await timed(listeners, pools))
  }
  row(`${MANY_LISTENERS} listeners × ${FEW_MEMBERS} members, from nothing`, loads)
  return [
    'From the request to the agent until its answer, with the rules in force.',
    '',
    '| change | median, ms | worst, ms |',
    '| --- | ---: | ---: |',
    ...rows,
  ].join('\n')
}
