import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { readCloud } from '../../controller/cli/api-client.js'
import { createMember, type Member } from '../support/services/members.js'
import { type Krater, startKrater, until } from '../support/worlds/krater.js'

const program = join(dirname(dirname(dirname(fileURLToPath(import.meta.url)))), 'dist/krater.js')

const SERVER = `const net = require('node:net')
const answers = { 8081: 'HTTP/1.1 503 Go "away", DOWN\\r\\nContent-Length: 0\\r\\n\\r\\n', 8083: 'not HTTP\\r\\n\\r\\n' }
const listen = port => new Promise(resolve => net.createServer(socket => {
  socket.on('error', () => socket.destroy())
  socket.once('data', () => answers[port] && socket.end(answers[port]))
}).listen(port, resolve))
Promise.all([8081, 8082, 8083].map(listen)).then(() => console.log('listening'))`

/** Servers beside a member's own: one answers 503, one never answers, one does not speak HTTP. */
async function startBadServers(namespace: string): Promise<() => Promise<void>> {
  const child = spawn('ip', ['netns', 'exec', namespace, process.execPath, '-e', SERVER], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  await once(child.stdout, 'data')
  return async () => {
    const ended = once(child, 'exit')
    child.kill('SIGKILL')
    await ended
  }
}

type Reason = { text: string; since: string } | null
type Shown = { id: string; operating_status: string; operating_reason: Reason; protocol_port: number }
type Listing = {
  members: Shown[]
  pools: Shown[]
  events: { kind: string; object_id: string; status_change: object }[]
}

/** A load balancer whose members are reached on these ports of one address. */
async function createBalancer(krater: Krater, member: Member, ports: readonly number[]) {
  const api = await krater.api()
  const get = async <T>(path: string) => (await api.request('load-balancer', 'GET', `/v2/lbaas/${path}`)) as T
  const subnetId = async (name: string) => {
    const { subnets } = (await api.request('network', 'GET', `/v2.0/subnets?name=${name}`)) as {
      subnets: { id: string }[]
    }
    return subnets[0]?.id
  }
  const privateSubnet = await subnetId('private-subnet')
  const monitor = { type: 'HTTP', delay: 1, timeout: 1, max_retries: 1, max_retries_down: 1, url_path: '/' }
  const members = ports.map(port => ({ address: member.address, protocol_port: port, subnet_id: privateSubnet }))
  const { loadbalancer } = (await api.request('load-balancer', 'POST', '/v2/lbaas/loadbalancers', {
    loadbalancer: {
      ...{ name: 'web', vip_subnet_id: await subnetId('public-subnet') },
      pools: [{ name: 'app', protocol: 'HTTP', lb_algorithm: 'ROUND_ROBIN', members, healthmonitor: monitor }],
      listeners: [{ protocol: 'HTTP', protocol_port: 80, default_pool: { name: 'app' } }],
    },
  })) as { loadbalancer: { id: string; pools: { id: string }[] } }
  return { id: loadbalancer.id, poolId: loadbalancer.pools[0]?.id ?? '', get, api }
}

/** `krater explain` as a tenant: with the variables of an openrc file, and without any file of the instance. */
async function asTenant(krater: Krater) {
  const { auth } = readCloud(krater.directory, 'krater')
  const variables = Object.entries(auth).map(([key, value]) => [`OS_${key.toUpperCase()}`, value])
  const env = {
    PATH: process.env.PATH,
    KRATER_STATE_DIR: '/nonexistent',
    HOME: '/nonexistent',
    ...Object.fromEntries(variables),
  }
  return (...args: string[]) =>
    new Promise<{ status: number; text: string; error: string }>(resolve => {
      execFile(process.execPath, [program, 'explain', ...args], { env, timeout: 60_000 }, (error, text, stderr) =>
        resolve({ status: error === null ? 0 : Number(error.code ?? -1), text, error: stderr }),
      )
    })
}

t.test('a tenant learns why members are down, from the API and from krater explain', async t => {
  const krater = await startKrater(t)
  const member = await createMember(t, krater, 'app')
  const stop = await startBadServers(member.namespace)
  t.teardown(stop)
  const explain = await asTenant(krater)
  const ports = [8080, 8081, 8082, 8083, 8099]
  const { id, poolId, get, api } = await createBalancer(krater, member, ports)
  const members = async () => (await get<Listing>(`pools/${poolId}/members`)).members
  const reasons = async () =>
    (await members())
      .map(({ protocol_port: port, operating_reason: reason }) => `${port} ${reason?.text ?? 'well'}`)
      .sort()
  const wanted = [
    '8080 well',
    '8081 Layer7 wrong status: HTTP 503',
    '8082 Layer7 timeout',
    '8083 Layer7 invalid response',
    '8099 Layer4 connection problem: Connection refused',
  ]
  await until('every member says why it is down', async () => (await reasons()).join() === wanted.join())

  await t.test('the pool and the tree say it too', async t => {
    const [pool] = (await get<Listing>(`pools?id=${poolId}`)).pools
    t.match(pool, { operating_status: 'DEGRADED', operating_reason: { text: /^4 of 5 members are down: / } })
    const tree = JSON.stringify(await get(`loadbalancers/${id}/status`))
    t.match(tree, /"operating_reason" ?: ?\{"text" ?: ?"Pool [0-9a-f-]{36}: 4 of 5 members are down/)
    const { events } = await get<Listing>(`loadbalancers/${id}/events?kind=status_changed`)
    const [down] = (await members()).filter(({ protocol_port: port }) => port === 8099)
    t.match(
      events.find(event => event.object_id === down?.id),
      { status_change: { to: 'ERROR', reason: 'Layer4 connection problem: Connection refused' } },
    )
  })

  await t.test('krater explain names the first cause and what to do', async t => {
    const whole = await explain('web')
    t.equal(whole.status, 1, whole.error)
    t.match(whole.text, /^load balancer web \([0-9a-f-]{36}\): DEGRADED since /)
    t.match(whole.text, /First cause: .*\nWhat to do: /)
    const [refused] = (await members()).filter(({ protocol_port: port }) => port === 8099)
    const one = await explain(refused?.id ?? '')
    t.equal(one.status, 1)
    t.match(one.text, `First cause: nothing listens on ${member.address}:8099, as seen from the amphora.`)
    const unknown = await explain('no-such-name')
    t.match(unknown, { status: 2, error: /no load balancer/ })
  })

  await t.test('the openstack command shows such a member', async t => {
    const [first] = await members()
    t.match(await krater.openstack(['loadbalancer', 'member', 'show', poolId, first?.id ?? '', '-f', 'json']), {
      id: first?.id,
    })
  })

  await t.test('once all is well, nothing is left to explain', async t => {
    for (const { id: memberId, protocol_port: port } of await members()) {
      if (port === 8080) continue
      await api.request('load-balancer', 'DELETE', `/v2/lbaas/pools/${poolId}/members/${memberId}`)
    }
    await until('the load balancer is well', async () => (await explain(id)).status === 0)
    const { text } = await explain(id)
    t.match(text, /All is well with the load balancer\./)
    t.same(await reasons(), ['8080 well'])
  })
})
