import { EventEmitter, once } from 'node:events'
import { readFileSync } from 'node:fs'
import { createConnection } from 'node:net'
import type Koa from 'koa'
import t, { type Test } from 'tap'
import { createApplication } from '../../../controller/http/application.js'
import { readBytes } from '../../../controller/http/body.js'
import { type ConnectionLimits, connectionsWithinFiles } from '../../../controller/http/connections.js'
import { ApiError, FloodError } from '../../../controller/http/errors.js'
import { createPublicBase } from '../../../controller/http/public-base.js'
import { startServer } from '../../../controller/http/server.js'
import { createClientAddress, sourceOf } from '../../../controller/http/trusted-proxies.js'
import { createTurns } from '../../../controller/http/turns.js'
import { createQueues } from '../../../controller/process/in-turn.js'
import { eachInSlices } from '../../../controller/process/slices.js'
import { keepingTurn, outsideTurn } from '../../../controller/process/turn.js'
import { requestAsWritten } from '../../support/clients/raw-request.js'
import { recordLog } from '../../support/recorded-log.js'

/** A server that answers with `handle`, and its log. */
async function serve(t: Test, handle: Koa.Middleware, limits?: Partial<ConnectionLimits>) {
  const recorded = recordLog()
  const app = createApplication({ name: 'test', log: recorded.log, presentFault: fault => fault })
  app.use(handle)
  const options =
    limits === undefined
      ? undefined
      : { limits: { max: 1000, maxPerSource: 1000, trustedProxies: [], ...limits }, log: recorded.log }
  const server = await startServer(app, { host: '127.0.0.1', port: 0 }, options)
  t.teardown(server.stop)
  return { ...recorded, url: server.url, port: Number(new URL(server.url).port) }
}

t.test('a request line whose URL has no path is 400', async t => {
  const { url } = await serve(t, ctx => {
    ctx.body = ctx.path
  })
  for (const target of ['foo://h', 'http://']) {
    t.match(await requestAsWritten(url, [`GET ${target} HTTP/1.1`]), /^HTTP\/1\.1 400 [\s\S]*has no path/, target)
  }
  t.match(await requestAsWritten(url, ['GET http://h/a?b HTTP/1.1']), /^HTTP\/1\.1 200 [\s\S]*\r\n\/a$/)
})

t.test('a client that disconnects in the middle of its body causes no error in the log', async t => {
  const { port, line, lines } = await serve(t, async ctx => {
    ctx.body = await readBytes(ctx, 1000)
  })
  const socket = createConnection({ host: '127.0.0.1', port })
  socket.write('POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nbegun', () => socket.destroy())
  t.match(await line('request'), { status: 400 })
  t.same(
    lines.filter(({ level }) => level >= 50),
    [],
  )
})

t.test('a malformed request does not break into an answer that has begun', async t => {
  const { port, lines } = await serve(t, ctx => {
    ctx.respond = false
    ctx.res.writeHead(200, { 'Content-Length': 10 })
    ctx.res.write('begun')
  })
  const socket = createConnection({ host: '127.0.0.1', port })
  const received: string[] = []
  socket.on('data', data => received.push(String(data)))
  socket.on('error', () => undefined)
  socket.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n')
  await once(socket, 'data')
  socket.write('nonsense\r\n\r\n')
  await once(socket, 'close')
  t.match(received.join(''), /\r\n\r\nbegun$/)
  t.same(
    lines.filter(({ level }) => level >= 40),
    [],
  )
})

t.test('an endless chunked body is 413 once it is too large', async t => {
  const { port } = await serve(t, async ctx => {
    ctx.body = await readBytes(ctx, 1000)
  })
  const socket = createConnection({ host: '127.0.0.1', port })
  t.teardown(() => socket.destroy())
  socket.write(`POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n7d0\r\n${'a'.repeat(2000)}\r\n`)
  const [answer] = await new Promise<[string]>((resolve, reject) => {
    socket.once('data', data => resolve([String(data)]))
    socket.once('error', reject)
    socket.once('close', () => reject(new Error('There was no answer')))
  })
  t.match(answer, /^HTTP\/1\.1 413 [\s\S]*connection: close/i)
})

