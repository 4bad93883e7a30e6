import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, existsSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pino } from 'pino'
import t from 'tap'
import { namespacesNamed } from '../../controller/network/local/namespace.js'
import { removeOtherRouters, routerState } from '../../controller/network/local/routers/apply.js'
import { routerNamespaces } from '../../controller/network/local/routers/router.js'
import { filterState } from '../../controller/network/local/security-groups/apply.js'
import { startNetworkWorker } from '../../controller/network/local/worker/worker.js'
import { createTestDatabase } from '../support/database/database.js'
import { eventually } from '../support/eventually.js'
import { createWorld } from '../support/worlds/fabric-world.js'
import { networkRows } from '../support/worlds/network-rows.js'
import type { NetworkWorkerOrders } from '../support/worlds/network-worker-process.js'
import { bundle } from '../support/worlds/programs.js'

/** Each program of the network is a step. At the step whose turn it is, the process that begins it is killed. */
const wrapper = (program: string) => `#!/bin/sh
printf . >> "$KRATER_TEST_STEPS"
read -r steps < "$KRATER_TEST_STEPS"
[ "\${#steps}" -ge "$KRATER_TEST_KILL_AT" ] && kill -9 $PPID && exit 1
PATH="$KRATER_TEST_PATH" exec ${program} "$@"
`
/** What an operator may have on a host. */
const HOST = `ip address add 192.0.2.1/24 dev lo
  ip route add 203.0.113.0/24 via 192.0.2.9 && ip rule add from 192.0.2.1 table 77
  nft add table inet mine && nft add chain inet mine forward '{ type filter hook forward priority 0; policy drop; }'`
const HOST_STATE = [
  ...['link', 'address', 'route', 'rule'].map(what => ['ip', what, 'show']),
  ...['route', 'rule'].map(what => ['ip', '-6', what, 'show']),
  ['ip', 'route', 'show', 'table', 'all'],
  ['nft', 'list', 'ruleset'],
  ['sh', '-c', "sysctl -a -r '^net\\.' 2>/dev/null"],
]
/** Some steps between two kills: each kill costs a second. */
const STRIDE = 5
const LIMIT_MS = 30_000

