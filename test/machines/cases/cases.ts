import { join } from 'node:path'
import type { Test } from 'tap'
import { CURRENT_HAPROXY } from '../../../amphora-agent/apply/store.js'
import { askSteadily, startIn } from '../../support/clients/steady-asker.js'
import { storeSecret } from '../../support/clients/stored-secret.js'
import { harms, type Target } from '../../support/faults/drifts.js'
import { makeBundle, makePair } from '../../support/inputs/certificates.js'
import { until } from '../../support/worlds/krater.js'
import { createLan, type Lan } from '../../support/worlds/lan.js'
import { type Amphora, type Balancer, type LanKrater, startLanKrater } from '../../support/worlds/lan-krater.js'

/** What runs amphorae. The cases below are the same for all of them. */
export type MachineKind = {
  /** Of Krater, by their variables. */
  settings: Readonly<Record<string, string>>
  /** Provides what its amphorae need. Called before Krater starts. */
  prepare?: (t: Test, lan: Lan) => Promise<Provided>
  /** Ends the machine of an amphora at once, as a power failure does, and lets it start again. */
  powerFails: (world: LanKrater, amphora: Amphora) => Promise<void>
  /** Shuts the machine of an amphora down, and starts it again. */
  reboots?: (world: LanKrater, amphora: Amphora) => Promise<void>
  /** Cases that it cannot go through, and why. */
  cannot?: Partial<Record<CaseName, string>>
}

/** @param world as soon as Krater runs */
type Provided = (world: LanKrater) => Promise<void>

/** Longest time without an answer while an amphora is replaced, in milliseconds: an emulated one competes with the clients. */
const BOUND_MS = 5_000

const NAME = 'www.example.com'

type Scene = {
  world: LanKrater
  balancer: Balancer
  /** File of the certificate that its server's is signed by. */
  authority: string
  /** Waits until HTTP, HTTPS and UDP are answered. */
  serves: () => Promise<void>
  amphora: () => Promise<Amphora>
  /** Runs a shell command as root in the amphora. @returns its output */
  inside: (script: string) => Promise<string>
  /** Sends HTTP and UDP requests meanwhile. @returns the longest time without an answer, in ms, and the requests lost */
  during: (t: Test, work: () => Promise<void>) => Promise<{ longestMs: number; missed: number }>
}

/** One load balancer in a machine of the kind goes through all of them, in this order. */
const cases = {
  'sends HTTP, HTTPS and UDP to both servers': async (t, { world, balancer, authority, serves }) => {
    await serves()
    const askers = {
      HTTP: () => world.get(`http://${balancer.vip_address}/`),
      HTTPS: () => askHttps(world, balancer, authority),
      UDP: () => askUdp(world, balancer),
    }
    for (const [protocol, ask] of Object.entries(askers)) {
      const answers = new Set<string>()
      for (let asked = 0; asked < 8; asked++) answers.add(await ask())
      t.same([...answers].sort(), world.servers, protocol)
    }
  },

  'is mended when somebody changes it by hand': async (t, { balancer, serves, inside, amphora }) => {
    const { id } = await amphora()
    // What was lost may come back in another order.
    const shown = async () => {
      const lines = await inside(`ip -br -4 address; nft list tables; sha256sum ${CURRENT_HAPROXY}`)
      return lines.split('\n').sort().join('\n')
    }
    const whole = await shown()
    const [, nic = '', vip = ''] = new RegExp(`^([^ @]+)\\S* .*?(${balancer.vip_address}/\\d+)`, 'm').exec(whole) ?? []
    const target: Target = { listener: '', backend: '', server: '', route: '', nic, vip }
    const done = [
      'removeVip',
      'takeInterfaceDown',
      'flushFilter',
      'editFileAndReload',
      'killHaproxy',
      'killAgent',
    ] as const
    for (const name of done) {
      await inside(harms[name](target))
      await until(`it is whole again after ${name}`, async () => (await shown()) === whole)
      await serves()
      t.pass(name)
    }
    t.equal((await amphora()).id, id, 'the same amphora')
  },

  'gets another agent in place, however often that is killed, and traffic flows': async (t, scene) => {
    const { world, balancer, inside, during, amphora } = scene
    const { krater, admin, applied } = world
    const { id } = await amphora()
    const upgrade = (...options: string[]) => krater.command('amphora', 'upgrade', ...options)
    const { missed } = await during(t, async () => {
      await inside(OTHER_AGENT)
      await until('its agent is another one', async () => {
        await admin.request('load-balancer', 'PUT', `/v2/octavia/amphorae/${id}/config`)
        await applied(balancer)
        return / 1 in place/.test((await upgrade('--dry-run')).stdout)
      })
      for (const name of ['staged.mjs', 'next', 'trial']) {
        const child = krater.start('amphora', 'upgrade')
        await until(`it is time to kill the worker: ${name}`, async () => {
          return child.exitCode !== null || (await inside(`ls /opt/krater/agents`)).includes(name)
        })
        child.kill('SIGKILL')
        await until('a worker runs', () => krater.running().includes('worker'))
        krater.kill('worker')
      }
      const { status, stdout, stderr } = await upgrade()
      t.equal(status, 0, stdout + stderr)
    })
    t.equal(missed, 0, 'every request is answered')
    t.match((await upgrade('--dry-run')).stdout, / 0 to upgrade: .* 1 is current/)
    t.equal((await amphora()).id, id, 'the same amphora')
  },

  'is replaced on request': async (t, { world, balancer, serves, during, amphora }) => {
    const { id } = await amphora()
    const { longestMs, missed } = await during(t, async () => {
      await world.admin.request('load-balancer', 'PUT', `/v2/lbaas/loadbalancers/${balancer.id}/failover`)
      await until('another amphora serves alone', async () => {
        const [first, ...others] = await world.amphorae(balancer)
        return first !== undefined && first.id !== id && first.status === 'ALLOCATED' && others.length === 0
      })
      await world.applied(balancer)
    })
    t.ok(longestMs < BOUND_MS, `traffic flows: the longest pause was ${longestMs} ms, ${missed} requests were lost`)
    await serves()
  },

  'serves again after its machine lost its power': async (t, { world, balancer, serves, amphora }, kind) => {
    await kind.powerFails(world, await amphora())
    await serves()
    await world.applied(balancer)
    t.equal((await amphora()).status, 'ALLOCATED')
  },

  'serves again after its machine was restarted': async (t, { world, serves, amphora }, kind) => {
    const before = await amphora()
    await kind.reboots?.(world, before)
    await serves()
    t.equal((await amphora()).id, before.id, 'the same amphora')
  },
} as const satisfies Record<string, (t: Test, scene: Scene, kind: MachineKind) => Promise<void>>

