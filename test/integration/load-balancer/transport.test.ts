import { createConnection } from 'node:net'
import t from 'tap'
import { configurationSchema } from '../../../controller/config/schema.js'
import { tokenOf } from '../../support/clients/callers.js'
import { at, idIn } from '../../support/clients/json-answers.js'
import { SUBNET, startTestApi } from '../../support/clients/load-balancer-api.js'

const BALANCERS = '/v2/lbaas/loadbalancers'
const BODY = { loadbalancer: { vip_subnet_id: SUBNET } }
const FORWARDED = {
  'X-Forwarded-Proto': 'https',
  'X-Forwarded-Host': 'lb.example.org:8443, inner',
  'X-Forwarded-Prefix': '/cloud/lb/',
}

t.test('the API under a mount prefix', async t => {
  const api = await startTestApi({ settings: { mount_prefix: '/load-balancer/', healthcheck_enabled: true } })
  t.teardown(api.stop)
  for (const path of ['/load-balancer', '/load-balancer/']) {
    const { status, body } = await api.ask('GET', path, undefined, null)
    t.equal(status, 200, `${path} needs no token`)
    t.equal(at(body, 'versions', 0, 'links', 0, 'href'), `${api.url}/load-balancer/v2`)
  }
  t.equal(at((await api.ask('GET', '/', undefined, null)).body, 'versions', 0, 'links', 0, 'href'), `${api.url}/v2`)
  t.equal((await api.ask('GET', '/load-balancer/healthcheck', undefined, null)).status, 200)
  t.equal((await api.ask('GET', '/load-balancer/openapi.json', undefined, null)).status, 200)
  t.equal((await api.ask('GET', '/load-balancer/v2.0/')).text, '"v2"')
  t.equal((await api.ask('GET', '/load-balancer/v2', undefined, null)).status, 401)
  for (let count = 0; count < 3; count++) await api.ask('POST', `/load-balancer${BALANCERS}`, BODY)
  for (const path of ['/load-balancer/v2.0/lbaas/loadbalancers', '/load-balancer/lbaas/loadbalancers', BALANCERS]) {
    const page = await api.ask('GET', `${path}?limit=1`)
    const href = String(at(page.body, 'loadbalancers_links', 0, 'href'))
    t.ok(href.startsWith(`${api.url}${path}?limit=1&marker=`), href)
    t.equal((await api.ask('GET', href.slice(api.url.length))).status, 200, 'the link can be followed')
  }
  t.equal((await api.ask('GET', `/load-balancers${BALANCERS}`)).status, 404, 'the prefix matches whole path segments')
  for (const wrong of ['load-balancer', '/', '/a b', '/../x?y']) {
    t.notOk(configurationSchema.safeParse({ load_balancer: { mount_prefix: wrong } }).success, wrong)
  }
})

t.test('forwarding headers count only from trusted proxies', async t => {
  const hrefWith = async (settings: object, headers: Record<string, string>) => {
    const api = await startTestApi({ settings: { ...settings } })
    const { body } = await api.ask('GET', '/', undefined, null, headers)
    await api.ask('POST', BALANCERS, BODY)
    await api.ask('POST', BALANCERS, BODY)
    const page = await api.ask('GET', `${BALANCERS}?limit=1`, undefined, tokenOf('member'), headers)
    await api.stop()
    const cut = (href: string) => href.replace(api.url, 'SELF')
    return [
      cut(String(at(body, 'versions', 0, 'links', 0, 'href'))),
      cut(String(at(page.body, 'loadbalancers_links', 0, 'href'))).replace(/&marker=.*/, ''),
    ]
  }
  const own = ['SELF/v2', `SELF${BALANCERS}?limit=1`]
  const proxied = [
    'https://lb.example.org:8443/cloud/lb/v2',
    `https://lb.example.org:8443/cloud/lb${BALANCERS}?limit=1`,
  ]
  t.strictSame(await hrefWith({}, FORWARDED), own, 'no proxy is trusted by default')
  t.strictSame(
    await hrefWith({ trusted_proxies: ['10.0.0.0/8', '::1'] }, FORWARDED),
    own,
    'the caller is not a trusted proxy',
  )
  t.strictSame(await hrefWith({ trusted_proxies: '10.0.0.1, 127.0.0.0/8' }, FORWARDED), proxied)
  const nonsense = {
    'X-Forwarded-Proto': 'javascript',
    'X-Forwarded-Host': 'a/b"c',
    'X-Forwarded-Prefix': '//evil.org',
  }
  t.strictSame(await hrefWith({ trusted_proxies: ['127.0.0.1'] }, nonsense), own, 'malformed headers are ignored')
  t.strictSame(
    await hrefWith({ trusted_proxies: ['127.0.0.1'], public_url: 'https://api.example.org/lb/' }, FORWARDED),
    ['https://api.example.org/lb/v2', `https://api.example.org/lb${BALANCERS}?limit=1`],
    'public_url takes precedence',
  )
  for (const wrong of ['10.0.0.0/33', 'somewhere', '10.0.0.1/8/8', '::1/129']) {
    t.notOk(configurationSchema.safeParse({ load_balancer: { trusted_proxies: [wrong] } }).success, wrong)
  }
})

