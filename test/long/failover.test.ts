import { type ChildProcess, execFile } from 'node:child_process'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import t, { type Test } from 'tap'
import { ask } from '../../controller/cli/commands/demo/traffic.js'
import { keyFiles, loadKeys } from '../../controller/cli/state-directory/keys.js'
import { loadConfiguration } from '../../controller/config/load.js'
import { agentTarget } from '../../controller/provider/amphora/agent/agent.js'
import { SshAgentConnections } from '../../controller/provider/amphora/agent/connection.js'
import { upgradeAgent } from '../../controller/provider/amphora/agent/upgrade.js'
import { startLastingClients } from '../support/clients/lasting-clients.js'
import { killIfThere, processesInside, startRequests } from '../support/faults/crash-amphora.js'
import { balancersOf } from '../support/faults/crash-balancer.js'
import { openDatabases } from '../support/faults/crash-inventory.js'
import { type BothBalancer, createBothFamilies } from '../support/inputs/both-families.js'
import { createSites } from '../support/services/web-servers.js'
import { type Krater, startKrater, until } from '../support/worlds/krater.js'
import { quiet } from '../support/worlds/machines.js'

const run = promisify(execFile)

type Amphora = { id: string; role: string; status: string; lb_network_ip: string; vrrp_ip: string }
type Shown = { provisioning_status: string; vip_address: string; vip_port_id: string; fault?: { text: string } }

/**
 * Longest time in milliseconds that a client may wait for an answer: TCP resends a lost packet after one
 * second, and other tests use the processor.
 */
const BOUND_MS = 5_000

