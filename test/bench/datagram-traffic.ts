import { execFile, execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { eventually } from '../support/eventually.js'
import { startKnot } from '../support/services/knot.js'
import { createNamespace } from '../support/worlds/amphora.js'
import { createDatagramWorld, VIP } from '../support/worlds/datagram-amphora.js'
import { datagramListener, datagramMember, datagramPool } from '../support/worlds/datagrams-desired.js'
import { median, ROUNDS, SECONDS, spread } from './turns.js'

const run = promisify(execFile)

/** Addresses of a gateway on links of its own, between the clients and the members of the amphora. */
const placesOf = (network: number) => ({
  network,
  client: `10.${network}.0.2`,
  gateway: `10.${network}.0.1`,
  vip: `10.${network}.0.100`,
  members: [`10.${network}.1.1`, `10.${network}.1.2`],
})
type Places = ReturnType<typeof placesOf>

/** What a careful engineer would set up by hand: no limits, counters or learned clients. */
const rulesetFor = ({ vip, members }: Places) => `table ip balancer {
  chain prerouting {
    type nat hook prerouting priority dstnat;
    ip daddr ${vip} udp dport 53 dnat ip to numgen inc mod 2 map { 0 : ${members[0]} . 53, 1 : ${members[1]} . 53 }
  }
  chain postrouting { type nat hook postrouting priority srcnat; ct status dnat masquerade; }
}
`
/** The same with keepalived and IPVS. Members answer through the gateway, so that no source is rewritten. */
const virtualServerFor = ({ vip, members }: Places) => `virtual_server ${vip} 53 {
  lvs_sched rr
  lvs_method NAT
  protocol UDP
${members.map(member => `  real_server ${member} 53 { weight 1 }`).join('\n')}
}
`

/** Between single queries dnsperf pauses: their number per second says nothing of the balancers. */
const KINDS = [
  { name: 'as many as possible', words: ['-c', '16', '-q', '64'], isCounted: true },
  { name: 'one at a time', words: ['-c', '1', '-q', '1'], isCounted: false },
]

type World = Awaited<ReturnType<typeof createDatagramWorld>>
type Teardown = (end: () => unknown) => void
type Contestant = { name: string; address: string }
type Measured = { perSecond: number; microseconds: number; lost: number }

/**
 * Queries of dnsperf to two addresses of one knot, through an amphora and through gateways without one.
 * @param ipvs whether keepalived with IPVS takes part; the kernel must have it
 * @returns a table, as Markdown
 */
export async function benchDatagramTraffic({ ipvs = false } = {}): Promise<string> {
  const directory = mkdtempSync(join(tmpdir(), 'krater-datagrams-'))
  const ends: (() => unknown)[] = [() => rmSync(directory, { recursive: true, force: true })]
  const teardown: Teardown = end => void ends.unshift(end)
  try {
    const world = await createDatagramWorld()
    teardown(world.end)
    const contestants = [
      await plugByHand(world, teardown),
      { name: 'amphora', address: VIP },
      ...(ipvs ? [await plugIpvs(world, directory, teardown)] : []),
    ]
    await world.apply([datagramListener(1)], [datagramPool(1, membersOf())])
    const namespace = `knot-${process.pid}`
    execFileSync('ip', ['netns', 'attach', namespace, String(world.memberNetwork.pid)])
    teardown(() => execFileSync('ip', ['netns', 'delete', namespace]))
    await startKnot({ teardown }, { namespace, address: '0.0.0.0', number: 1 })
    const routed = { name: 'routed, not balanced', address: placesOf(67).members[0]! }
    return await compare(world, directory, [...contestants, routed])
  } finally {
    for (const end of ends) await end()
  }
}

const membersOf = () => [1, 2].map(number => datagramMember(number, { port: 53 }))

async function plugByHand(world: World, teardown: Teardown): Promise<Contestant> {
  const places = placesOf(67)
  const { inside } = await plugGateway(world, places, teardown)
  execFileSync('nsenter', [...inside, 'nft', '-f', '-'], { input: rulesetFor(places) })
  return { name: 'by hand', address: places.vip }
}

async function plugIpvs(world: World, directory: string, teardown: Teardown): Promise<Contestant> {
  const places = placesOf(69)
  const { gateway, inside } = await plugGateway(world, places, teardown)
  gateway.ip('address', 'add', `${places.vip}/32`, 'dev', 'lo')
  const configuration = join(directory, 'keepalived.conf')
  writeFileSync(configuration, virtualServerFor(places))
  const files = ['pid', 'checkers_pid', 'vrrp_pid'].map(name => `--${name}=${join(directory, name)}`)
  const words = ['keepalived', '--dont-fork', '--log-console', '--check', '-f', configuration, ...files]
  const keepalived = spawn('nsenter', [...inside, ...words], { stdio: 'ignore' })
  teardown(async () => {
    const ended = once(keepalived, 'exit')
    keepalived.kill()
    await ended
  })
  const table = () => readFileSync(`/proc/${gateway.pid}/net/ip_vs`, 'utf8')
  await eventually('IPVS has both members', () => table().match(/->.*Masq/g)?.length === 2, 60_000)
  return { name: 'keepalived, IPVS', address: places.vip }
}

/** @returns the gateway's namespace, which forwards, with the words that enter it */
async function plugGateway({ clientNetwork, memberNetwork }: World, places: Places, teardown: Teardown) {
  const gateway = createNamespace()
  await gateway.ready
  teardown(gateway.end)
  const link = (other: typeof clientNetwork, here: string, there: readonly string[]) => {
    const [name, far] = [`g${other.pid}`, `g${places.network}`]
    gateway.ip('link', 'add', name, 'type', 'veth', 'peer', 'name', far, 'netns', String(other.pid))
    gateway.ip('address', 'add', `${here}/24`, 'dev', name)
    gateway.ip('link', 'set', name, 'up')
    for (const address of there) other.ip('address', 'add', `${address}/24`, 'dev', far)
    other.ip('link', 'set', far, 'up')
  }
  const behind = `10.${places.network}.1.254`
  link(clientNetwork, places.gateway, [places.client])
  link(memberNetwork, behind, places.members)
  clientNetwork.ip('route', 'add', places.vip, 'via', places.gateway)
  clientNetwork.ip('route', 'add', `10.${places.network}.1.0/24`, 'via', places.gateway)
  memberNetwork.ip('route', 'add', `10.${places.network}.0.0/24`, 'via', behind)
  const inside = ['-t', String(gateway.pid), '-n']
  execFileSync('nsenter', [...inside, 'sysctl', '-q', 'net.ipv4.ip_forward=1'])
  return { gateway, inside }
}

async function compare(world: World, directory: string, contestants: readonly Contestant[]): Promise<string> {
  const questions = join(directory, 'questions')
  writeFileSync(questions, 'who.test A\n')
  const rows: string[] = []
  for (const { words, ...kind } of KINDS) {
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

function rowOf(
  kind: { name: string; isCounted: boolean },
  name: string,
  turns: readonly Measured[],
  reference: readonly Measured[],
): string {
  const cells = [
    kind.isCounted ? median(turns.map(({ perSecond }) => perSecond)).toFixed(0) : '',
    median(turns.map(({ microseconds }) => microseconds)).toFixed(0),
    turns === reference
      ? ''
      : spread(turns.map(({ microseconds }, round) => microseconds / reference[round]!.microseconds)),
    turns.reduce((sum, { lost }) => sum + lost, 0),
  ]
  return `| ${kind.name} | ${name} | ${cells.join(' | ')} |`
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