t.test('chunks of any size are one body, but not thousands of tiny ones', async t => {
  const { port } = await serve(t, async ctx => {
    const { length } = await readBytes(ctx, 100_000)
    ctx.body = `${length} bytes`
  })
  const post = async (count: number, size: number) => {
    const socket = createConnection({ host: '127.0.0.1', port })
    socket.on('error', () => undefined)
    const chunks = `${size.toString(16)}\r\n${'a'.repeat(size)}\r\n`.repeat(count)
    socket.write(`POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n${chunks}0\r\n\r\n`)
    const [answer] = await once(socket, 'data')
    socket.destroy()
    return String(answer)
  }
  for (const [count, size] of [
    [1, 3],
    [4000, 1],
    [4500, 20],
    [2, 40_000],
  ] as const)
    t.match(await post(count, size), `\r\n\r\n${count * size} bytes`)
  t.match(await post(5000, 1), /^HTTP\/1\.1 400 .*connection: close.*too many small chunks/is)
})

t.test('the client’s address comes from X-Forwarded-For only behind trusted proxies', async t => {
  const asked = async (trusted: string[], forwarded?: string) => {
    const addressOf = createClientAddress(trusted)
    const { url } = await serve(t, ctx => {
      ctx.body = `<${addressOf(ctx)}>`
    })
    const headers = forwarded === undefined ? [] : [`X-Forwarded-For: ${forwarded}`]
    return /<.*>$/.exec(await requestAsWritten(url, ['GET / HTTP/1.1', ...headers]))?.[0]
  }
  const trusted = ['127.0.0.0/8', '2001:db8::/64']
  t.equal(await asked([]), '<127.0.0.1>')
  t.equal(await asked([], '192.0.2.1'), '<127.0.0.1>', 'an untrusted client’s header is ignored')
  t.equal(await asked(trusted), '<127.0.0.1>')
  t.equal(await asked(trusted, '192.0.2.1'), '<192.0.2.1>')
  t.equal(await asked(trusted, '10.9.9.9, 192.0.2.1'), '<192.0.2.1>', 'earlier entries may be forged')
  t.equal(await asked(trusted, '192.0.2.1, 2001:db8::7, ::ffff:127.0.0.9'), '<192.0.2.1>', 'through several proxies')
  t.equal(await asked(trusted, '127.0.0.7'), '<127.0.0.7>', 'the client is a proxy itself')
  t.equal(await asked(trusted, '192.0.2.1, nonsense'), '<127.0.0.1>')
})

t.test('a request has at most one Host header, with a valid host', async t => {
  const base = createPublicBase({ publicUrl: undefined, trustedProxies: [] })
  const { url } = await serve(t, ctx => {
    ctx.body = `<${base(ctx, '')}>`
  })
  const asked = (...hosts: string[]) => requestAsWritten(url, ['GET / HTTP/1.1', ...hosts.map(host => `Host: ${host}`)])
  for (const host of ['api.example:9876', '[2001:db8::1]:80', 'a_b-c.d']) {
    t.match(await asked(host), `<http://${host}>`, host)
  }
  t.match(await asked('127.0.0.1', 'evil.example'), /^HTTP\/1\.1 400 [\s\S]*several Host headers/)
  t.match(await asked('a', 'a'), /^HTTP\/1\.1 400 /)
  const forged = [
    'evil.example/path',
    'a"onload="x',
    'user@evil.example',
    'a, b',
    'a b',
    'a:80:80',
    '[::1',
    '<b>',
    'a?b',
  ]
  for (const host of forged) {
    t.match(await asked(host), /^HTTP\/1\.1 400 [\s\S]*Host header is not valid/, host)
  }
  t.match(
    await requestAsWritten(url, ['GET / HTTP/1.0', 'Host: ']),
    `<${url}>`,
    'without a Host header, the local address',
  )
})

