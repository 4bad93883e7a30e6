import { execFile } from 'node:child_process'
import { setTimeout as delay } from 'node:timers/promises'
import { promisify } from 'node:util'
import { type ApiClient, signIn } from '../../controller/cli/api-client.js'
import { instanceId } from '../../controller/cli/state-directory/instance.js'
import { harms, type Target } from '../support/faults/drifts.js'
import { shellInside, stateOf } from './amphora-state.js'
import { oneMoreOfDemo } from './first-traffic.js'
import { type BenchInstance, startInstance } from './instance.js'
import { percentile } from './measure.js'
import { type Losses, startProbes } from './steady-probes.js'

const run = promisify(execFile)
const BASE = '/v2.0/lbaas'
const REPETITIONS = Number(process.env.BENCH_REPETITIONS ?? 3)
/** Chooses drifts by a regular expression over their names. */
const CHOSEN = new RegExp(process.env.BENCH_DRIFTS ?? '')
const LOOK_MS = 100
const LIMIT_MS = 30_000
const STEADY_LIMIT_MS = 180_000

type Amphora = { id: string; vrrp_port_id: string; lb_network_ip: string; status: string }
type Event = { id: string; kind: string; repair: { text: string } | null; amphorae: { action: string }[] }
type Balancer = { id: string; vip_address: string; provisioning_status: string; operating_status: string }

/** A drift made inside the amphora, or on its interface in the fabric. */
type Drift = { name: string; harm: ((target: Target) => string) | { link: 'down' | 'delete' } }
type Outcome = Losses & { repairedMs: number | null; toldMs: number | null; told: string }

const SINGLE: readonly Drift[] = [
  { name: 'HAProxy’s file edited', harm: harms.editFile },
  { name: 'HAProxy’s file deleted', harm: harms.deleteFile },
  { name: 'HAProxy’s file deleted, HAProxy killed', harm: harms.deleteFileAndKill },
  { name: 'HAProxy’s file broken, HAProxy killed', harm: harms.breakFileAndKill },
  { name: 'a server disabled at runtime', harm: harms.disableServer },
  { name: 'a frontend disabled', harm: harms.disableFrontend },
  { name: 'VIP removed', harm: harms.removeVip },
  { name: 'interface of the VIP down', harm: harms.takeInterfaceDown },
  { name: 'route to members lost', harm: harms.removeRoute },
  { name: 'fabric port of the VIP down', harm: { link: 'down' } },
  { name: 'fabric port of the VIP deleted', harm: { link: 'delete' } },
  { name: 'packet filter flushed', harm: harms.flushFilter },
  { name: 'agent killed', harm: harms.killAgent },
  { name: 'agent stopped', harm: harms.stopAgent },
  { name: 'sshd stopped', harm: harms.stopSshd },
  { name: 'agent’s socket removed', harm: harms.removeAgentSocket },
  { name: 'state directory deleted', harm: harms.deleteState },
  { name: 'state directory deleted, agent killed', harm: harms.deleteStateAndKillAgent },
  { name: 'disk full', harm: harms.fillDisk },
  { name: 'disk full, HAProxy killed', harm: harms.fillDiskAndKillHaproxy },
  { name: 'disk full, agent killed', harm: harms.fillDiskAndKillAgent },
  { name: 'HAProxy killed', harm: harms.killHaproxy },
  { name: 'HAProxy’s worker killed', harm: harms.killWorker },
  { name: 'HAProxy stopped', harm: harms.stopHaproxy },
]

const PAIR: readonly Drift[] = [
  { name: 'keepalived killed', harm: harms.killKeepalived },
  { name: 'keepalived terminated', harm: harms.terminateKeepalived },
  { name: 'keepalived stopped', harm: harms.stopKeepalived },
  { name: 'keepalived’s file broken, keepalived killed', harm: harms.breakKeepalivedAndKill },
]

/**
 * Damages amphorae under traffic, and measures the time until each is as before, compared independently; the
 * time until the history reports it; and the effect on requests. Nothing else changes. @returns a table, as
 * Markdown
 */
export async function benchDrifts(root: string): Promise<string> {
  const instance = await startInstance(root, { KRATER_COMPUTE_WARM_AMPHORAE: '0' }, 28_500)
  try {
    await instance.krater('demo')
    const admin = await signIn(instance.directory, 'krater-admin')
    const rows: string[] = []
    for (const [topology, drifts] of [['SINGLE', SINGLE] as const, ['ACTIVE_STANDBY', PAIR] as const]) {
      const chosen = drifts.filter(({ name }) => CHOSEN.test(name))
      if (chosen.length === 0) continue
      const balancer = await createBalancer(instance, admin, topology)
      const probes = startProbes(`http://${balancer.vip_address}/`)
      for (const drift of chosen) {
        const outcomes: Outcome[] = []
        while (outcomes.length < REPETITIONS) outcomes.push(await play(instance, admin, balancer, drift, probes))
        rows.push(rowOf(drift, outcomes))
        process.stderr.write(`${rows.at(-1)}\n`)
      }
      await probes.stop()
    }
    return [
      `Each ${REPETITIONS} times on an amphora of a whole Krater, those of keepalived on the VIP’s holder in a pair. A request every 10 ms over a new connection, and two clients that keep theirs. Seconds until the amphora is as before and until the history reports it; median and worst.`,
      '| drift | repaired, s | worst | in the history, s | worst | lost, new connections | lost, kept connections | longest gap, ms | the history’s line |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |\n' +
        rows.join('\n'),
    ].join('\n\n')
  } finally {
    await instance.remove()
  }
}

