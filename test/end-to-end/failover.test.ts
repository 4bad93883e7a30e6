import { setTimeout as delay } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { ask } from '../../controller/cli/demo/traffic.js'
import { processesInside } from '../support/crash-amphora.js'
import { balancersOf } from '../support/crash-balancer.js'
import { openDatabases } from '../support/crash-inventory.js'
import { type Krater, startKrater, until } from '../support/krater.js'
import { createSites } from '../support/web-servers.js'

type Amphora = { id: string; role: string; status: string; vrrp_ip: string }
type Shown = { provisioning_status: string; vip_address: string; vip_port_id: string; fault?: { text: string } }

/** Longest time without an answer that a client may see, in milliseconds: a lost packet is sent again after one second. */
const BOUND_MS = 2_500

async function createScene(t: Test, krater: Krater) {
  const databases = openDatabases(t, krater)
  const { one, two } = await createSites(t, krater, ['one', 'two'])
  const [api, admin] = await Promise.all([krater.api(), krater.api('krater-admin')])
  const { subnets } = (await api.request('network', 'GET', '/v2.0/subnets?name=public-subnet')) as {
    subnets: { id: string }[]
  }
  const balancers = balancersOf(api, subnets[0]!.id)
  const balancer = await balancers.create('failover', [one, two])
  await balancers.untilServing(balancer, [one, two], 60)
  const call = (method: string, path: string) => admin.request('load-balancer', method, `/v2.0/${path}`)
  const show = async () =>
    ((await call('GET', `lbaas/loadbalancers/${balancer.id}`)) as { loadbalancer: Shown }).loadbalancer
  const amphorae = async () =>
    ((await call('GET', `octavia/amphorae?loadbalancer_id=${balancer.id}`)) as { amphorae: Amphora[] }).amphorae
  return {
    url: balancer.url,
    call,
    show,
    amphorae,
    balancer,
    untilServing: () => balancers.untilServing(balancer, [one, two], 30),
    /** One act, with clients that go on asking. @returns milliseconds that it took */
    during: async (t: Test, act: () => Promise<unknown>) => {
      const before = await show()
      const load = startClients(balancer.url)
      await until('requests are answered', () => load.answered() > 20)
      const started = performance.now()
      await act()
      t.equal((await show()).provisioning_status, 'PENDING_UPDATE')
      await until('ACTIVE again', async () => (await show()).provisioning_status === 'ACTIVE', 60)
      const took = Math.round(performance.now() - started)
      const then = load.answered()
      await until('requests are answered', () => load.answered() > then + 50)
      const { faults, longestMs, requests } = await load.stop()
      t.comment(`${took} ms; ${requests} requests, ${faults.length} lost, longest pause ${longestMs} ms ${faults}`)
      t.ok(longestMs < BOUND_MS, `traffic flows: the longest pause was ${longestMs} ms`)
      const after = await show()
      t.same([after.vip_address, after.vip_port_id], [before.vip_address, before.vip_port_id], 'the VIP stays')
      return faults.length
    },
    /** Every trace of an amphora is gone. */
    isGone: async (id: string) => {
      const inside = await processesInside(`krater-${krater.instance()}-${id}`).catch(() => [])
      const ports = await databases.network('port').where({ device_id: id })
      return inside.length === 0 && ports.length === 0 && !(await amphorae()).some(amphora => amphora.id === id)
    },
    statistics: async () => {
      const { stats } = (await call('GET', `lbaas/pools/${balancer.poolId}/stats`)) as {
        stats: { total_connections: number; bytes_out: number }
      }
      return stats
    },
  }
}

/** Two clients that ask again and again. */
function startClients(url: string) {
  const faults: string[] = []
  let answered = 0
  let longestMs = 0
  let running = true
  const client = async () => {
    let answeredAt = performance.now()
    while (running) {
      const reply = await ask(url)
      if (reply?.status !== 200) {
        faults.push(reply === null ? 'no answer' : `status ${reply.status}`)
        await delay(20)
        continue
      }
      answered += 1
      longestMs = Math.max(longestMs, Math.round(performance.now() - answeredAt))
      answeredAt = performance.now()
      await delay(5)
    }
  }
  const clients = Promise.all([client(), client()])
  return {
    answered: () => answered,
    stop: async () => {
      running = false
      await clients
      return { faults, longestMs, requests: answered + faults.length }
    },
  }
}

