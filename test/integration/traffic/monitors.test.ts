import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { createServer as createHttpsServer } from 'node:https'
import { type AddressInfo, createServer as createTcpServer, type Server } from 'node:net'
import type { TLSSocket } from 'node:tls'
import t from 'tap'
import {
  completeChecks,
  parseFailedChecks,
  type ReadCheck,
  SHOW_ALL,
} from '../../../amphora-agent/haproxy/runtime/stat.js'
import { checkText } from '../../../controller/health-manager/operating/check-words.js'
import type { HealthMonitorNode, MemberNode, PoolProtocol } from '../../../controller/load-balancer/tree/tree.js'
import { aListener, aMonitor, aPool, uuid } from '../../golden/models.js'
import { aLocalMember, ask, namesOf, serveOptions } from '../../support/clients/options-traffic.js'
import { ownPorts } from '../../support/ports.js'
import { until } from '../../support/services/haproxy.js'
import { selfSigned, startTellingMember } from '../../support/services/telling-member.js'

type Check = { at: number; line: string; host: string; serverName: string }

/** The checks by the name in their path, as `/name` or `/name?x`. */
const checks = new Map<string, Check[]>()
/** The status to answer by the same name, if it is not 200. */
const statuses = new Map<string, number>()

function answer(request: IncomingMessage, name: string): number {
  const { method, url, httpVersion, headers, socket } = request
  const serverName = 'servername' in socket ? String((socket as TLSSocket).servername) : ''
  const check = {
    at: performance.now(),
    line: `${method} ${url} HTTP/${httpVersion}`,
    host: headers.host ?? '',
    serverName,
  }
  checks.set(name, [...(checks.get(name) ?? []), check])
  return statuses.get(name) ?? (method === 'POST' ? 405 : 200)
}

const nameIn = (url = '') => /^\/([\w-]+)/.exec(url)?.[1] ?? ''
const handle = (request: IncomingMessage, response: ServerResponse) => {
  const name = nameIn(request.url)
  const status = answer(request, name)
  const delay = name.startsWith('slow') ? 1_500 : 0
  // HAProxy shows the words of a member's response in its statistics.
  setTimeout(() => response.writeHead(status, 'It "works", DOWN,L4CON').end(), delay)
}
const listen = async (server: Server, host: string): Promise<number> => {
  await new Promise<void>(resolve => server.listen(0, host, resolve))
  t.teardown(() => {
    if ('closeAllConnections' in server) (server as ReturnType<typeof createServer>).closeAllConnections()
    return new Promise(resolve => server.close(resolve))
  })
  return (server.address() as AddressInfo).port
}

const plain = await listen(createServer(handle), '127.0.0.1')
const plain6 = await listen(createServer(handle), '::1')
const secured = await listen(createHttpsServer(selfSigned(), handle), '127.0.0.1')
const mute = await listen(
  createTcpServer(socket => socket.on('error', () => socket.destroy()).resume()),
  '127.0.0.1',
)
const [closed = 0] = await ownPorts(1)
const member = await startTellingMember(t, 'member')
const spare = await startTellingMember(t, 'spare')

type Story = {
  name: string
  port: number
  monitor: Partial<HealthMonitorNode>
  member?: Partial<MemberNode>
  protocol?: PoolProtocol
  isUp: boolean
  /** Why it is down. */
  why?: string
}

