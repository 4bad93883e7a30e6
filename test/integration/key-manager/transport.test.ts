import { randomUUID } from 'node:crypto'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t from 'tap'
import { FOREIGN, SYSTEM, tokenOf } from '../../support/clients/callers.js'
import { type AskOptions, startTestKeyManager } from '../../support/clients/key-manager-api.js'
import { requestAsWritten } from '../../support/clients/raw-request.js'

const directory = mkdtempSync(join(tmpdir(), 'krater-key-manager-transport-'))
const disablingFile = join(directory, 'disabled')
const api = await startTestKeyManager({ healthcheck_disable_by_file_path: disablingFile })
const { ask, store, url } = api
t.teardown(async () => {
  await api.stop()
  rmSync(directory, { recursive: true })
})

const VERSION = 'OpenStack-API-Version'
const open = (path: string, headers: Record<string, string> = {}, method = 'GET') =>
  ask(method, path, undefined, { token: null, headers })
const asWritten = (lines: string[]) => requestAsWritten(url, lines)

t.test('the root shows the versions in the format that the client asks for', async t => {
  const old = await open('/')
  t.equal(old.status, 300)
  const links = [
    { rel: 'self', href: `${url}/v1/` },
    { rel: 'describedby', type: 'text/html', href: /^https:/ },
  ]
  t.match(old.body, {
    versions: {
      values: [
        {
          id: 'v1',
          status: 'stable',
          links,
          'media-types': [{ base: 'application/json', type: 'application/vnd.openstack.key-manager-v1+json' }],
        },
      ],
    },
  })
  for (const version of ['key-manager 1.1', 'key-manager 1.2', 'compute 2.1, Key-Manager  latest']) {
    const reply = await open('/', { [VERSION]: version })
    t.equal(reply.status, 300)
    const [entry] = reply.body.versions as unknown as unknown[]
    t.match(entry, { id: 'v1', status: 'CURRENT', min_version: '1.0', max_version: '1.2', links }, version)
    t.notOk(Object(entry)['media-types'])
  }
  const { version } = JSON.parse(readFileSync('package.json', 'utf8')) as { version: string }
  t.same((await open('/?build')).body, { build: version })
  t.equal((await open('/?build')).status, 200)
  for (const accept of ['*/*', 'application/json', 'text/html, application/json;q=0.5']) {
    t.equal((await open('/', { Accept: accept })).status, 300, accept)
  }
  const home = await asWritten(['GET / HTTP/1.1', 'Accept: application/json-home'])
  t.match(home, /^HTTP\/1\.1 302 /)
  t.match(home, /location: http:\/\/x\/v1\/\r/i)
  t.match(await open('/', { Accept: 'text/html' }), { status: 406, body: { code: 406, description: null } })
  for (const method of ['POST', 'PUT', 'DELETE', 'OPTIONS', 'HEAD']) {
    const reply = await open('/', {}, method)
    t.equal(reply.status, 405, method)
    t.equal(reply.headers.get('allow'), 'GET', method)
  }
  t.match(await open('/nothing'), { status: 404, body: { code: 404, title: 'Not Found' } })
  t.match(await open('/V1/secrets'), { status: 404 }, 'paths outside /v1 belong to the root')
  t.match(await open('//v1/secrets'), { status: 401 }, 'repeated slashes count as one')
})

t.test('GET /v1 requires a token and shows the version', async t => {
  for (const path of ['/v1', '/v1/']) {
    t.match(await ask('GET', path), { status: 200, body: { version: { id: 'v1', status: 'stable' } } }, path)
    t.equal((await open(path)).status, 401, `${path} requires a token`)
  }
  const headers = { Accept: 'application/json-home', [VERSION]: 'key-manager 1.1' }
  const home = await ask('GET', '/v1', undefined, { headers })
  t.match(home, { status: 200, body: { version: { status: 'CURRENT', max_version: '1.2' } } })
  t.match(home.headers.get('content-type'), /^application\/json/)
  t.equal((await ask('GET', '/v1', undefined, { headers: { Accept: 'text/html' } })).status, 406)
  t.equal((await ask('POST', '/v1', {})).headers.get('allow'), 'GET')
})

