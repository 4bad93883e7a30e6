import { spawn } from 'node:child_process'
import { EventEmitter, once } from 'node:events'
import { Agent, get } from 'node:https'
import { createConnection, type Socket } from 'node:net'
import { text } from 'node:stream/consumers'
import { type ConnectionOptions, connect, type TLSSocket } from 'node:tls'
import type Koa from 'koa'
import t, { type Test } from 'tap'
import { createApplication } from '../../../controller/http/application.js'
import { readBytes } from '../../../controller/http/body.js'
import type { ConnectionLimits } from '../../../controller/http/connections.js'
import { createPublicBase } from '../../../controller/http/public-base.js'
import { type ServerTls, startServer } from '../../../controller/http/server.js'
import {
  namesHost,
  readServerCertificate,
  UnusableCertificate,
} from '../../../controller/http/tls/server-certificate.js'
import { requestAsWritten } from '../../support/clients/raw-request.js'
import { makePair, type Pair, type PairOptions } from '../../support/inputs/certificates.js'
import { fileOf, openssl } from '../../support/inputs/x509.js'
import { recordLog } from '../../support/recorded-log.js'

const root = makePair({ subject: '/CN=root' })
const pairFor = (subject: string, options: PairOptions = {}): Pair =>
  makePair({ subject, issuer: root, args: ['-addext', 'subjectAltName=DNS:localhost,IP:127.0.0.1'], ...options })
const first = pairFor('/CN=first')
const second = pairFor('/CN=second')
const checked = ({ certificate, privateKey }: Pair) => readServerCertificate(certificate, privateKey)

/** An API over TLS that answers with `handle`. */
async function serve(
  t: Test,
  handle: Koa.Middleware,
  { tls, limits }: { tls?: Partial<ServerTls>; limits?: Partial<ConnectionLimits> } = {},
) {
  const recorded = recordLog()
  const app = createApplication({
    ...{ name: 'test', log: recorded.log },
    presentFault: ({ status, message }) => ({ error: { code: status, message } }),
  })
  app.use(handle)
  const server = await startServer(
    app,
    { host: '127.0.0.1', port: 0 },
    {
      limits: { max: 1000, maxPerSource: 1000, trustedProxies: [], ...limits },
      tls: { certificate: checked(first), minimumVersion: 'TLSv1.2', ...tls },
      log: recorded.log,
    },
  )
  t.teardown(server.stop)
  return { ...recorded, ...server, port: Number(new URL(server.url).port) }
}

const here: Koa.Middleware = ctx => {
  ctx.body = 'here'
}

/** A TLS connection that is established, and trusts our root alone. */
async function handshake(t: Test, port: number, options: ConnectionOptions = {}) {
  const socket = connect({ host: '127.0.0.1', port, ca: root.certificate, ...options })
  t.teardown(() => socket.destroy())
  await once(socket, 'secureConnect')
  socket.on('error', () => undefined).on('data', () => undefined)
  const ask = async (path = '/') => {
    const answer = once(socket, 'data')
    socket.write(`GET ${path} HTTP/1.1\r\nHost: x\r\n\r\n`)
    return String((await answer)[0]).slice(0, 12)
  }
  return { socket, ask, closed: once(socket, 'close') }
}

async function tcp(
  t: Test,
  port: number,
  localAddress?: string,
): Promise<{ socket: Socket; closed: Promise<unknown> }> {
  const socket = createConnection({ host: '127.0.0.1', port, ...(localAddress !== undefined && { localAddress }) })
  t.teardown(() => socket.destroy())
  socket.on('error', () => undefined)
  socket.resume()
  await once(socket, 'connect')
  return { socket, closed: once(socket, 'close') }
}

/** What Debian's `openssl s_client` prints when its user types R, for a renegotiation. */
async function opensslClient(port: number, ...args: string[]): Promise<string> {
  const child = spawn('openssl', ['s_client', '-connect', `127.0.0.1:${port}`, ...args], { timeout: 20_000 })
  child.stdin.write('R\n')
  const written = await Promise.all([child.stdout, child.stderr].map(stream => text(stream)))
  return written.join('')
}

const nameOf = (socket: TLSSocket): string => String(socket.getPeerCertificate().subject.CN)