const to = (name: string, change: Partial<HealthMonitorNode> = {}) => ({ urlPath: `/${name}`, ...change })
const domain = { httpVersion: 1.1, domainName: 'www.example.org' }
const stories: Story[] = [
  { name: 'http', port: plain, monitor: to('http'), isUp: true },
  {
    name: 'other-code',
    port: plain,
    monitor: to('other-code', { expectedCodes: '204' }),
    isUp: false,
    why: 'Layer7 wrong status: HTTP 200',
  },
  { name: 'code-in-list', port: plain, monitor: to('code-in-list', { expectedCodes: '204, 200' }), isUp: true },
  { name: 'code-in-range', port: plain, monitor: to('code-in-range', { expectedCodes: '199-299' }), isUp: true },
  {
    name: 'code-outside',
    port: plain,
    monitor: to('code-outside', { expectedCodes: '201-299' }),
    isUp: false,
    why: 'Layer7 wrong status: HTTP 200',
  },
  {
    name: 'method',
    port: plain,
    monitor: to('method', { httpMethod: 'POST' }),
    isUp: false,
    why: 'Layer7 wrong status: HTTP 405',
  },
  {
    name: 'method-desired',
    port: plain,
    monitor: to('method-desired', { httpMethod: 'POST', expectedCodes: '405' }),
    isUp: true,
  },
  { name: 'version', port: plain, monitor: to('version', domain), isUp: true },
  {
    name: 'http-to-nobody',
    port: closed,
    monitor: to('http-to-nobody'),
    isUp: false,
    why: 'Layer4 connection problem: Connection refused',
  },
  { name: 'slow', port: plain, monitor: to('slow', { timeout: 1 }), isUp: false, why: 'Layer7 timeout' },
  { name: 'slow-patient', port: plain, monitor: to('slow-patient', { timeout: 4 }), isUp: true },
  { name: 'https', port: secured, monitor: to('https', { type: 'HTTPS', ...domain }), isUp: true, protocol: 'HTTPS' },
  {
    name: 'https-other-code',
    port: secured,
    monitor: to('https-other-code', { type: 'HTTPS', expectedCodes: '204' }),
    isUp: false,
    why: 'Layer7 wrong status: HTTP 200',
  },
  {
    name: 'https-to-plain',
    port: plain,
    monitor: to('https-to-plain', { type: 'HTTPS' }),
    isUp: false,
    why: 'Layer6 invalid response: SSL handshake failure',
  },
  { name: 'tcp', port: mute, monitor: { type: 'TCP' }, isUp: true, protocol: 'TCP' },
  {
    name: 'tcp-to-nobody',
    port: closed,
    monitor: { type: 'TCP' },
    isUp: false,
    why: 'Layer4 connection problem: Connection refused',
  },
  { name: 'hello', port: secured, monitor: { type: 'TLS-HELLO' }, isUp: true, protocol: 'HTTPS' },
  {
    name: 'hello-to-plain',
    port: plain,
    monitor: { type: 'TLS-HELLO' },
    isUp: false,
    why: 'Layer6 invalid response: SSL handshake failure',
  },
  { name: 'hello-to-mute', port: mute, monitor: { type: 'TLS-HELLO', timeout: 1 }, isUp: false, why: 'Layer6 timeout' },
  { name: 'monitor-port', port: closed, member: { monitorPort: plain }, monitor: to('monitor-port'), isUp: true },
  {
    name: 'monitor-address',
    port: closed,
    member: { monitorAddress: '::1', monitorPort: plain6 },
    monitor: to('monitor-address'),
    isUp: true,
  },
  {
    name: 'monitor-port-dead',
    port: plain,
    member: { monitorPort: closed },
    monitor: to('monitor-port-dead'),
    isUp: false,
    why: 'Layer4 connection problem: Connection refused',
  },
  { name: 'disabled', port: closed, monitor: to('disabled', { adminStateUp: false }), isUp: true },
  { name: 'proxied', port: member.port, monitor: to('proxied'), isUp: true, protocol: 'PROXYV2' },
  {
    name: 'proxied-to-plain',
    port: plain,
    monitor: to('proxied-to-plain'),
    isUp: false,
    why: 'Layer7 wrong status: HTTP 400',
    protocol: 'PROXY',
  },
  {
    name: 'proxied-elsewhere',
    port: closed,
    member: { monitorPort: plain },
    monitor: to('proxied-elsewhere'),
    isUp: true,
    protocol: 'PROXY',
  },
  { name: 'often', port: plain, monitor: to('often', { delay: 1 }), isUp: true },
  { name: 'seldom', port: plain, monitor: to('seldom', { delay: 30 }), isUp: true },
  { name: 'hasty', port: plain, monitor: to('hasty', { maxRetriesDown: 1, maxRetries: 1 }), isUp: true },
  { name: 'calm', port: plain, monitor: to('calm', { maxRetriesDown: 3, maxRetries: 3 }), isUp: true },
]

const { port, command } = await serveOptions(t, {
  listeners: stories.map(({ protocol }, index) =>
    aListener(index + 1, {
      defaultPoolId: uuid(3, index + 1),
      protocol: protocol === 'HTTPS' || protocol === 'TCP' ? protocol : 'HTTP',
    }),
  ),
  pools: stories.map((story, index) =>
    aPool(index + 1, {
      protocol: story.protocol ?? 'HTTP',
      healthMonitor: aMonitor(index + 1, { delay: 1, timeout: 3, maxRetries: 1, maxRetriesDown: 1, ...story.monitor }),
      members: [aLocalMember(index + 1, story.port, story.member)],
    }),
  ),
})

const numberOf = (name: string) => stories.findIndex(story => story.name === name) + 1

/** Whether each member is up, by the name of its story. */
async function standing(): Promise<Map<string, boolean>> {
  const rows = (await command('show servers state')).split('\n').map(row => row.split(' '))
  const states = new Map(rows.map(row => [row[3], row[5] === '2']))
  return new Map(stories.map(({ name }, index) => [name, states.get(uuid(4, index + 1)) ?? false]))
}