t.test('the microversion header is honoured and answered, and refused when malformed or out of range', async t => {
  const asked = (version: string, path = '/v1/secrets') =>
    ask('GET', path, undefined, { headers: { [VERSION]: version } })
  for (const [version, used] of [
    ['key-manager 1.0', '1.0'],
    ['key-manager 1.1', '1.1'],
    ['key-manager latest', '1.2'],
    ['KEY-MANAGER 1.2', '1.2'],
    ['compute 2.90,key-manager 1.1', '1.1'],
    ['compute 2.90', '1.0'],
    ['key-manager', '1.0'],
  ] as const) {
    const { status, headers } = await asked(version)
    t.equal(status, 200, version)
    t.equal(headers.get(VERSION), `key-manager ${used}`, version)
    t.match(headers.get('vary'), VERSION)
  }
  for (const version of ['1.3', '2.0', '0.9', '1.99999999999999999999', '99999999999999999999.1']) {
    const { status, body } = await asked(`key-manager ${version}`)
    t.match({ status, body }, { status: 406, body: { code: '406 Not Acceptable', title: 'Not Acceptable' } }, version)
    t.type(body.message, 'string')
  }
  for (const version of ['foo', '1', '1.1.1', '1.1 1.2', '-1.0', '1.1e3', '１.1']) {
    const { status, body } = await asked(`key-manager ${Buffer.from(version).toString('latin1')}`)
    t.match({ status, body }, { status: 400, body: { code: '400 Bad Request', title: 'Bad Request' } }, version)
  }
  t.equal((await asked('key-manager 9.9', '/v1/nothing')).status, 406, 'it is checked before routing')
  t.equal((await open('/v1/secrets', { [VERSION]: 'key-manager 9.9' })).status, 401, 'it is checked after the token')
})

t.test('a missing or invalid token is 401, a token without a project 403', async t => {
  const refused = await open('/v1/secrets')
  t.equal(refused.status, 401)
  t.match(refused.headers.get('www-authenticate'), 'Keystone uri="http://identity.test/v3"')
  const error = { code: 401, title: 'Unauthorized', message: /./ }
  t.match(refused.body, { code: 401, title: 'Unauthorized', description: /./, error })
  t.equal((await ask('GET', '/v1/secrets', undefined, { token: 'nonsense' })).status, 401)
  for (const project of ['', SYSTEM]) {
    for (const path of ['/v1', '/v1/secrets', '/v1/nothing', `/v1/secrets/${randomUUID()}`]) {
      const { status } = await ask('GET', path, undefined, { token: tokenOf('admin', project) })
      t.equal(status, 403, `a token without a project, ${path}`)
    }
  }
})

t.test('every answer has its own request id and forbids caching', async t => {
  const seen = new Set<string | null>()
  for (const [method, path] of [
    ['GET', '/v1/secrets'],
    ['GET', '/v1/nothing'],
    ['PATCH', '/v1/secrets'],
    ['GET', '/%zz'],
    ['POST', '/v1/secrets'],
  ] as const) {
    const { headers, status } = await ask(method, path)
    t.match(headers.get('x-openstack-request-id'), /^req-[0-9a-f-]{36}$/, `${method} ${path} ${status}`)
    seen.add(headers.get('x-openstack-request-id'))
  }
  t.equal(seen.size, 5)
  t.equal((await ask('GET', '/v1/secrets')).headers.get('cache-control'), 'no-store')
})

