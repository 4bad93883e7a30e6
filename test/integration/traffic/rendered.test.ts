import { createHash, randomBytes } from 'node:crypto'
import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import { createServer, request } from 'node:http'
import { type AddressInfo, connect, createServer as createTcpServer } from 'node:net'
import t, { type Test } from 'tap'
import { joinCommands, planTransition } from '../../../amphora-agent/haproxy/plan-transition.js'
import { parseStat } from '../../../amphora-agent/haproxy/runtime/stat.js'
import { LOG_PORT } from '../../../amphora-agent/protocol/paths.js'
import type { PoolNode } from '../../../controller/load-balancer/tree/tree.js'
import { renderDesired } from '../../../controller/provider/amphora/rendering/desired.js'
import { aListener, aPool, aTree, someFacts, uuid } from '../../golden/models.js'
import { aLocalMember, ask, serveOptions } from '../../support/clients/options-traffic.js'
import { ownPorts } from '../../support/ports.js'
import { until } from '../../support/services/haproxy.js'

const BODY = randomBytes(8 * 1024 * 1024)

/** Gives the body to whoever gets it, and tells the hash of what it is sent. */
async function startMember(t: Test): Promise<number> {
  const server = createServer((incoming, outgoing) => {
    if (incoming.method === 'GET') return void outgoing.end(incoming.url === '/large' ? BODY : 'hello')
    const hash = createHash('sha256')
    incoming.on('data', piece => hash.update(piece)).on('end', () => outgoing.end(hash.digest('hex')))
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => {
    server.closeAllConnections()
    server.close()
  })
  return (server.address() as AddressInfo).port
}

/** @returns the body of the answer */
function transfer(port: number, method: 'GET' | 'PUT', body?: Buffer): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const outgoing = request({ port, host: '127.0.0.1', path: '/large', method, agent: false }, response => {
      const pieces: Buffer[] = []
      response.on('data', piece => pieces.push(piece)).on('error', reject)
      response.on('end', () => resolve(Buffer.concat(pieces)))
    })
    outgoing.setTimeout(20_000, () => outgoing.destroy(new Error('no answer within 20 s')))
    outgoing.on('error', reject).end(body)
  })
}

const httpAndTcp = (member: number) => ({
  listeners: [
    aListener(1, { defaultPoolId: uuid(3, 1) }),
    aListener(2, { protocol: 'TCP', defaultPoolId: uuid(3, 2) }),
  ],
  pools: [
    aPool(1, { members: [aLocalMember(1, member)] }),
    aPool(2, { protocol: 'TCP', members: [aLocalMember(2, member)] }),
  ],
})

t.test('large bodies pass through kernel pipes unchanged, both ways', async t => {
  const { port, command } = await serveOptions(t, httpAndTcp(await startMember(t)))
  const pipes = async () => {
    const info = await command('show info')
    return ['PipesUsed', 'PipesFree'].reduce(
      (sum, name) => sum + Number(new RegExp(`^${name}: (\\d+)$`, 'm').exec(info)?.[1]),
      0,
    )
  }
  for (const listener of [1, 2]) {
    t.ok((await transfer(port(listener), 'GET')).equals(BODY), `from a member, listener ${listener}`)
    const hash = createHash('sha256').update(BODY).digest('hex')
    t.equal((await transfer(port(listener), 'PUT', BODY)).toString(), hash, `to a member, listener ${listener}`)
  }
  t.ok((await pipes()) > 0, 'pipes were used')
})

t.test('an open connection is counted while it lives', async t => {
  // The end of HAProxy resets the connection that is still open.
  const echo = createTcpServer(socket => socket.on('error', () => {}).pipe(socket)).listen(0, '127.0.0.1')
  await once(echo, 'listening')
  const { port, command } = await serveOptions(t, httpAndTcp((echo.address() as AddressInfo).port))
  const client = connect(port(2), '127.0.0.1')
  t.teardown(() => {
    client.destroy()
    echo.close()
  })
  client.write('x'.repeat(10_000))
  const counted = async () =>
    parseStat(await command('show stat -1 1 -1')).find(({ name }) => name === uuid(2, 2))?.counters
  t.ok(await until(async () => (await counted())?.bytesIn === 10_000, 15_000))
  t.equal((await counted())?.activeConnections, 1, 'it is still open')
})

/** HAProxy's log lines, other tests' as well: the log port is fixed in an amphora. */
async function listenToLog(t: Test): Promise<string[]> {
  const lines: string[] = []
  const socket = createSocket('udp4').on('message', line => lines.push(line.toString().trim()))
  socket.bind(LOG_PORT, '127.0.0.1')
  await once(socket, 'listening')
  t.teardown(() => new Promise<void>(resolve => socket.close(() => resolve())))
  return lines
}