async function createScene(t: Test, krater: Krater) {
  const databases = openDatabases(t, krater)
  const { one, two } = await createSites(t, krater, ['one', 'two'])
  const both = await createBothFamilies(t, krater)
  const [api, admin] = await Promise.all([krater.api(), krater.api('krater-admin')])
  const { subnets } = (await api.request('network', 'GET', '/v2.0/subnets?name=public-subnet')) as {
    subnets: { id: string }[]
  }
  const balancers = balancersOf(api, subnets[0]!.id)
  const [balancer, ...ofBoth] = await Promise.all([
    balancers.create('failover', [one, two]),
    both.create('four'),
    both.create('six'),
  ])
  both.ask(ofBoth)
  await Promise.all([balancers.untilServing(balancer, [one, two]), both.untilServing(ofBoth)])
  const call = (method: string, path: string) => admin.request('load-balancer', method, `/v2.0/${path}`)
  const show = async () =>
    ((await call('GET', `lbaas/loadbalancers/${balancer.id}`)) as { loadbalancer: Shown }).loadbalancer
  const amphoraeOf = async ({ id }: { id: string }) =>
    ((await call('GET', `octavia/amphorae?loadbalancer_id=${id}`)) as { amphorae: Amphora[] }).amphorae
  const amphorae = () => amphoraeOf(balancer)
  const namespaceOf = (amphoraId: string) => `krater-${krater.instance()}-${amphoraId}`
  return {
    url: balancer.url,
    call,
    show,
    amphorae,
    balancer,
    both: { ...both, balancers: ofBoth },
    amphoraeOf,
    /** The amphorae that have a VIP on one of their interfaces, per VIP. */
    holdersOf: async (of: BothBalancer) => {
      const interfaces = await Promise.all(
        (await amphoraeOf(of)).map(async ({ id }) => {
          const { stdout } = await run('ip', ['-n', namespaceOf(id), '-o', 'addr'], { timeout: 10_000 })
          return { id, stdout }
        }),
      )
      return of.vips.map(vip => interfaces.flatMap(({ id, stdout }) => (stdout.includes(` ${vip}/`) ? [id] : [])))
    },
    /** Ends the machine like a power failure. */
    endMachine: async (amphoraId: string) => {
      for (const { pid, isFirst } of await processesInside(namespaceOf(amphoraId))) if (isFirst) killIfThere(pid)
    },
    untilServing: () => balancers.untilServing(balancer, [one, two]),
    /** Runs an action while clients keep sending requests. @returns how many requests failed */
    during: async (t: Test, act: () => Promise<unknown>) => {
      const before = await show()
      const load = startClients(balancer.url)
      const lasting = await startLastingClients(balancer.url)
      await until('requests are answered', () => load.answered() > 20)
      const started = performance.now()
      await act()
      t.equal((await show()).provisioning_status, 'PENDING_UPDATE')
      await until('the load balancer is ACTIVE again', async () => (await show()).provisioning_status === 'ACTIVE')
      const took = Math.round(performance.now() - started)
      const then = load.answered()
      await until('requests are answered', () => load.answered() > then + 50)
      const { faults, longestMs, requests } = await load.stop()
      await lasting.stop()
      await until('the old amphora is removed after its last connection', async () =>
        (await amphorae()).every(({ status }) => status === 'ALLOCATED'),
      )
      t.comment(`${took} ms; ${requests} requests, ${faults.length} lost, longest pause ${longestMs} ms ${faults}`)
      for (const [kind, { answered, faults }] of Object.entries(lasting.tallies)) {
        t.same(faults, [], `${kind}: no connection is cut`)
        t.comment(`${kind}: ${answered} answers`)
      }
      t.ok(longestMs < BOUND_MS, `traffic flows: the longest pause was ${longestMs} ms`)
      const after = await show()
      t.same(
        [after.vip_address, after.vip_port_id],
        [before.vip_address, before.vip_port_id],
        'the VIP does not change',
      )
      return faults.length
    },
    /** Whether the amphora left no process, port or row. */
    isGone: async (id: string) => {
      const inside = await processesInside(namespaceOf(id)).catch(() => [])
      const ports = await databases.network('port').where({ device_id: id })
      return inside.length === 0 && ports.length === 0 && !(await amphorae()).some(amphora => amphora.id === id)
    },
    /** The database says that these amphorae cannot be upgraded in place. */
    forgetAgents: async (some: readonly Amphora[]) => {
      // Housekeeping, which would look again, thinks that it has just done so.
      const checkedAt = new Date(Date.now() + 3_600_000)
      const columns = { agent_bundle: null, agent_version: '0.0.9', checked_at: checkedAt }
      await databases.loadBalancer('amphora').whereIn('id', idsOf(some)).update(columns)
    },
    statistics: async () => {
      const { stats } = (await call('GET', `lbaas/pools/${balancer.poolId}/stats`)) as {
        stats: { total_connections: number; bytes_out: number }
      }
      return stats
    },
  }
}

/** Two clients. The kernel establishes connections for a busy machine, before TCP would send a lost packet again. */
const startClients = (url: string) => {
  const load = startRequests(url, { connectMs: 900, silentMs: BOUND_MS, restMs: 20 })
  // A test that fails before it stops them would never end.
  t.teardown(load.stop)
  return load
}

type Scene = Awaited<ReturnType<typeof createScene>>

/** Replaces the amphorae of load balancers with VIPs of both families while clients use each VIP. */
async function replaceUnderBothFamilies(t: Test, { both, call, amphoraeOf }: Scene, balancers: BothBalancer[]) {
  const old = await Promise.all(balancers.map(amphoraeOf))
  both.ask(balancers)
  for (const { id } of balancers) await call('PUT', `lbaas/loadbalancers/${id}/failover`)
  for (const balancer of balancers) await until('the load balancer is ACTIVE again', () => both.isActive(balancer))
  const pauses = balancers.flatMap(both.longestPauses)
  both.ask(balancers)
  await both.untilServing(balancers)
  t.comment(`longest pauses ${pauses} ms`)
  t.ok(
    pauses.every(pause => pause < BOUND_MS),
    `traffic flows by every VIP: the longest pauses were ${pauses} ms`,
  )
  for (const [at, balancer] of balancers.entries()) {
    t.same(await both.vipsShown(balancer), balancer.vips, 'the VIPs do not change')
    const now = idsOf(await amphoraeOf(balancer))
    t.notOk(idsOf(old[at]!).some(id => now.includes(id)))
  }
}