type CaseName = keyof typeof cases

/** Lets the amphora run an agent that differs in a comment only, as one of another version of Krater does. */
const OTHER_AGENT = `
set -e
cd /opt/krater
mkdir -p agents
(echo '// another'; cat agent.mjs) >agents/other
sum=$(sha256sum <agents/other | cut -c 1-64)
mv agents/other "agents/$sum.mjs"
ln -s "$sum.mjs" agents/current
kill $(pgrep -f [a]gent.mjs)
`

/** @param authority file of the certificate that the server's must be signed by */
const askHttps = ({ get }: LanKrater, { vip_address }: Balancer, authority: string) =>
  get(`https://${NAME}/`, '--cacert', authority, '--resolve', `${NAME}:443:${vip_address}`)

/** @returns the name of the server that answers on a new flow */
const askUdp = async ({ asker }: LanKrater, { vip_address }: Balancer) =>
  (await asker.ask(vip_address, { protocol: 'udp', port: 53 }))?.split(' ')[0] ?? ''

async function createScene(t: Test, world: LanKrater): Promise<Scene> {
  const { krater, api, client, create, listener, servers } = world
  const pair = makePair({ subject: `/CN=${NAME}`, args: ['-addext', `subjectAltName=DNS:${NAME}`] })
  const authority = join(t.testdir({ 'authority.pem': pair.certificate }), 'authority.pem')
  const balancer = await create('balancer', [
    listener('HTTP', 80, 8000),
    listener('TERMINATED_HTTPS', 443, 8000, { default_tls_container_ref: await storeSecret(api, makeBundle(pair)) }),
    listener('UDP', 53, 8080),
  ])
  const amphora = async () => {
    const [only] = await world.amphorae(balancer)
    if (only === undefined) throw new Error('The load balancer has no amphora.')
    return only
  }
  return {
    world,
    balancer,
    authority,
    amphora,
    serves: async () => {
      await until('HTTP is answered', async () => servers.includes(await world.get(`http://${balancer.vip_address}/`)))
      await until('HTTPS is answered', async () => servers.includes(await askHttps(world, balancer, authority)))
      await until('UDP is answered', async () => servers.includes(await askUdp(world, balancer)))
    },
    inside: async script => (await krater.command('amphora', 'ssh', (await amphora()).id, script)).stdout,
    during: async (t, work) => {
      const asked = [
        { protocol: 'http', host: balancer.vip_address, port: 80 },
        { protocol: 'udp', host: balancer.vip_address, port: 53 },
      ] as const
      const stop = await askSteadily(t, startIn(client), asked)
      await work()
      const gaps = await stop()
      for (const [at, { protocol }] of asked.entries()) t.comment(protocol, gaps[at])
      return {
        longestMs: Math.max(...gaps.map(({ longestMs }) => longestMs)),
        missed: gaps.reduce((sum, { missed }) => sum + missed, 0),
      }
    },
  }
}

/** Runs all cases with one load balancer on a LAN, whose amphora is a machine of the kind. */
export async function runCases(t: Test, kind: MachineKind): Promise<void> {
  t.setTimeout(1_100_000)
  const lan = await createLan(t)
  const provided = await kind.prepare?.(t, lan)
  const settings = { KRATER_HOUSEKEEPING_AGENT_UPGRADES: 'manual', ...kind.settings }
  const world = await startLanKrater(t, settings, lan)
  await provided?.(world)
  const scene = await createScene(t, world)
  for (const title of Object.keys(cases) as CaseName[]) {
    const skip = kind.cannot?.[title] ?? false
    await t.test(title, { skip }, t => cases[title](t, scene, kind))
  }
}