t.test('refusals are logged without a stack, and a flood of them on one line', async t => {
  const refusals: Record<string, () => Error> = {
    '/501': () => new ApiError(501, 'not built'),
    '/503': () => new ApiError(503, 'later'),
    '/away': () => Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' }),
    '/429': () => new FloodError(429, 'Too many.', 'logins from 192.0.2.1', 7),
    '/bug': () => new TypeError('a bug'),
  }
  const { url, lines, line } = await serve(t, ctx => {
    throw refusals[ctx.path]?.() ?? new ApiError(Number(ctx.path.slice(1)), 'refused')
  })
  const get = (path: string) => requestAsWritten(url, [`GET ${path} HTTP/1.1`])
  await Promise.all(Array.from({ length: 50 }, () => Promise.all(['/503', '/away', '/429'].map(get))))
  t.match(await get('/429'), /^HTTP\/1\.1 429 Too Many Requests\r\n[\s\S]*retry-after: 7\r\n/i)
  for (const path of ['/400', '/403', '/404', '/409', '/422', '/501']) await get(path)
  t.same(
    lines.filter(({ path }) => /^\/(4(?!29)|501)/.test(String(path))).map(({ path, level, err }) => [path, level, err]),
    ['/400', '/403', '/404', '/409', '/422', '/501'].map(path => [path, 30, undefined]),
    'a refusal has one line, of the level info',
  )
  t.same(
    lines.filter(({ level }) => level >= 40).map(({ level, msg, err }) => [level, msg, err]),
    [
      [40, 'later', undefined],
      [40, 'The database cannot be reached (connect ECONNREFUSED)', undefined],
      [40, 'logins from 192.0.2.1: Too many.', undefined],
    ],
  )
  t.equal(lines.filter(({ path }) => path === '/429').length, 0, 'the access log has no refusals')
  await get('/bug')
  t.match(await line('request', ({ path }) => path === '/bug'), { status: 500 })
  t.match(
    lines.find(({ level }) => level === 50),
    { err: { stack: /a bug/ } },
    'an unexpected error has its stack',
  )
})

/** A connection from a loopback address; each address counts as a separate source. */
async function connectFrom(t: Test, port: number, localAddress: string) {
  const socket = createConnection({ host: '127.0.0.1', port, localAddress })
  t.teardown(() => socket.destroy())
  const received: string[] = []
  socket.on('data', data => received.push(String(data)))
  socket.on('error', () => undefined)
  const closed = once(socket, 'close')
  await once(socket, 'connect')
  const ask = async () => {
    const answer = once(socket, 'data')
    socket.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n')
    return String((await answer)[0]).slice(0, 12)
  }
  return { socket, received, closed, ask }
}

t.test('idle connections are closed first, from the source with the most', async t => {
  const { port, lines } = await serve(
    t,
    ctx => {
      ctx.body = 'here'
    },
    { max: 12, maxPerSource: 8 },
  )
  const other = await connectFrom(t, port, '127.0.0.2')
  t.equal(await other.ask(), 'HTTP/1.1 200')
  const used = await connectFrom(t, port, '127.0.0.66')
  await used.ask()
  const silent = await Promise.all(Array.from({ length: 7 }, () => connectFrom(t, port, '127.0.0.66')))
  for (let more = 0; more < 30; more++) await connectFrom(t, port, '127.0.0.66')
  await Promise.all(silent.map(({ closed }) => closed))
  t.equal(await used.ask(), 'HTTP/1.1 200', 'a used connection outlives the silent ones of its source')
  for (let source = 3; source < 8; source++) {
    t.equal(
      await (await connectFrom(t, port, `127.0.0.${source}`)).ask(),
      'HTTP/1.1 200',
      'other sources get connections',
    )
    t.equal(await other.ask(), 'HTTP/1.1 200', 'existing connections of other sources remain')
  }
  t.same(
    lines.filter(({ level }) => level >= 40).map(({ msg }) => msg),
    ['Connections from 127.0.0.66: too many at 127.0.0.1 port 0; closing idle ones'],
  )
})