/** A listener that serves, and one whose member refuses connections; both with our format. */
async function serveGoodAndBad(t: Test, logRequests: boolean) {
  const [nobody = 0] = await ownPorts(1)
  const pool = (number: number, member: number): PoolNode => aPool(number, { members: [aLocalMember(number, member)] })
  const listeners = [1, 2].map(number => aListener(number, { defaultPoolId: uuid(3, number) }))
  const pools = [pool(1, await startMember(t)), pool(2, nobody)]
  return serveOptions(t, { listeners, pools, facts: { logRequests } })
}

t.test('only requests that end in an error are logged by default', async t => {
  const lines = await listenToLog(t)
  const { port } = await serveGoodAndBad(t, false)
  t.match(await ask(port(1), { path: '/well' }), { status: 200 })
  t.match(await ask(port(2), { path: '/amiss' }), { status: 503 })
  const requests = () => lines.filter(line => /GET \/(well|amiss) /.test(line))
  t.ok(await until(() => requests().length > 0, 5_000), 'the error came')
  t.same(requests().length, 1)
  const { projectId, id } = aTree()
  t.ok(requests()[0]?.includes(` ${projectId} ${id} ${uuid(2, 2)} 127.0.0.1 `), 'in the format of the API')
  t.match(requests()[0], /"GET \/amiss HTTP\/1\.1" 503 /)
})

t.test('all requests are logged when the operator enables it', async t => {
  const lines = await listenToLog(t)
  const { port } = await serveGoodAndBad(t, true)
  t.match(await ask(port(1), { path: '/found' }), { status: 200 })
  t.match(await ask(port(2), { path: '/lost' }), { status: 503 })
  t.ok(await until(() => lines.some(line => line.includes('GET /found')), 5_000), 'also the one without an error')
  t.ok(await until(() => lines.some(line => line.includes('GET /lost')), 5_000))
})

t.test('a member added at runtime keeps as many idle connections as a configured one', async t => {
  const member = await startMember(t)
  const listeners = [aListener(1, { defaultPoolId: uuid(3, 1) })]
  const { command } = await serveOptions(t, { listeners, pools: [aPool(1, { members: [aLocalMember(1, member)] })] })
  const part = (count: number) => {
    const members = Array.from({ length: count }, (_, index) => aLocalMember(index + 1, member))
    const { haproxy } = renderDesired(aTree({ listeners, pools: [aPool(1, { members })] }), someFacts())
    return haproxy
  }
  const facts = { running: true, hasOldWorkers: false, leaving: [], now: 0 }
  const plan = planTransition(part(1), part(2), facts)
  if (plan.kind !== 'runtime') return t.fail('it does not join at runtime')
  t.ok(plan.commands.length > 1)
  const lines = joinCommands(plan.commands)
  t.equal(lines.length, 1, 'one line for all commands')
  const answers = async () => {
    const said: string[] = []
    for (const { text } of lines) said.push((await command(text)).trimEnd())
    return said
  }
  const expected = lines.map(({ expect }) => expect)
  t.same(await answers(), expected)
  t.notSame(await answers(), expected, 'it cannot join again')
  const rows = (await command('show servers conn')).split('\n').filter(line => line.startsWith(uuid(3, 1)))
  t.equal(rows.length, 2)
  // bkname/svname bkid/svid addr port - purge_delay ... idle_lim
  const [file, joined] = rows.map(row => row.split(' ').slice(5))
  t.same(joined, file, 'delay of the purge, and the numbers of connections and their limits')
})

t.test('a listener’s connection limit changes at runtime', async t => {
  const member = await startMember(t)
  const pools = [aPool(1, { members: [aLocalMember(1, member)] })]
  const listeners = (connectionLimit: number) => [aListener(1, { defaultPoolId: uuid(3, 1), connectionLimit })]
  const { command } = await serveOptions(t, { listeners: listeners(-1), pools })
  const part = (limit: number) => renderDesired(aTree({ listeners: listeners(limit), pools }), someFacts()).haproxy
  const limitNow = async () => {
    const [head = '', row = ''] = (await command(`show stat ${uuid(2, 1)} 1 -1`)).split('\n')
    return Number(row.split(',')[head.split(',').indexOf('slim')])
  }
  const before = await limitNow()
  t.ok(before > 1_000)
  for (const [from, to, limit] of [
    [-1, 3, 3],
    [3, -1, before],
  ] as const) {
    const plan = planTransition(part(from), part(to), { running: true, hasOldWorkers: false, leaving: [], now: 0 })
    if (plan.kind !== 'runtime') return t.fail('it needs a reload')
    for (const { text, expect } of joinCommands(plan.commands)) t.equal((await command(text)).trimEnd(), expect)
    t.equal(await limitNow(), limit)
  }
})