const idsOf = (amphorae: readonly Amphora[]) => amphorae.map(({ id }) => id).sort()

t.test('a single amphora', async t => {
  const krater = await startKrater(t, { KRATER_LOG_LEVEL: 'debug' })
  const scene = await createScene(t, krater)
  await t.test('is replaced by one with another id while clients go on asking', async t => {
    const [old] = await scene.amphorae()
    const counted = await scene.statistics()
    const lost = await scene.during(t, () => scene.call('PUT', `lbaas/loadbalancers/${scene.balancer.id}/failover`))
    t.ok(lost <= 4, `${lost} requests were under way when the VIP moved`)
    const [now, ...more] = await scene.amphorae()
    t.same(more, [])
    t.match(now, { role: 'STANDALONE', status: 'ALLOCATED' })
    t.not(now?.id, old?.id)
    t.ok(await scene.isGone(old!.id), 'nothing is left of the old one')
    await scene.untilServing()
    await until('counters go on from where they were', async () => {
      const { total_connections: total } = await scene.statistics()
      return total > counted.total_connections + 50
    })
  })
  await t.test('also when the worker dies in the middle of it', async t => {
    for (const milliseconds of [300, 1_500]) {
      const [old] = await scene.amphorae()
      await scene.during(t, async () => {
        await scene.call('PUT', `octavia/amphorae/${old!.id}/failover`)
        await delay(milliseconds)
        krater.kill('worker')
      })
      const [now, ...more] = await scene.amphorae()
      t.same(more, [])
      t.not(now?.id, old?.id)
      t.ok(await scene.isGone(old!.id))
    }
  })
  await t.test('gets its configuration anew, and nobody notices', async t => {
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
})

t.test('a pair', async t => {
  const krater = await startKrater(t, { KRATER_LOAD_BALANCER_TOPOLOGY: 'ACTIVE_STANDBY', KRATER_LOG_LEVEL: 'debug' })
  const scene = await createScene(t, krater)
  const holders = async () => {
    const held: string[] = []
    for (const { id } of await scene.amphorae()) {
      const { stdout } = await krater.command('amphora', 'show', id)
      if (/holds the VIP\s+true/.test(stdout)) held.push(id)
    }
    return held
  }
  await t.test('is replaced one after the other', async t => {
    const old = await scene.amphorae()
    await scene.during(t, () => scene.call('PUT', `lbaas/loadbalancers/${scene.balancer.id}/failover`))
    const now = await scene.amphorae()
    t.same(now.map(({ role }) => role).sort(), ['BACKUP', 'MASTER'])
    t.notOk(now.some(({ id }) => idsOf(old).includes(id)))
    for (const { id } of old) t.ok(await scene.isGone(id))
    await until('one holds the VIP', async () => (await holders()).length === 1)
    await scene.untilServing()
  })
  await t.test('of the two, the one that is named, whether it holds the VIP or not', async t => {
    for (const which of ['other', 'holder']) {
      const [old, [holder]] = [await scene.amphorae(), await holders()]
      const named = old.find(({ id }) => (id === holder) === (which === 'holder'))
      const staying = old.find(({ id }) => id !== named?.id)
      await scene.during(t, () => scene.call('PUT', `octavia/amphorae/${named!.id}/failover`))
      const now = await scene.amphorae()
      t.equal(now.length, 2)
      t.ok(idsOf(now).includes(staying!.id), 'the other one stays')
      t.ok(await scene.isGone(named!.id))
      t.equal(now.find(({ id }) => id !== staying?.id)?.role, named?.role)
      await until('one holds the VIP', async () => (await holders()).length === 1)
    }
  })
  await t.test('the new ones are a pair: when one dies the other serves', async () => {
    const [holder] = await holders()
    const inside = await processesInside(`krater-${krater.instance()}-${holder}`)
    for (const { pid, isFirst } of inside) if (isFirst) process.kill(pid, 'SIGKILL')
    await until('the other one answers', async () => (await ask(scene.url))?.status === 200, 10)
  })
})