t.test('headers', async t => {
  const api = await startTestApi()
  t.teardown(api.stop)
  const lb = idIn(await api.ask('POST', BALANCERS, BODY), 'loadbalancer')
  await t.test('every answer carries its own request id', async t => {
    const seen = new Set<string | null>()
    for (const [method, path, token, body] of [
      ['GET', '/', null],
      ['GET', '/v2', null],
      ['GET', '/docs', null],
      ['GET', `${BALANCERS}/${lb}`, 'member'],
      ['GET', '/v2/lbaas/nothing', 'member'],
      ['PATCH', BALANCERS, 'member'],
      ['GET', '/%zz', 'member'],
      ['POST', BALANCERS, 'member', { loadbalancer: { name: 'x'.repeat(120_000) } }],
      ['DELETE', `${BALANCERS}/${lb}?cascade=maybe`, 'member'],
      ['POST', BALANCERS, 'reader', BODY],
    ] as const) {
      const { status, headers } = await api.ask(method, path, body, token === null ? null : tokenOf(token))
      t.match(headers.get('x-openstack-request-id'), /^req-[0-9a-f]{8}-[0-9a-f-]{27}$/, `${method} ${path} ${status}`)
      seen.add(headers.get('x-openstack-request-id'))
    }
    t.equal(seen.size, 10, 'request ids are unique')
  })
  await t.test('HEAD is GET without its body', async t => {
    for (const path of [BALANCERS, `${BALANCERS}/${lb}`, '/v2', '/']) {
      const [head, get] = [await api.ask('HEAD', path), await api.ask('GET', path)]
      t.equal(head.status, get.status, path)
      t.equal(head.text, '')
      t.equal(head.headers.get('content-type'), get.headers.get('content-type'))
    }
    t.equal((await api.ask('HEAD', `${BALANCERS}/${SUBNET}`)).status, 404)
  })
  await t.test('an answer without a body has no content type', async t => {
    const made = idIn(await api.ask('POST', BALANCERS, BODY), 'loadbalancer')
    const gone = await api.ask('DELETE', `${BALANCERS}/${made}`)
    t.match(gone, { status: 204, text: '' })
    t.equal(gone.headers.get('content-type'), null)
  })
  await t.test('another content type is 415, a large body 413', async t => {
    const post = (body: string, type: string) =>
      api.ask('POST', BALANCERS, body, tokenOf('member'), { 'Content-Type': type })
    const text = JSON.stringify(BODY)
    for (const type of ['application/json', 'application/json; charset=utf-8', 'application/vnd.example+json']) {
      t.equal((await post(text, type)).status, 201, type)
    }
    for (const type of ['text/plain', 'application/xml', 'application/x-www-form-urlencoded']) {
      t.match(await post(text, type), { status: 415, body: { faultcode: 'Client', debuginfo: null } }, type)
    }
    const padded = (bytes: number) => text.padEnd(bytes, ' ')
    const limit = 4 * 1024 * 1024
    t.equal((await post(padded(limit), 'application/json')).status, 201, 'a tree of exactly the limit')
    t.match(await post(padded(limit + 1), 'application/json'), { status: 413, body: { faultcode: 'Client' } })
    const made = idIn(await post(text, 'application/json'), 'loadbalancer')
    const change = '{"loadbalancer": {}}'
    t.equal((await api.ask('PUT', `${BALANCERS}/${made}`, change.padEnd(114_688))).status, 200, 'of other requests')
    t.equal((await api.ask('PUT', `${BALANCERS}/${made}`, change.padEnd(114_689))).status, 413)
  })
  await t.test('a chunked body above the limit is 413 and closes the connection', async t => {
    const { port } = new URL(api.url)
    const answer = await new Promise<string>((resolve, reject) => {
      const socket = createConnection({ host: '127.0.0.1', port: Number(port) })
      let received = ''
      socket.on('data', data => {
        received += String(data)
      })
      socket.on('end', () => resolve(received))
      socket.on('error', reject)
      const piece = 'x'.repeat(60_000)
      socket.write(
        `POST /v2/lbaas/healthmonitors HTTP/1.1\r\nHost: x\r\nX-Auth-Token: ${tokenOf('member')}\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n`,
      )
      for (let count = 0; count < 2; count++) socket.write(`${piece.length.toString(16)}\r\n${piece}\r\n`)
    })
    t.match(answer, /^HTTP\/1\.1 413 /)
    t.match(answer, /connection: close/i)
    t.match(answer, /x-openstack-request-id: req-/i)
  })
  await t.test('a client that does not accept JSON gets 406', async t => {
    for (const accept of ['application/xml', 'text/html', 'application/json;q=0', 'image/*, text/*']) {
      const reply = await api.ask('GET', BALANCERS, undefined, tokenOf('member'), { Accept: accept })
      t.match(
        reply,
        {
          status: 406,
          body: { errors: [{ status: 406, request_id: reply.headers.get('x-openstack-request-id') ?? '' }] },
        },
        accept,
      )
      t.match(reply.headers.get('content-type'), 'application/json')
    }
    const refused = await api.ask('POST', BALANCERS, BODY, tokenOf('member'), { Accept: 'text/html' })
    t.equal(refused.status, 406)
    t.equal((await api.ask('GET', '/docs', undefined, null, { Accept: 'application/json' })).status, 200)
  })
})