async function createBalancer(instance: BenchInstance, admin: ApiClient, topology: string): Promise<Balancer> {
  const desired = await oneMoreOfDemo(instance)
  const { flavorprofile } = (await admin.request('load-balancer', 'POST', `${BASE}/flavorprofiles`, {
    flavorprofile: {
      name: topology,
      provider_name: 'amphora',
      flavor_data: JSON.stringify({ loadbalancer_topology: topology }),
    },
  })) as { flavorprofile: { id: string } }
  const { flavor } = (await admin.request('load-balancer', 'POST', `${BASE}/flavors`, {
    flavor: { name: topology, flavor_profile_id: flavorprofile.id, enabled: true },
  })) as { flavor: { id: string } }
  const { loadbalancer } = (await instance.api.request('load-balancer', 'POST', `${BASE}/loadbalancers`, {
    loadbalancer: { ...desired, flavor_id: flavor.id },
  })) as { loadbalancer: Balancer }
  return loadbalancer
}

type Scene = { amphora: Amphora; namespace: string; target: Target; isAsBefore: () => Promise<boolean> }

/** Waits until all is well, and records that state. */
async function settle(instance: BenchInstance, admin: ApiClient, balancer: Balancer, link: boolean): Promise<Scene> {
  const isSteady = async () => {
    const { loadbalancer } = (await instance.api.request(
      'load-balancer',
      'GET',
      `${BASE}/loadbalancers/${balancer.id}`,
    )) as { loadbalancer: Balancer }
    return loadbalancer.provisioning_status === 'ACTIVE' && loadbalancer.operating_status === 'ONLINE'
  }
  const namespaceOf = ({ id }: Amphora) => `krater-${instanceId(instance.directory)}-${id}`
  const vip = `${balancer.vip_address}/32`
  const look = async () => {
    const { amphorae } = (await admin.request(
      'load-balancer',
      'GET',
      `/v2.0/octavia/amphorae?loadbalancer_id=${balancer.id}`,
    )) as { amphorae: Amphora[] }
    return Promise.all(
      amphorae.map(async amphora => {
        const state = await stateOf(namespaceOf(amphora), amphora.lb_network_ip)
        return { amphora, state, holdsVip: [...state].some(line => line.startsWith('address') && line.endsWith(vip)) }
      }),
    )
  }
  // In a pair, the VIP may move for good, and with it keepalived's settings.
  const stable = (sights: Awaited<ReturnType<typeof look>>) =>
    sights.flatMap(({ amphora, state }) =>
      [...state]
        .filter(line => sights.length === 1 || !/ proto keepalived| lookup 1$/.test(line))
        .filter(line => sights.length === 1 || !line.includes(balancer.vip_address))
        .map(line => `${amphora.id} ${line}`),
    )
  const textOf = (sights: Awaited<ReturnType<typeof look>>) =>
    [...stable(sights), `VIPs: ${sights.filter(({ holdsVip }) => holdsVip).length}`].sort().join('\n')

  const until = performance.now() + STEADY_LIMIT_MS
  for (;;) {
    if (performance.now() > until) throw new Error('The amphorae did not become steady.')
    const sights = await look()
    await delay(2_000)
    const again = await look()
    const holder = again.find(({ holdsVip }) => holdsVip)
    const isWell = again.every(({ state }) => ![...state].some(line => /: false$|stopped$/.test(line)))
    if (holder === undefined || !isWell || textOf(sights) !== textOf(again) || !(await isSteady())) continue
    const before = textOf(again)
    return {
      amphora: holder.amphora,
      namespace: namespaceOf(holder.amphora),
      target: targetOf(holder.state, vip),
      isAsBefore: async () => {
        const now = textOf(await look())
        if (process.env.BENCH_SHOW && now !== before) showDifference(before, now)
        return now === before && (!link || (await isPortUp(instance, holder.amphora)))
      },
    }
  }
}

