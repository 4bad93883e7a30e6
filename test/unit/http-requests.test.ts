import { createConnection } from 'node:net'
import type Koa from 'koa'
import t, { type Test } from 'tap'
import { createApplication } from '../../controller/http/application.js'
import { readBytes } from '../../controller/http/body.js'
import { startServer } from '../../controller/http/server.js'
import { createClientAddress } from '../../controller/http/trusted-proxies.js'
import { requestAsWritten } from '../support/raw-request.js'
import { recordLog } from '../support/recorded-log.js'

/** A server whose answer `handle` makes, and its log. */
async function serve(t: Test, handle: Koa.Middleware) {
  const recorded = recordLog()
  const app = createApplication({ name: 'test', log: recorded.log, presentFault: fault => fault })
  app.use(handle)
  const server = await startServer(app, { host: '127.0.0.1', port: 0 })
  t.teardown(server.stop)
  return { ...recorded, url: server.url, port: Number(new URL(server.url).port) }
}

t.test('a request line with a URL that has no path is the client’s mistake', async t => {
  const { url } = await serve(t, ctx => {
    ctx.body = ctx.path
  })
  for (const target of ['foo://h', 'http://']) {
    t.match(await requestAsWritten(url, [`GET ${target} HTTP/1.1`]), /^HTTP\/1\.1 400 [\s\S]*names no path/, target)
  }
  t.match(await requestAsWritten(url, ['GET http://h/a?b HTTP/1.1']), /^HTTP\/1\.1 200 [\s\S]*\r\n\/a$/)
})

t.test('a client that goes away in the middle of its body is no failure of ours', async t => {
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

t.test('a body without a length that does not end is refused when it is too large', async t => {
  const { port } = await serve(t, async ctx => {
    ctx.body = await readBytes(ctx, 1000)
  })
  const socket = createConnection({ host: '127.0.0.1', port })
  t.teardown(() => socket.destroy())
  socket.write(`POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n7d0\r\n${'a'.repeat(2000)}\r\n`)
  const [answer] = await new Promise<[string]>((resolve, reject) => {
    socket.once('data', data => resolve([String(data)]))
    socket.once('error', reject)
    socket.once('close', () => reject(new Error('There was no answer.')))
  })
  t.match(answer, /^HTTP\/1\.1 413 [\s\S]*connection: close/i)
})

t.test('where a request comes from', async t => {
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
  t.equal(await asked([], '192.0.2.1'), '<127.0.0.1>', 'who is not trusted is not believed')
  t.equal(await asked(trusted), '<127.0.0.1>')
  t.equal(await asked(trusted, '192.0.2.1'), '<192.0.2.1>')
  t.equal(await asked(trusted, '10.9.9.9, 192.0.2.1'), '<192.0.2.1>', 'what stood there before may be made up')
  t.equal(await asked(trusted, '192.0.2.1, 2001:db8::7, ::ffff:127.0.0.9'), '<192.0.2.1>', 'through several')
  t.equal(await asked(trusted, '127.0.0.7'), '<127.0.0.7>', 'from a proxy itself')
  t.equal(await asked(trusted, '192.0.2.1, nonsense'), '<127.0.0.1>')
})