t.test('an unsupported method is 405 with Allow; on an unknown object it is 404', async t => {
  const secret = await store()
  for (const [path, allowed] of [
    ['/v1/secrets', 'GET, POST'],
    ['/v1/secrets/', 'GET, POST'],
    [`/v1/secrets/${secret}`, 'DELETE, GET, PUT'],
    [`/v1/secrets/${secret}/payload`, 'GET'],
    [`/v1/secrets/${secret}/metadata`, 'GET, POST, PUT'],
    [`/v1/secrets/${secret}/metadata/k`, 'DELETE, GET, PUT'],
    [`/v1/secrets/${secret}/consumers`, 'DELETE, GET, POST'],
  ] as const) {
    for (const method of ['HEAD', 'OPTIONS', 'PATCH']) {
      const { status, headers } = await ask(method, path)
      t.equal(status, 405, `${method} ${path}`)
      t.equal(headers.get('allow'), allowed, `${method} ${path}`)
    }
  }
  for (const id of [randomUUID(), 'nonsense', secret.toUpperCase()]) {
    for (const path of [`/v1/secrets/${id}`, `/v1/secrets/${id}/payload`, `/v1/containers/${id}`]) {
      t.equal((await ask('PATCH', path)).status, 404, `unknown objects have no methods: ${path}`)
    }
  }
  const stranger = tokenOf('member', FOREIGN)
  t.equal(
    (await ask('PATCH', `/v1/secrets/${secret}`, undefined, { token: stranger })).status,
    405,
    'the method is checked before rights',
  )
  t.equal((await ask('GET', '/v1/secrets/a/b/c')).status, 404)
})

t.test('an Accept header without JSON is 406', async t => {
  const secret = await store()
  const json = ['/v1/secrets', `/v1/secrets/${secret}/metadata`, `/v1/secrets/${secret}/consumers`]
  for (const path of json) {
    for (const [accept, status] of [
      ['*/*', 200],
      ['application/json', 200],
      ['text/html, application/json;q=0.1', 200],
      ['text/html', 406],
      ['application/json;q=0, text/plain', 406],
    ] as const) {
      const reply = await ask('GET', path, undefined, { headers: { Accept: accept } })
      t.equal(reply.status, status, `${accept} ${path}`)
      if (status === 406) t.same(reply.body, { code: 406, title: 'Not Acceptable', description: null })
    }
  }
  const bare = await asWritten(['GET /v1/secrets HTTP/1.1', `X-Auth-Token: ${tokenOf('member')}`])
  t.match(bare, /^HTTP\/1\.1 200 /, 'a request without Accept succeeds')
})

t.test('a request is checked in order: existence, rights, content type, body', async t => {
  const secret = await store({})
  const reader = tokenOf('reader')
  const text = { 'Content-Type': 'text/plain' }
  const status = async (method: string, path: string, options: AskOptions) =>
    (await ask(method, path, undefined, { raw: '{', ...options })).status
  const collection = '/v1/secrets'
  t.equal(
    await status('POST', collection, { token: reader, headers: text }),
    403,
    'rights are checked before the content type',
  )
  t.equal(await status('POST', collection, { headers: text }), 415, 'the content type is checked before the body')
  t.equal(await status('POST', collection, { headers: { 'Content-Type': 'application/json' } }), 400)
  const absent = `/v1/secrets/${randomUUID()}`
  t.equal(
    await status('PUT', absent, { token: reader, headers: { 'Content-Type': 'a/b' } }),
    404,
    'existence is checked before rights',
  )
  t.equal(await status('PUT', `${collection}/${secret}`, { token: reader, headers: { 'Content-Type': 'a/b' } }), 403)
  t.equal(await status('PUT', `${collection}/${secret}`, { headers: { 'Content-Type': 'a/b' } }), 415)
  for (const type of ['', 'application/jsonx', 'application/vnd.x+json', 'text/json']) {
    t.equal(await status('POST', collection, { raw: '{}', headers: { 'Content-Type': type } }), 415, type)
  }
  const charset = { 'Content-Type': 'application/json; charset=utf-8' }
  t.equal(
    await status('POST', collection, { raw: '{}', headers: charset }),
    201,
    'the content type may have parameters',
  )
})