function showDifference(before: string, now: string): void {
  const [one, other] = [before.split('\n'), now.split('\n')]
  const lines = [
    ...one.filter(line => !other.includes(line)).map(line => `- ${line}`),
    ...other.filter(line => !one.includes(line)).map(line => `+ ${line}`),
  ]
  process.stderr.write(`${lines.slice(0, 12).join('\n')}\n\n`)
}

function targetOf(state: ReadonlySet<string>, vip: string): Target {
  const words = [...state].map(line => line.split(' '))
  const [, backend = '', server = ''] = words.find(([kind]) => kind === 'server') ?? []
  const [, listener = ''] = words.find(([kind]) => kind === 'frontend') ?? []
  const [, nic = ''] = words.find(([kind, , address]) => kind === 'address' && address === vip) ?? []
  const [, , route = ''] =
    words.find(
      ([kind, , destination = '', ...rest]) =>
        kind === 'route' && /^[\d.]+\//.test(destination) && !rest.includes(nic) && !rest.includes('mgmt0'),
    ) ?? []
  return { backend, server, listener, nic, vip, route }
}

const fabricOf = ({ directory }: BenchInstance) => `krater-${instanceId(directory)}`
const portOf = ({ vrrp_port_id }: Amphora) => `p${vrrp_port_id.replaceAll('-', '').slice(0, 11)}`

async function isPortUp(instance: BenchInstance, amphora: Amphora): Promise<boolean> {
  const { stdout } = await run('ip', ['-n', fabricOf(instance), '-oneline', 'link', 'show', portOf(amphora)]).catch(
    () => ({ stdout: '' }),
  )
  return stdout.includes('LOWER_UP') && stdout.includes('master')
}

async function play(
  instance: BenchInstance,
  admin: ApiClient,
  balancer: Balancer,
  { name, harm }: Drift,
  probes: ReturnType<typeof startProbes>,
): Promise<Outcome> {
  const { amphora, namespace, target, isAsBefore } = await settle(instance, admin, balancer, typeof harm !== 'function')
  const events = async () => {
    const path = `${BASE}/loadbalancers/${balancer.id}/events?limit=20`
    return ((await instance.api.request('load-balancer', 'GET', path)) as { events: Event[] }).events
  }
  const known = new Set((await events()).map(({ id }) => id))
  const started = performance.now()
  if (typeof harm === 'function') await shellInside(namespace, harm(target)).catch(() => '')
  else
    await run('ip', [
      '-n',
      fabricOf(instance),
      'link',
      harm.link === 'down' ? 'set' : 'delete',
      portOf(amphora),
      ...(harm.link === 'down' ? ['down'] : []),
    ])
  const harmed = performance.now()

  const elapsed = () => performance.now() - harmed
  const [repairedMs, [toldMs, told]] = await Promise.all([
    untilSome(async () => ((await isAsBefore()) ? elapsed() : null)),
    untilSome(async () => {
      const news = (await events()).filter(({ id }) => !known.has(id))
      return news.length === 0 ? null : ([elapsed(), news.map(wordsOf).join('; ')] as const)
    }).then(found => found ?? ([null, ''] as const)),
  ])
  await delay(1_000)
  const losses = probes.losses(started)
  if (repairedMs === null) {
    process.stderr.write(`${name}: not repaired, another amphora takes its place\n`)
    await admin.request('load-balancer', 'PUT', `${BASE}/loadbalancers/${balancer.id}/failover`)
  }
  return { ...losses, repairedMs, toldMs, told }
}

const wordsOf = ({ kind, repair, amphorae }: Event) =>
  repair?.text ?? `${kind}: ${amphorae.map(({ action }) => action).join(', ')}`

async function untilSome<T>(probe: () => Promise<T | null>): Promise<T | null> {
  for (const end = performance.now() + LIMIT_MS; performance.now() < end; await delay(LOOK_MS)) {
    const found = await probe()
    if (found !== null) return found
  }
  return null
}

function rowOf({ name }: Drift, outcomes: readonly Outcome[]): string {
  const sorted = (values: readonly (number | null)[]) =>
    values.map(value => value ?? Number.POSITIVE_INFINITY).sort((a, b) => a - b)
  const seconds = (values: readonly (number | null)[]) =>
    [0.5, 1].map(share => {
      const value = percentile(sorted(values), share) / 1000
      return Number.isFinite(value) ? value.toFixed(1) : 'no'
    })
  const middle = (values: readonly number[]) => percentile(sorted(values), 0.5).toFixed(0)
  return `| ${[
    name,
    ...seconds(outcomes.map(({ repairedMs }) => repairedMs)),
    ...seconds(outcomes.map(({ toldMs }) => toldMs)),
    middle(outcomes.map(({ lost }) => lost.fresh)),
    middle(outcomes.map(({ lost }) => lost.kept)),
    middle(outcomes.map(({ gapMs }) => gapMs)),
    outcomes.at(-1)?.told.replaceAll('|', '/') ?? '',
  ].join(' | ')} |`
}