t.test('members are up or down as their monitors report', async t => {
  const desired = stories.map(({ name, isUp }) => `${name} ${isUp}`)
  const found = async () => [...(await standing())].map(([name, isUp]) => `${name} ${isUp}`)
  const allChecked = () =>
    ['http', 'slow-patient', 'https', 'monitor-address', 'proxied-elsewhere'].every(name => checks.has(name))
  await until(async () => allChecked() && (await found()).join() === desired.join(), 20_000)
  t.same(await found(), desired)
  t.notOk(checks.has('disabled'))
})

t.test('each member that is down says why', async t => {
  let failed: ReadonlyMap<string, ReadCheck> = new Map()
  const found = async () => {
    failed = completeChecks(failed, parseFailedChecks(await command(SHOW_ALL)))
    const paths = [...failed.keys()]
    return stories.flatMap(({ name }, index) => {
      const path = paths.find(each => each.endsWith(`/${uuid(4, index + 1)}`))
      return path === undefined ? [] : [`${name}: ${checkText(failed.get(path)?.check)}`]
    })
  }
  const desired = stories.flatMap(({ name, why }) => (why === undefined ? [] : [`${name}: ${why}`]))
  await until(async () => (await found()).join() === desired.join(), 10_000)
  t.strictSame(await found(), desired)
  t.strictSame(
    stories.filter(({ isUp, why }) => isUp === (why !== undefined)),
    [],
  )
})

t.test('checks are sent as the monitor configures them', async t => {
  t.match(checks.get('http')?.[0], { line: 'GET /http HTTP/1.0', host: '' })
  t.match(checks.get('method')?.[0], { line: 'POST /method HTTP/1.0' })
  t.match(checks.get('version')?.[0], { line: 'GET /version HTTP/1.1', host: 'www.example.org' })
  t.match(checks.get('https')?.[0], { host: 'www.example.org', serverName: 'www.example.org' })
})

t.test('traffic follows the monitors’ results', async t => {
  t.match(await ask(port(numberOf('http'))), { status: 200 })
  t.match(await ask(port(numberOf('other-code'))), { status: 503 }, 'the member runs but gets no traffic')
  t.match(await ask(port(numberOf('proxied'))), { told: { name: 'member', proxy: /^v2 127/ } })
  const pools = [
    aPool(1, { members: [aLocalMember(1, member.port, { monitorPort: closed }), aLocalMember(2, spare.port)] }),
    aPool(2, {
      members: [aLocalMember(1, member.port, { monitorPort: closed }), aLocalMember(2, spare.port, { backup: true })],
    }),
    aPool(3, { members: [aLocalMember(1, member.port, { monitorPort: closed }), aLocalMember(2, spare.port)] }),
  ]
  const balancer = await serveOptions(t, {
    listeners: [1, 2, 3].map(number => aListener(number, { defaultPoolId: uuid(3, number) })),
    pools: pools.map((pool, index) => ({
      ...pool,
      healthMonitor: aMonitor(index + 1, { type: 'TCP', delay: 1, maxRetriesDown: 1, adminStateUp: index < 2 }),
    })),
  })
  for (const number of [1, 2]) {
    const seen = async () => new Set(await namesOf(balancer.port(number), 4))
    t.ok(await until(async () => [...(await seen())].join() === 'spare', 8_000), 'the dead member gets no traffic')
  }
  t.equal(new Set(await namesOf(balancer.port(3), 4)).size, 2, 'a disabled monitor excludes no member')
})

t.test('delay is the time between checks', async t => {
  const times = () => checks.get('often') ?? []
  await until(() => times().length >= 5, 10_000)
  const [first, ...others] = times()
  const average = ((others.at(-1)?.at ?? 0) - (first?.at ?? 0)) / others.length
  t.ok(average > 900 && average < 1_600, `${average} ms`)
  t.ok((checks.get('seldom')?.length ?? 0) <= 1)
})

t.test('max_retries_down failures take a member down, max_retries successes bring it up', async t => {
  const turn = async (name: string, status: number, isUp: boolean) => {
    const before = checks.get(name)?.length ?? 0
    statuses.set(name, status)
    t.ok(await until(async () => (await standing()).get(name) === isUp, 15_000), `${name} ${isUp ? 'up' : 'down'}`)
    return (checks.get(name)?.length ?? 0) - before
  }
  const [hasty, calm] = await Promise.all([turn('hasty', 500, false), turn('calm', 500, false)])
  t.same([hasty, calm], [1, 3])
  const [hastyUp, calmUp] = await Promise.all([turn('hasty', 200, true), turn('calm', 200, true)])
  t.same([hastyUp, calmUp], [1, 3])
})