t.test('a network worker that is killed at any step leaves nothing that the next one does not put right', async t => {
  t.setTimeout(1_100_000)
  const { fabric, instance, run, machine: namespace } = await createWorld(t)
  t.teardown(() => removeOtherRouters(fabric, []))
  const testDatabase = await createTestDatabase()
  t.teardown(() => testDatabase.drop())
  const directory = mkdtempSync(join(tmpdir(), 'kr-steps-'))
  t.teardown(() => rmSync(directory, { recursive: true, force: true }))
  for (const program of ['ip', 'nsenter']) {
    writeFileSync(join(directory, program), wrapper(program))
    chmodSync(join(directory, program), 0o755)
  }
  await bundle({ worker: join(import.meta.dirname, '../support/worlds/network-worker-process.ts') }, directory)

  const rows = networkRows(testDatabase.of('network'))
  const external = await rows.subnet(await rows.network({ external: true }), '198.51.100.0/24', '198.51.100.1')
  const inside = await rows.subnet(await rows.network(), '10.0.0.0/24', '10.0.0.1')
  const group = await rows.group()
  const machine = await rows.port([[inside, '10.0.0.10']], { groups: [group] })
  const router = await rows.router()
  await rows.leg(router, [[inside, '10.0.0.1']])
  await rows.leg(router, [[external, '198.51.100.10']], true)
  const floating = await rows.floatingIp(external, '198.51.100.50')
  await rows.associate(floating, { router, subnet: inside, address: '10.0.0.10' })
  const be = async (there: boolean) => {
    await rows.database('router').where({ id: router }).update({ admin_state_up: there })
    await rows.database('port').where({ id: machine.id }).update({ filtered: there })
  }

  /** A namespace that is the host of the workers that are killed: other tests do not change it. */
  const host = await namespace('host')
  await run(host, 'sh', '-c', HOST)
  const hostState = async () => {
    const shown = await Promise.all(HOST_STATE.map(words => run(host, ...words)))
    return shown.flatMap(text => text.split('\n').filter(line => !line.includes('nf_conntrack_count')))
  }

  const state = async () => {
    if (!existsSync(`/run/netns/${fabric.namespace}`)) return null
    const ofRouter = await routerState(fabric, router)
    const ofFilter = ofRouter === null ? null : await filterState(fabric.namespace)
    return ofFilter === null ? null : JSON.stringify([ofRouter, ofFilter])
  }
  const isGone = async () => {
    if (namespacesNamed(routerNamespaces(fabric.instance)).length > 0) return false
    if ((await fabric.attachedLegs()).length > 0) return false
    const guard = await run(fabric.namespace, 'nft', 'list', 'ruleset')
    return !/\b[rp][0-9a-f]{11}\b|to_[0-9a-f]{16}|ingress_\S+/.test(guard)
  }
  const undisturbed = async (what: string, isDone: () => Promise<boolean>) => {
    const database = testDatabase.of('network')
    const log = pino({ level: 'silent' })
    const options = {
      database,
      databaseUrl: testDatabase.urlOf('network'),
      fabric,
      physicalNetworks: {},
      keepHost: async () => undefined,
      hasSpanningRouters: async () => true,
      log,
    }
    const worker = await startNetworkWorker(options)
    try {
      await eventually(what, isDone, LIMIT_MS)
    } finally {
      await worker.stop()
    }
  }
  /** @returns whether it was killed before all was done */
  const killedAt = async (step: number, isDone: () => Promise<boolean>): Promise<boolean> => {
    const steps = join(directory, `steps-${step}`)
    writeFileSync(steps, '')
    const { PATH = '' } = process.env
    const env = {
      ...process.env,
      ...{ PATH: `${directory}:${PATH}`, KRATER_TEST_PATH: PATH },
      ...{ KRATER_TEST_STEPS: steps, KRATER_TEST_KILL_AT: `${step}` },
    }
    // Not the wrapper of that name.
    const words = [`--net=/run/netns/${host}`, process.execPath, join(directory, 'worker.mjs')]
    const child = spawn('/usr/bin/nsenter', words, { env, stdio: ['pipe', 'ignore', 'inherit'] })
    const orders: NetworkWorkerOrders = { instance, databaseUrl: testDatabase.urlOf('network') }
    child.stdin?.end(JSON.stringify(orders))
    const ended = once(child, 'exit').then(() => true)
    const hasBegun = () => statSync(steps).size > 0
    const done = eventually(
      'the end of the work',
      async () => child.exitCode !== null || child.signalCode !== null || (hasBegun() && (await isDone())),
      LIMIT_MS,
    )
    await Promise.race([ended, done])
    const wasKilled = child.signalCode !== null
    child.kill('SIGKILL')
    await ended
    return wasKilled
  }

  const hostBefore = await hostState()
  await be(true)
  await undisturbed('the desired state', async () => (await state()) !== null)
  const desired = await state()
  const isThere = async () => (await state()) === desired
  await be(false)
  await undisturbed('nothing', isGone)
  for (const [what, there, isDone] of [
    ['making', true, isThere],
    ['removing', false, isGone],
  ] as const) {
    let kills = 0
    for (let step = 1; ; step += STRIDE) {
      await be(!there)
      await undisturbed('the state before', there ? isGone : isThere)
      await be(there)
      if (!(await killedAt(step, isDone))) break
      kills += 1
      await undisturbed(`${what}, after a kill at step ${step}`, isDone)
    }
    t.ok(kills > 3, `${what}: ${kills} kills, each put right`)
  }
  t.strictSame(await hostState(), hostBefore, 'the host is as before')
})