t.test('a connection with a request in progress is not closed for a new one', async t => {
  const [begun, finished] = [new EventEmitter(), new EventEmitter()]
  const { port } = await serve(
    t,
    async ctx => {
      const finish = once(finished, 'now')
      begun.emit('now')
      await finish
      ctx.body = 'late'
    },
    { maxPerSource: 1 },
  )
  const busy = await connectFrom(t, port, '127.0.0.1')
  const beginning = once(begun, 'now')
  const answer = busy.ask()
  await beginning
  const refused = await connectFrom(t, port, '127.0.0.1')
  await refused.closed
  t.match(refused.received.join(''), /^HTTP\/1\.1 503 [\s\S]*Retry-After/)
  finished.emit('now')
  t.equal(await answer, 'HTTP/1.1 200')
})

t.test('the connection limit of all servers stays below the open file limit', t => {
  const limits = (soft: string) =>
    `Limit Soft Limit\nMax open files            ${soft}                20000                files\n`
  t.equal(connectionsWithinFiles(1, limits('20000')), 19_800)
  t.equal(connectionsWithinFiles(4, limits('1024')), 206)
  t.equal(connectionsWithinFiles(4, limits('unlimited')), Number.MAX_SAFE_INTEGER)
  const [, soft, hard] = /^Max open files\s+(\d+)\s+(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8')) ?? []
  t.equal(soft, hard, 'Node.js has raised the soft limit')
  t.end()
})

t.test('a source is an IPv4 address or an IPv6 /64', t => {
  t.equal(sourceOf('192.0.2.1'), '192.0.2.1')
  t.equal(sourceOf('::ffff:192.0.2.1'), '192.0.2.1')
  t.equal(sourceOf('2001:db8:1:2:3::4'), sourceOf('2001:db8:1:2::9'))
  t.not(sourceOf('2001:db8:1:3::1'), sourceOf('2001:db8:1:2::1'))
  t.equal(sourceOf('fe80::1%eth0'), 'fe80::/64')
  t.equal(sourceOf(null), 'unknown')
  t.end()
})

/** A server whose requests take turns by their X-Project header. */
async function serveInTurns(t: Test, handle: Koa.Middleware) {
  const turns = createTurns()
  const served = await serve(t, (ctx, next) => turns.take([ctx.get('X-Project'), ''], async () => handle(ctx, next)))
  const ask = (project: string, body?: string) =>
    fetch(served.url, { method: 'POST', headers: { 'X-Project': project }, ...(body !== undefined && { body }) })
  return { ...served, ask }
}

t.test('a project that floods the API does not delay others', async t => {
  const entered: string[] = []
  const waiting: (() => void)[] = []
  const arrivals = new EventEmitter()
  const { ask, lines } = await serveInTurns(t, async ctx => {
    entered.push(ctx.get('X-Project'))
    await new Promise<void>(resolve => {
      waiting.push(resolve)
      arrivals.emit('one')
    })
    ctx.body = 'done'
  })
  const first = [once(arrivals, 'one'), ask('greedy'), ask('greedy')]
  await first[0]
  const flood = Array.from({ length: 300 }, () => ask('greedy'))
  const other = ask('other')
  while (!entered.includes('other')) await once(arrivals, 'one')
  t.equal(entered.filter(project => project === 'greedy').length, 2, 'the rest of the flood waits')
  arrivals.on('one', () => waiting.pop()?.())
  for (const go of waiting.splice(0)) go()
  t.equal((await other).status, 200)
  const statuses = (await Promise.all(flood)).map(({ status }) => status)
  t.same(new Set(statuses), new Set([200, 429]))
  t.ok(statuses.filter(status => status === 429).length < 50, 'only requests beyond the queue’s limit are refused')
  t.same(
    lines.filter(({ level }) => level >= 40).map(({ flood }) => flood),
    ['Requests of greedy'],
  )
})

t.test('concurrent parts of a request release and take one turn together', async t => {
  const turns = createTurns()
  const place = ['p', ''] as const
  const oneByOne = createQueues(outsideTurn)
  const outside = () => outsideTurn(() => outsideTurn(() => oneByOne('x', () => Promise.resolve())))
  for (let round = 0; round < 5; round++) await turns.take(place, () => Promise.all([1, 2, 3, 4].map(outside)))
  await turns.take(place, () => Promise.all([1, 2, 3].map(() => oneByOne('y', () => Promise.resolve()))))
  const both = new EventEmitter()
  let inside = 0
  const meet = async () => {
    inside += 1
    if (inside === 2) both.emit('met')
    else await once(both, 'met')
  }
  await Promise.all([turns.take(place, meet), turns.take(place, meet)])
  t.equal(inside, 2, 'both turns of the project are free')
})

t.test('no turn is lost, in whatever order parts of a request wait', async t => {
  const { take } = createTurns()
  const events = new EventEmitter()
  const part = (end: string, begin?: string) => async () => {
    if (begin !== undefined) await once(events, begin)
    await outsideTurn(() => once(events, end))
  }
  // The second part begins to wait while the first has requested its turn but not received it.
  const first = take(['p', ''], () => Promise.all([part('one ends')(), part('two ends', 'two begins')()]))
  await new Promise(setImmediate)
  events.emit('one ends')
  events.emit('two begins')
  await new Promise(setImmediate)
  events.emit('two ends')
  await first
  // A part continues after its request has failed.
  const second = take(['p', ''], () => Promise.all([part('late')(), Promise.reject(new Error('failed'))]))
  await t.rejects(second, { message: 'failed' })
  events.emit('late')
  await new Promise(setImmediate)
  let inside = 0
  const meet = async () => {
    inside += 1
    if (inside === 2) events.emit('met')
    else await once(events, 'met')
  }
  await Promise.all([take(['p', ''], meet), take(['p', ''], meet)])
  t.equal(inside, 2, 'both turns of the project are free')
})

t.test('a task that others depend on keeps its turn while it waits', async t => {
  const { take } = createTurns()
  const events = new EventEmitter()
  const entered: string[] = []
  const first = take(['p', ''], () => keepingTurn(() => outsideTurn(() => once(events, 'end'))))
  const second = take(['p', ''], () => outsideTurn(() => once(events, 'end')))
  const rest = ['third', 'fourth'].map(name =>
    take(['p', ''], async () => {
      entered.push(name)
      if (name === 'third') await once(events, 'end')
    }),
  )
  await new Promise(setImmediate)
  t.same(entered, ['third'], 'only the second task released its turn')
  events.emit('end')
  await Promise.all([first, second, ...rest])
  t.same(entered, ['third', 'fourth'])
})

t.test('the event loop runs between the slices of a long task', async t => {
  const seen: (number | 'other')[] = []
  let ended = false
  const other = async () => {
    while (!ended) {
      await new Promise(setImmediate)
      seen.push('other')
    }
  }
  const others = other()
  const items = Array.from({ length: 1000 }, (_, item) => item)
  await eachInSlices(items, item => seen.push(item))
  ended = true
  await others
  t.same(
    seen.filter(each => each !== 'other'),
    items,
  )
  const longest = Math.max(
    ...seen
      .join(' ')
      .split('other')
      .map(run => run.trim().split(' ').length),
  )
  t.equal(longest, 100)
})

t.test('a slow body holds no turn', async t => {
  const { ask, port } = await serveInTurns(t, async ctx => {
    ctx.body = await readBytes(ctx, 1000)
  })
  for (let slow = 0; slow < 10; slow++) {
    const { socket } = await connectFrom(t, port, '127.0.0.1')
    socket.write('POST / HTTP/1.1\r\nHost: x\r\nX-Project: p\r\nContent-Length: 100\r\n\r\nbegun')
  }
  t.equal(await (await ask('p', 'whole')).text(), 'whole')
})