t.test('malformed and oversized bodies are 400', async t => {
  const json = { 'Content-Type': 'application/json' }
  const post = (raw: string | Buffer) => ask('POST', '/v1/secrets', undefined, { raw, headers: json })
  for (const raw of [
    '',
    '{',
    '[]',
    '"x"',
    'null',
    '1',
    '{"name":1e999}',
    '{"name":"\\ud800"}',
    '{"name":"a\\u0000b"}',
  ]) {
    t.match(await post(raw), { status: 400, body: { code: 400, title: 'Bad Request', description: /./ } }, raw)
  }
  t.equal((await post(Buffer.from([0x7b, 0xff, 0x7d]))).status, 400, 'not UTF-8')
  t.equal((await post('['.repeat(10_000) + ']'.repeat(10_000))).status, 400, 'deeply nested')
  const padded = (bytes: number) => '{}'.padEnd(bytes, ' ')
  t.equal((await post(padded(25_000))).status, 201, 'a body of exactly the limit')
  t.equal((await post(padded(25_001))).status, 400, 'a body above the limit')
  const huge = await asWritten([
    ...['POST /v1/secrets HTTP/1.1', `X-Auth-Token: ${tokenOf('member')}`, 'Content-Type: application/json'],
    'Content-Length: 99999999999',
  ])
  t.match(huge, /^HTTP\/1\.1 400 /, 'the answer comes before the body is read')
  const named = await ask('POST', '/v1/secrets', { name: '  a b\t', unknown: { x: [1] }, secret_type: ' opaque ' })
  t.equal(named.status, 201, 'unknown fields are ignored')
  t.match(
    (await ask('GET', new URL(String(named.body.secret_ref)).pathname)).body,
    { name: 'a b' },
    'the name is trimmed',
  )
})

t.test('the health check follows the disabling file', async t => {
  t.match(await open('/healthcheck'), { status: 200, text: 'OK' })
  const json = await open('/healthcheck', { Accept: 'application/json' })
  t.match(json, { status: 200, body: { reasons: ['OK'] } })
  writeFileSync(disablingFile, '')
  t.match(await open('/healthcheck'), { status: 503, text: 'DISABLED BY FILE' })
  rmSync(disablingFile)
  t.equal((await open('/healthcheck')).status, 200)
  t.equal((await open('/healthcheck', {}, 'POST')).status, 405)
})

t.test('the audit log names the client behind a trusted proxy', async t => {
  const proxied = await startTestKeyManager({ trusted_proxies: ['127.0.0.1'] })
  t.teardown(proxied.stop)
  for (const where of [proxied, api]) {
    await where.ask('POST', '/v1/secrets', {}, { headers: { 'X-Forwarded-For': '10.0.0.1, 192.0.2.7' } })
  }
  const addressIn = async ({ database }: typeof api) =>
    (await database('audit_record').orderBy('seq', 'desc').first('remote_address')).remote_address
  t.same([await addressIn(proxied), await addressIn(api)], ['192.0.2.7', '127.0.0.1'])
})

t.test('references start with the address that clients use for the service', async t => {
  const proxied = await startTestKeyManager({ trusted_proxies: ['127.0.0.1'] })
  const fixed = await startTestKeyManager({ public_url: 'https://keys.example.org:9311/barbican/' })
  t.teardown(async () => {
    await proxied.stop()
    await fixed.stop()
  })
  const headers = { 'X-Forwarded-Proto': 'https', 'X-Forwarded-Host': 'keys.example.org' }
  const made = async (where: typeof api) =>
    String((await where.ask('POST', '/v1/secrets', {}, { headers })).body.secret_ref)
  t.ok((await made(proxied)).startsWith('https://keys.example.org/v1/secrets/'))
  t.ok((await made(fixed)).startsWith('https://keys.example.org:9311/barbican/v1/secrets/'))
  t.ok((await made(api)).startsWith(`${url}/v1/secrets/`), 'headers from untrusted proxies are ignored')
})