t.test('requests over TLS are answered; links and the URL say https', async t => {
  const baseOf = createPublicBase({ publicUrl: undefined, trustedProxies: [] })
  const { url, port } = await serve(t, ctx => {
    ctx.body = baseOf(ctx, '/v2')
  })
  t.equal(url, `https://127.0.0.1:${port}`)
  const answer = await new Promise<string>((resolve, reject) => {
    get(`${url}/`, { ca: root.certificate, agent: new Agent({ keepAlive: false }) }, response => {
      response.setEncoding('utf8').on('data', resolve)
    }).on('error', reject)
  })
  t.equal(answer, `https://127.0.0.1:${port}/v2`)
})

t.test('what is negotiated follows Mozilla’s intermediate profile', async t => {
  const { port } = await serve(t, here)
  const negotiated = async (options: ConnectionOptions) => {
    const { socket } = await handshake(t, port, options)
    return [socket.getProtocol(), socket.getCipher().name]
  }
  const only = (version: 'TLSv1.2' | 'TLSv1.3', ciphers?: string): ConnectionOptions => ({
    minVersion: version,
    maxVersion: version,
    ...(ciphers !== undefined && { ciphers }),
  })
  t.same(await negotiated({}), ['TLSv1.3', 'TLS_AES_256_GCM_SHA384'])
  t.same(await negotiated(only('TLSv1.2', 'ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-ECDSA-AES128-GCM-SHA256')), [
    'TLSv1.2',
    'ECDHE-ECDSA-CHACHA20-POLY1305',
  ])
  for (const cipher of ['ECDHE-ECDSA-AES128-SHA256', 'ECDHE-ECDSA-AES256-SHA', 'ECDHE-ECDSA-AES256-CCM']) {
    await t.rejects(negotiated(only('TLSv1.2', cipher)), /handshake failure|no shared/i, cipher)
  }
  for (const version of ['-tls1', '-tls1_1']) {
    t.match(await opensslClient(port, version, '-cipher', 'ALL:@SECLEVEL=0'), /alert protocol version/, version)
  }
  t.match(await opensslClient(port, '-tls1_2'), /RENEGOTIATING[\s\S]*no renegotiation/, 'no client can renegotiate')
})

t.test('a minimum version of TLS 1.3 excludes 1.2', async t => {
  const { port } = await serve(t, here, { tls: { minimumVersion: 'TLSv1.3' } })
  t.equal((await handshake(t, port)).socket.getProtocol(), 'TLSv1.3')
  await t.rejects(handshake(t, port, { maxVersion: 'TLSv1.2' }), /protocol version/)
})

