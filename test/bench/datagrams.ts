import { join } from 'node:path'
import type { DatagramListener, DatagramPool } from '../../amphora-agent/protocol/datagrams.js'
import { createDatagramWorld } from '../support/worlds/datagram-amphora.js'
import {
  datagramListener,
  datagramMember,
  datagramPool,
  memberId,
  poolId,
} from '../support/worlds/datagrams-desired.js'
import { startVirtualMachine } from '../support/worlds/virtual-machine/virtual-machine.js'
import { benchDatagramTraffic } from './datagram-traffic.js'
import { median, ROUNDS } from './turns.js'

const LARGE_POOL = 1_000
const CHANGES = 20
const [MANY_LISTENERS, FEW_MEMBERS] = [100, 20]
/** The emulated machine runs the same turns, and needs a multiple of their time to get ready for them. */
const MACHINE_SECONDS = 900

type World = Awaited<ReturnType<typeof createDatagramWorld>>

/**
 * UDP through an amphora, compared with what a careful engineer would set up by hand, on this machine and, with IPVS
 * beside it, on Debian's kernel in a virtual machine; and how long changes of the rules take.
 * @returns tables, as Markdown
 */
export async function benchDatagrams(): Promise<string[]> {
  return [
    '### Traffic',
    await benchDatagramTraffic(),
    '### Traffic, with IPVS',
    'The same in an emulated virtual machine with two processors and Debian’s cloud kernel, which has IPVS: keepalived sets it up, with NAT, round robin and no checks. Emulation is slow: only the ratios count.',
    await trafficInMachine(),
    '### Changes',
    await benchChanges(),
  ]
}

/** Runs datagram-traffic-program.ts, which is bundled beside this program, in a virtual machine. */
async function trafficInMachine(): Promise<string> {
  const ends: (() => unknown)[] = []
  try {
    const machine = await startVirtualMachine(
      { teardown: end => void ends.unshift(end) },
      { directories: [process.env.TMPDIR!] },
    )
    const program = join(process.argv[1]!, '../datagram-traffic-program.mjs')
    await machine.run('modprobe -a ip_vs ip_vs_rr')
    return (
      await machine.run(`BENCH_REPETITIONS=${ROUNDS} ${process.execPath} ${program}`, { seconds: MACHINE_SECONDS })
    ).trimEnd()
  } finally {
    for (const end of ends) await end()
  }
}

/** Members that need not exist. */
const manyMembers = (count: number) =>
  Array.from({ length: count }, (_, at) =>
    datagramMember(1, { id: memberId(at + 1), address: `10.68.${at >> 8}.${at & 255}` }),
  )

async function benchChanges(): Promise<string> {
  const world = await createDatagramWorld()
  try {
    return await changes(world)
  } finally {
    await world.end()
  }
}

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