/** Kills the amphorae that hold VIPs of both families, and waits until each VIP serves again. */
async function killUnderBothFamilies(t: Test, { both, holdersOf, endMachine }: Scene) {
  for (const balancer of both.balancers) {
    let holder = ''
    await until('one amphora holds every VIP', async () => {
      const [ofFirst = [], ...ofOthers] = await holdersOf(balancer)
      holder = ofFirst[0] ?? ''
      return ofFirst.length === 1 && ofOthers.every(others => String(others) === holder)
    })
    await endMachine(holder)
  }
  both.ask(both.balancers)
  await both.untilServing(both.balancers)
  for (const balancer of both.balancers) t.same(await both.vipsShown(balancer), balancer.vips, 'the VIPs do not change')
}

/**
 * Routes a tenant machine's traffic to the management address through the amphora. @returns the SSH banner, or
 * an empty text
 */
async function sshThrough({ both: { namespace } }: Scene, { vrrp_ip: way, lb_network_ip: address }: Amphora) {
  await run('ip', ['-n', namespace, 'route', 'add', address, 'via', way], { timeout: 10_000 })
  const script = `read -r -t 0.5 banner </dev/tcp/${address}/22; echo "$banner"`
  const shell = ['netns', 'exec', namespace, 'timeout', '0.5', 'bash', '-c', script]
  return run('ip', shell, { timeout: 10_000 }).then(
    ({ stdout }) => stdout.trim(),
    () => '',
  )
}

/** Upgrades agents in place to one that differs from the controller's in a comment only. */
async function giveOtherAgents(krater: Krater, amphorae: readonly Amphora[]) {
  const keys = await loadKeys(keyFiles(loadConfiguration(krater.directory, krater.environment), krater.directory))
  const agents = new SshAgentConnections({ controllerKey: keys.controllerSsh.privateKey, log: quiet })
  const content = Buffer.from(`// another\n${readFileSync(join(import.meta.dirname, '../../dist/agent.js'))}`)
  const other = { sha256: createHash('sha256').update(content).digest('hex'), content }
  for (const { id, lb_network_ip: address } of amphorae) {
    await upgradeAgent(agents, agentTarget(keys.amphoraMaster, id, address), other, () => undefined)
  }
  await agents.stop()
}

function outputOf(child: ChildProcess) {
  let text = ''
  for (const stream of [child.stdout, child.stderr]) {
    stream?.setEncoding('utf8').on('data', piece => {
      text += piece
    })
  }
  return { output: () => text, ended: once(child, 'exit').then(([status]) => status as number | null) }
}

const idsOf = (amphorae: readonly Amphora[]) => amphorae.map(({ id }) => id).sort()