t.test('a plain HTTP request on a TLS port is told so, in the API’s own shape', async t => {
  const { port, line, lines } = await serve(t, here)
  for (const method of ['GET', 'POST', 'HEAD', 'PUT']) {
    const answer = await requestAsWritten(`http://127.0.0.1:${port}`, [`${method} /v3 HTTP/1.1`])
    t.match(answer, /^HTTP\/1\.1 400 [\s\S]*\r\n\r\n\{"error":\{"code":400,"message":"This port speaks HTTPS/, method)
  }
  t.match(await line('malformed request'), { status: 400 })
  const { socket, closed } = await tcp(t, port)
  socket.write('nonsense of another protocol\r\n\r\n')
  await closed
  t.match((await handshake(t, port)).socket.authorized, true, 'the server goes on')
  t.same(
    lines.filter(({ level }) => level >= 40),
    [],
  )
})

t.test('a client that sends nothing, or not all of its handshake, holds no slot longer than with HTTP', async t => {
  const { port } = await serve(t, here)
  const begun = performance.now()
  const silent = await tcp(t, port)
  const slow = await tcp(t, port)
  // The beginning of a record with a handshake.
  slow.socket.write(Buffer.from('1603010200', 'hex'))
  const afterHandshake = await handshake(t, port)
  await Promise.all([silent.closed, slow.closed])
  const seconds = (performance.now() - begun) / 1000
  t.ok(seconds > 8 && seconds < 13, `closed after ${seconds} s`)
  await afterHandshake.closed
  const later = (performance.now() - begun) / 1000
  t.ok(later < 14, `a connection without a request is closed after ${later} s`)
})

t.test('connections in a handshake are the first to go when a source has too many', async t => {
  const { port, lines } = await serve(t, here, { limits: { maxPerSource: 4 } })
  const used = await handshake(t, port)
  t.equal(await used.ask(), 'HTTP/1.1 200')
  const silent = await Promise.all([tcp(t, port), tcp(t, port), tcp(t, port)])
  const more = await handshake(t, port)
  t.equal(await more.ask(), 'HTTP/1.1 200')
  await silent[0]?.closed
  for (let at = 0; at < 10; at++) await tcp(t, port)
  await Promise.all(silent.map(({ closed }) => closed))
  t.equal(await used.ask(), 'HTTP/1.1 200', 'a used connection stays')
  t.equal(await more.ask(), 'HTTP/1.1 200')
  t.match(
    lines.filter(({ level }) => level >= 40),
    [{ msg: /^Connections from 127\.0\.0\.1: too many/ }],
  )
})

t.test('while all its connections are being answered, a source gets no other', async t => {
  const [begun, finished] = [new EventEmitter(), new EventEmitter()]
  const { port } = await serve(
    t,
    async ctx => {
      const finish = once(finished, 'now')
      begun.emit('now')
      await finish
      ctx.body = 'late'
    },
    { limits: { maxPerSource: 1 } },
  )
  const busy = await handshake(t, port)
  const beginning = once(begun, 'now')
  const answer = busy.ask()
  await beginning
  await t.rejects(handshake(t, port), /disconnected|hang up|ECONNRESET/)
  finished.emit('now')
  t.equal(await answer, 'HTTP/1.1 200')
})

t.test('500 new certificates under load: new connections get the newest, kept ones stay, no request fails', async t => {
  const { port, url, useCertificate } = await serve(t, async ctx => {
    ctx.body = `${(await readBytes(ctx, 100_000)).length}`
  })
  const kept = await Promise.all(Array.from({ length: 8 }, () => handshake(t, port)))
  let [answered, isLoading] = [0, true]
  const failures: unknown[] = []
  const fresh = async () => {
    const answer = await new Promise<number | undefined>((resolve, reject) => {
      const agent = new Agent({ keepAlive: false })
      get(url, { ca: root.certificate, agent }, response => {
        response.resume().on('end', () => resolve(response.statusCode))
      }).on('error', reject)
    })
    if (answer !== 200) failures.push(answer)
  }
  const load = async (request: () => Promise<unknown>) => {
    while (isLoading) {
      await request().then(
        () => answered++,
        error => failures.push(error),
      )
    }
  }
  const loads = [...kept.map(({ ask }) => load(() => ask())), load(fresh), load(fresh)]
  const pairs = [checked(first), checked(second)] as const
  for (let at = 0; at < 500; at++) {
    useCertificate(pairs[at % 2 === 0 ? 1 : 0])
    const wanted = at % 2 === 0 ? 'second' : 'first'
    if (at % 10 < 2) t.equal(nameOf((await handshake(t, port)).socket), wanted)
  }
  isLoading = false
  await Promise.all(loads)
  t.same(failures, [])
  t.ok(answered > 100, `${answered} requests`)
  for (const { socket, ask } of kept) {
    t.equal(nameOf(socket), 'first')
    t.equal(await ask(), 'HTTP/1.1 200')
  }
})

t.test('the server stops at once although handshakes are not complete', async t => {
  const { port, stop } = await serve(t, here)
  const { closed } = await tcp(t, port)
  const idle = await handshake(t, port)
  await idle.ask()
  const begun = performance.now()
  await Promise.all([stop(), closed, idle.closed])
  t.ok(performance.now() - begun < 3_000)
})

t.test('a certificate and a key that cannot be used are refused with the reason', async t => {
  const encrypted = openssl(['pkey', '-in', fileOf(first.privateKey), '-aes256', '-passout', 'pass:x']).text
  for (const [certificate, key, reason] of [
    [first.certificate, second.privateKey, 'the key is not that of the certificate'],
    ['', first.privateKey, 'there is no certificate in PEM'],
    [first.certificate, '', 'there is no private key in PEM'],
    [first.certificate, encrypted, 'the key has a passphrase'],
    [`${first.certificate}-----BEGIN CERTIFICATE-----\nAAAA\n`, first.privateKey, /^OpenSSL refuses them/],
  ] as const) {
    t.throws(() => readServerCertificate(certificate, key), { message: reason, constructor: UnusableCertificate })
  }
  const { leaf } = checked(first)
  t.same(
    ['localhost', '127.0.0.1', '127.0.0.2', 'example.org', '::1'].map(host => namesHost(leaf, host)),
    [true, true, false, false, false],
  )
})