t.test('a single amphora', async t => {
  const krater = await startKrater(t, { KRATER_LOG_LEVEL: 'debug' })
  const scene = await createScene(t, krater)
  await t.test('is replaced by a new one without a failed request', async t => {
    const [old] = await scene.amphorae()
    const counted = await scene.statistics()
    const lost = await scene.during(t, () => scene.call('PUT', `lbaas/loadbalancers/${scene.balancer.id}/failover`))
    t.equal(lost, 0)
    const [now, ...more] = await scene.amphorae()
    t.same(more, [])
    t.match(now, { role: 'STANDALONE', status: 'ALLOCATED' })
    t.not(now?.id, old?.id)
    t.ok(await scene.isGone(old!.id), 'the old amphora leaves nothing behind')
    await scene.untilServing()
    await until('the counters continue', async () => {
      const { total_connections: total } = await scene.statistics()
      return total > counted.total_connections + 50
    })
  })
  await t.test('is replaced even when the worker dies during the failover', async t => {
    for (const amphoraeThere of [1, 2]) {
      const [old] = await scene.amphorae()
      await scene.during(t, async () => {
        await scene.call('PUT', `octavia/amphorae/${old!.id}/failover`)
        await until('the failover is in progress', async () => (await scene.amphorae()).length === amphoraeThere)
        krater.kill('worker')
      })
      const [now, ...more] = await scene.amphorae()
      t.same(more, [])
      t.not(now?.id, old?.id)
      t.ok(await scene.isGone(old!.id))
    }
  })
  await t.test('is configured again without a failed request', async t => {
    const [amphora] = await scene.amphorae()
    const load = startClients(scene.url)
    await scene.call('PUT', `octavia/amphorae/${amphora!.id}/config`)
    await until('requests are answered', () => load.answered() > 50)
    t.same((await load.stop()).faults, [])
    t.equal((await scene.show()).provisioning_status, 'ACTIVE')
    t.same(idsOf(await scene.amphorae()), [amphora!.id])
    const { amphora_stats: stats } = (await scene.call('GET', `octavia/amphorae/${amphora!.id}/stats`)) as {
      amphora_stats: { id: string; loadbalancer_id: string }[]
    }
    t.match(stats, [{ id: amphora!.id, loadbalancer_id: scene.balancer.id }])
  })
  await t.test('with IPv4 and IPv6 VIPs serves on each, even after a failover or a crash', async t => {
    const [amphora] = await scene.amphoraeOf(scene.both.balancers[0]!)
    t.equal(await sshThrough(scene, amphora!), '', 'the tenant cannot reach the management address')
    await replaceUnderBothFamilies(t, scene, scene.both.balancers)
    await killUnderBothFamilies(t, scene)
  })
})

t.test('a pair', async t => {
  const krater = await startKrater(t, {
    KRATER_LOAD_BALANCER_TOPOLOGY: 'ACTIVE_STANDBY',
    KRATER_LOG_LEVEL: 'debug',
    KRATER_HOUSEKEEPING_AGENT_UPGRADES: 'manual',
  })
  const scene = await createScene(t, krater)
  const holders = async () => {
    const held: string[] = []
    for (const { id } of await scene.amphorae()) {
      const { stdout } = await krater.command('amphora', 'show', id)
      if (/holds the VIP\s+true/.test(stdout)) held.push(id)
    }
    return held
  }
  await t.test('is replaced one amphora after the other', async t => {
    const old = await scene.amphorae()
    // VRRP runs over IPv6 when the first VIP is IPv6.
    const [, six] = scene.both.balancers
    await Promise.all([
      scene.during(t, () => scene.call('PUT', `lbaas/loadbalancers/${scene.balancer.id}/failover`)),
      replaceUnderBothFamilies(t, scene, [six!]),
    ])
    const now = await scene.amphorae()
    t.same(now.map(({ role }) => role).sort(), ['BACKUP', 'MASTER'])
    t.notOk(now.some(({ id }) => idsOf(old).includes(id)))
    for (const { id } of old) t.ok(await scene.isGone(id))
    await until('one amphora holds the VIP', async () => (await holders()).length === 1)
    await scene.untilServing()
  })
  await t.test('an amphora failover replaces only the named one, VIP holder or not', async t => {
    for (const which of ['other', 'holder']) {
      const [old, [holder]] = [await scene.amphorae(), await holders()]
      const named = old.find(({ id }) => (id === holder) === (which === 'holder'))
      const staying = old.find(({ id }) => id !== named?.id)
      await scene.during(t, () => scene.call('PUT', `octavia/amphorae/${named!.id}/failover`))
      const now = await scene.amphorae()
      t.equal(now.length, 2)
      t.ok(idsOf(now).includes(staying!.id), 'the other amphora stays')
      t.ok(await scene.isGone(named!.id))
      t.equal(now.find(({ id }) => id !== staying?.id)?.role, named?.role)
      await until('one amphora holds the VIP', async () => (await holders()).length === 1)
    }
  })
  await t.test('gets this version’s agent by a command, in place, without a failed request', async t => {
    await until('one amphora holds the VIP', async () => (await holders()).length === 1)
    const [holder, before] = [await holders(), await scene.amphorae()]
    await giveOtherAgents(krater, before)
    for (const { id } of before) await scene.call('PUT', `octavia/amphorae/${id}/config`)
    const upgrade = (...options: string[]) =>
      krater.command('amphora', 'upgrade', '--load-balancer', scene.balancer.id, ...options)
    await until('the controller knows them', async () => / 2 in place/.test((await upgrade('--dry-run')).stdout))
    t.match((await krater.command('status')).stdout, /have the agent of this version \(\w{8}\), 2 another one\. /)
    const [load, lasting] = [startClients(scene.url), await startLastingClients(scene.url)]
    const { status, stdout } = await upgrade('--at-once', '2')
    t.match(
      stdout,
      /upgraded in place in .* \(1 of 2\)(.|\n)*upgraded in place in .* \(2 of 2\)\n2 amphorae were upgraded/,
    )
    t.equal(status, 0)
    await lasting.stop()
    t.same((await load.stop()).faults, [])
    for (const [kind, { faults }] of Object.entries(lasting.tallies))
      t.same(faults, [], `${kind}: no connection is cut`)
    t.same([idsOf(await scene.amphorae()), await holders()], [idsOf(before), holder])
    t.match(await upgrade(), { status: 0, stdout: /^The agent is .* 0 to upgrade: .* 2 are current\.\n$/ })
  })
  await t.test('is replaced by a command where that is needed, which goes on after Ctrl-C and kill -9', async t => {
    const before = await scene.amphorae()
    await scene.forgetAgents(before)
    const words = ['amphora', 'upgrade', '--load-balancer', scene.balancer.id]
    const load = startClients(scene.url)
    const first = krater.start(...words)
    const { output, ended } = outputOf(first)
    await until('the first is being replaced', () => output().includes('is being replaced'))
    first.kill('SIGINT')
    t.equal(await ended, 130)
    t.match(output(), /Stopped\. 0 amphorae were upgraded\. Workers finish one that has begun\. 1 is left/)
    const left = async () => (await scene.amphorae()).filter(({ id }) => idsOf(before).includes(id))
    await until(
      'workers finish the one',
      async () => (await left()).length === 1 && (await scene.show()).provisioning_status === 'ACTIVE',
    )
    // They have asked the other one meanwhile, and may again before the command looks.
    const begin = async () => {
      for (let attempt = 0; attempt < 5; attempt++) {
        await scene.forgetAgents(await left())
        const child = krater.start(...words)
        const found = outputOf(child)
        await until('one is being replaced, or none has to be', () =>
          /is being replaced| 0 to upgrade/.test(found.output()),
        )
        if (found.output().includes('is being replaced')) return { child, ended: found.ended }
        await found.ended
      }
      throw new Error('The agent is always known before the command looks')
    }
    const second = await begin()
    second.child.kill('SIGKILL')
    await second.ended
    t.match(await krater.command(...words), { status: 0, stdout: /replaced in .* s \(\d of \d\)| 0 to upgrade/ })
    t.same((await load.stop()).faults, [])
    await until('both are replaced', async () => (await left()).length === 0)
    await until('one amphora holds the VIP', async () => (await holders()).length === 1)
  })
  await t.test('the new amphorae are a pair: when one dies, the other serves', async () => {
    const [holder] = await holders()
    await scene.endMachine(holder!)
    await until('the other amphora answers', async () => (await ask(scene.url))?.status === 200)
  })
  await t.test('when the holder dies, every IPv4 and IPv6 VIP moves to the other amphora', t =>
    killUnderBothFamilies(t, scene),
  )
})
