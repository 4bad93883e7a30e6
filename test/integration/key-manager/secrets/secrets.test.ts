import { randomBytes, randomUUID } from 'node:crypto'
import t from 'tap'
import { connect } from '../../../../controller/database/connection.js'
import { CANARY } from '../../../support/canary.js'
import { FOREIGN, OWN, tokenOf } from '../../../support/clients/callers.js'
import type { Json } from '../../../support/clients/json-answers.js'
import { type AskOptions, startTestKeyManager } from '../../../support/clients/key-manager-api.js'
import { requestAsWritten } from '../../../support/clients/raw-request.js'

const api = await startTestKeyManager()
const { ask, store, database, statementsOf } = api
t.teardown(api.stop)

const pathOf = (body: Json) => new URL(String(body.secret_ref)).pathname
const post = (body: unknown, options?: AskOptions) => ask('POST', '/v1/secrets', body, options)
const payloadOf = (path: string, accept?: string) =>
  ask('GET', `${path}/payload`, undefined, accept === undefined ? {} : { headers: { Accept: accept } })
const put = (path: string, raw: string | Buffer, headers: Record<string, string>) =>
  ask('PUT', path, undefined, { raw, headers })
const MICROVERSION = (version: string) => ({ headers: { 'OpenStack-API-Version': `key-manager ${version}` } })
const PEM = '-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----'
const inSeconds = (seconds: number) => new Date(Date.now() + seconds * 1000).toISOString().slice(0, 19)

// Runs first: for a caller who is refused often, refusals are only counted.
t.test('every operation on a payload is audited', async t => {
  const recordsOf = async (id: string) =>
    (await database('audit_record').where({ target_id: id }).orderBy('seq')).map(
      ({ action, outcome, user_id: user }) => `${action} ${outcome} ${user}`,
    )
  const id = pathOf((await post({})).body).slice(-36)
  const path = `/v1/secrets/${id}`
  await put(path, 'x', { 'Content-Type': 'text/plain' })
  await put(path, 'y', { 'Content-Type': 'text/plain' })
  await payloadOf(path)
  await ask('GET', path, undefined, { headers: { Accept: 'text/plain' } })
  await ask('GET', path, undefined, { headers: { Accept: 'text/plain' }, token: tokenOf('member', FOREIGN) })
  await ask('GET', path)
  await ask('DELETE', path)
  t.strictSame(await recordsOf(id), [
    'secret.create success user-member',
    'secret.payload.store success user-member',
    'secret.payload.store failure user-member',
    'secret.payload.read success user-member',
    'secret.payload.read success user-member',
    'secret.payload.read denied user-member',
    'secret.delete success user-member',
  ])
})

t.test('a secret shows exactly the fields that clients know', async t => {
  const { body } = await post({})
  const { created, updated, ...rest } = (await ask('GET', pathOf(body))).body
  t.equal(created, updated)
  t.match(created, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?$/)
  const empty = { name: null, expiration: null, algorithm: null, bit_length: null, mode: null }
  const record = { status: 'ACTIVE', secret_type: 'opaque', creator_id: 'user-member', ...body, ...empty }
  t.strictSame(rest, record)
  const newer = await ask('GET', pathOf(body), undefined, MICROVERSION('1.1'))
  t.strictSame(newer.body, { created, updated, ...record, consumers: [] })
})

t.test('POST accepts valid secrets and refuses invalid ones', async t => {
  const accepted: Json[] = [
    { name: null },
    { name: 'ü'.repeat(255) },
    ...['symmetric', 'passphrase', 'private', 'public', 'certificate', 'opaque'].map(type => ({ secret_type: type })),
    { bit_length: 1 },
    { bit_length: 32767 },
    { expiration: '' },
    { expiration: '2999-12-31' },
    { transport_key_needed: 'false' },
    { payload_content_encoding: 'base64' },
    { payload: ' x ', payload_content_type: 'text/plain' },
  ]
  for (const body of accepted) t.equal((await post(body)).status, 201, JSON.stringify(body).slice(0, 80))
  const refused: Json[] = [
    { name: 'x'.repeat(256) },
    { name: 1 },
    { secret_type: 'password' },
    { secret_type: null },
    { algorithm: null },
    { algorithm: 'x'.repeat(256) },
    { mode: 5 },
    { bit_length: 0 },
    { bit_length: 32768 },
    { bit_length: 1.5 },
    { bit_length: '256' },
    { bit_length: 1e300 },
    { expiration: 'tomorrow' },
    { expiration: '2020-01-01T00:00:00' },
    { expiration: '2999-02-30T00:00:00' },
    { expiration: `2999-01-01${' '.repeat(255)}x` },
    { expiration: 32503680000 },
    { payload: '', payload_content_type: 'text/plain' },
    { payload: '   ', payload_content_type: 'text/plain' },
    { payload: null, payload_content_type: 'text/plain' },
    { payload: ['x'], payload_content_type: 'text/plain' },
    { payload: 'x' },
    { payload: 'a\u0000b', payload_content_type: 'text/plain' },
    { payload_content_type: 'text/plain' },
    { payload_content_encoding: 'gzip' },
    { transport_key_needed: 'true' },
    { transport_key_needed: true },
    { transport_key_id: randomUUID() },
  ]
  for (const body of refused) {
    const reply = await post(body)
    t.match(reply, { status: 400, body: { code: 400, description: /./ } }, JSON.stringify(body).slice(0, 80))
  }
  const named = await post({ bit_length: 'x' })
  t.match(named.body.description, 'bit_length', 'the error names the property')
})

t.test('POST accepts a payload only in known content types and encodings', async t => {
  const bytes = Buffer.from([0, 255, 1, 254])
  const base64 = bytes.toString('base64')
  const accepted: [string, string | undefined, string, string | Buffer][] = [
    ['text/plain', undefined, 'pässword', 'pässword'],
    ['TEXT/Plain; charset=UTF-8', undefined, 'x', 'x'],
    ['text/plain;charset=utf-8', undefined, 'x', 'x'],
    ['application/octet-stream', 'base64', base64, bytes],
    ['application/octet-stream', 'base64', `${base64.slice(0, 3)}\r\n ${base64.slice(3)}\n`, bytes],
    ['application/pkcs8', 'base64', base64, bytes],
    ['application/pkcs8', undefined, PEM, PEM],
    ['application/pkix-cert', 'base64', base64, bytes],
    ['application/pkix-cert', undefined, PEM, PEM],
  ]
  for (const [type, encoding, payload, stored] of accepted) {
    const label = `${type} ${encoding}`
    const body = { payload, payload_content_type: type, payload_content_encoding: encoding }
    const made = await post(body)
    t.equal(made.status, 201, label)
    const plain = type.toLowerCase().split(';')[0]
    t.match((await ask('GET', pathOf(made.body))).body, { content_types: { default: plain } }, label)
    const read = await payloadOf(pathOf(made.body))
    t.ok(read.bytes.equals(Buffer.from(stored)), label)
    t.equal(read.headers.get('content-type'), plain === 'text/plain' ? 'text/plain; charset=UTF-8' : plain, label)
  }
  const refused: [string, string | undefined, string][] = [
    ['text/plain', 'base64', base64],
    ['text/plain; charset=latin-1', undefined, 'x'],
    ['text/plain; charset=utf-8; x=y', undefined, 'x'],
    ['application/octet-stream', undefined, base64],
    ['application/octet-stream', 'base64', 'AAA'],
    ['application/octet-stream', 'base64', 'AA=A'],
    ['application/octet-stream', 'base64', 'AAA-'],
    ['application/octet-stream', 'base64', '===='],
    ['application/json', undefined, '{}'],
    ['application/x-pem-file', 'base64', base64],
    ['', undefined, 'x'],
  ]
  for (const [type, encoding, payload] of refused) {
    const body = { payload, payload_content_type: type, payload_content_encoding: encoding }
    t.equal((await post(body)).status, 400, `${type} ${encoding} ${payload}`)
  }
})

t.test('a payload has at most 20,000 bytes', async t => {
  const text = (length: number) => ({ payload: 'x'.repeat(length), payload_content_type: 'text/plain' })
  t.equal((await post(text(20_000))).status, 201)
  t.match(await post(text(20_001)), { status: 413, body: { code: 413 } })
  t.equal(
    (await post({ payload: 'ü'.repeat(10_001), payload_content_type: 'text/plain' })).status,
    413,
    'the limit counts bytes, not characters',
  )
  t.equal((await post(text(30_000))).status, 400, 'the request exceeds its size limit')
  const path = pathOf((await post({})).body)
  const type = { 'Content-Type': 'application/octet-stream' }
  t.match(await put(path, randomBytes(20_001), type), { status: 413, body: { code: 413 } })
  t.equal((await put(path, randomBytes(20_000), type)).status, 204)
  t.equal((await payloadOf(path)).bytes.length, 20_000)
})

t.test('PUT stores the payload of a secret that has none, once', async t => {
  const bytes = randomBytes(40)
  const cases: [Record<string, string>, string | Buffer, Buffer | number][] = [
    [{ 'Content-Type': 'application/octet-stream' }, bytes, bytes],
    [{ 'Content-Type': 'text/plain' }, 'a text', Buffer.from('a text')],
    [{ 'Content-Type': 'text/plain; charset=utf-8', 'Content-Encoding': 'rot13' }, '  x', Buffer.from('  x')],
    [{ 'Content-Type': 'application/pkcs8' }, PEM, Buffer.from(PEM)],
    [{ 'Content-Type': 'application/pkix-cert' }, bytes, bytes],
    [{ 'Content-Type': 'application/octet-stream', 'Content-Encoding': 'base64' }, bytes.toString('base64'), bytes],
    [{ 'Content-Type': 'application/octet-stream', 'Content-Encoding': 'gzip' }, bytes, 400],
    [{ 'Content-Type': 'application/octet-stream', 'Content-Encoding': 'base64' }, '%%%', 400],
    [{ 'Content-Type': 'application/octet-stream' }, '', 400],
    [{ 'Content-Type': 'application/json' }, '{}', 415],
    [{ 'Content-Type': 'text/plain; charset=latin-1' }, 'x', 415],
    [{}, bytes, 415],
  ]
  for (const [headers, raw, expected] of cases) {
    const label = JSON.stringify(headers)
    const path = pathOf((await post({ name: 'two steps' })).body)
    t.equal((await payloadOf(path)).status, 404, 'no payload yet')
    const before = (await ask('GET', path)).body
    const reply = await put(path, raw, headers)
    const after = (await ask('GET', path)).body
    if (typeof expected === 'number') {
      t.match(reply, { status: expected, body: { code: expected } }, label)
      t.strictSame(after, before)
      continue
    }
    t.match(reply, { status: 204, text: '' }, label)
    t.equal(reply.headers.get('content-type'), null)
    t.ok((await payloadOf(path)).bytes.equals(expected), label)
    t.match(after, { name: 'two steps', content_types: { default: /^(text|application)\// } })
    t.ok(String(after.updated) > String(before.updated), 'the secret’s "updated" advances')
    t.match(
      await put(path, 'other', headers),
      { status: 409, body: { code: 409 } },
      'the payload can be stored only once',
    )
    t.ok((await payloadOf(path)).bytes.equals(expected), 'the payload does not change')
  }
  const whole = await store()
  t.equal((await put(`/v1/secrets/${whole}`, 'x', { 'Content-Type': 'text/plain' })).status, 409)
  const wrapped = `${pathOf((await post({})).body)}?transport_key_id=${randomUUID()}`
  t.equal((await put(wrapped, 'x', { 'Content-Type': 'text/plain' })).status, 400)
})

t.test('exactly one of several concurrent PUTs of a payload succeeds', async t => {
  for (let round = 0; round < 5; round++) {
    const path = pathOf((await post({})).body)
    const texts = ['a', 'b', 'c', 'd', 'e', 'f']
    const replies = await Promise.all(texts.map(text => put(path, text, { 'Content-Type': 'text/plain' })))
    t.strictSame(replies.map(({ status }) => status).sort(), [204, 409, 409, 409, 409, 409])
    const winner = texts[replies.findIndex(({ status }) => status === 204)]
    t.equal((await payloadOf(path)).text, winner)
  }
})

t.test('a payload is served in the content type that the client accepts, or 406', async t => {
  const text = `/v1/secrets/${await store()}`
  const body = { payload: '/wA=', payload_content_type: 'application/octet-stream', payload_content_encoding: 'base64' }
  const binary = `/v1/secrets/${await store(body)}`
  const TEXT = 'text/plain; charset=UTF-8'
  for (const [path, accept, expected] of [
    [text, '*/*', TEXT],
    [text, 'text/plain', TEXT],
    [text, 'text/plain;charset=utf-8', TEXT],
    [text, 'text/plain; charset=utf-8', TEXT],
    [text, 'application/octet-stream', 'application/octet-stream'],
    [text, 'application/pkcs8', 'application/pkcs8'],
    [text, 'application/pkix-cert', 'application/pkix-cert'],
    [binary, '*/*', 'application/octet-stream'],
    [binary, 'application/pkcs8', 'application/pkcs8'],
    [binary, 'text/plain', 406],
    [text, 'application/json', 406],
    [text, 'text/html', 406],
    [text, 'text/plain, */*', 406],
    [text, 'text/plain;q=0.5', 406],
  ] as const) {
    for (const [how, reply] of [
      ['by its path', await payloadOf(path, accept)],
      ['from the secret', await ask('GET', path, undefined, { headers: { Accept: accept } })],
    ] as const) {
      const label = `${accept} ${how}`
      if (how === 'from the secret' && ['*/*', 'application/json'].includes(accept)) {
        t.match(reply, { status: 200, body: { status: 'ACTIVE' } }, `${accept} requests the record`)
      } else if (expected === 406) {
        t.match(reply, { status: 406, body: { code: 406, description: null } }, label)
      } else {
        t.equal(reply.status, 200, label)
        t.equal(reply.headers.get('content-type'), expected, label)
      }
    }
  }
  const list = await ask('GET', text, undefined, { headers: { Accept: 'application/json, text/plain' } })
  t.equal(list.status, 406, 'a list of types requests a payload')
})

t.test('an empty Accept header requests the payload as bytes; a missing one means */*', async t => {
  const secret = await store({ payload: 'hello', payload_content_type: 'text/plain' })
  const raw = (path: string, ...lines: string[]) =>
    requestAsWritten(api.url, [`GET ${path} HTTP/1.1`, `X-Auth-Token: ${tokenOf('member')}`, ...lines])
  t.match(await raw(`/v1/secrets/${secret}/payload`), /text\/plain; charset=UTF-8\r\n[\s\S]*\r\n\r\nhello/)
  t.match(await raw(`/v1/secrets/${secret}/payload`, 'Accept: '), /application\/octet-stream\r\n[\s\S]*\r\n\r\nhello/)
  t.match(await raw(`/v1/secrets/${secret}`), /"secret_type"/)
  t.match(await raw(`/v1/secrets/${secret}`, 'Accept: '), /application\/octet-stream\r\n[\s\S]*\r\n\r\nhello/)
})

t.test('a request for a wrapped payload is refused rather than served unwrapped', async t => {
  const path = `/v1/secrets/${await store()}/payload`
  for (const query of ['trans_wrapped_session_key=x', `trans_wrapped_session_key=x&transport_key_id=${randomUUID()}`]) {
    const reply = await ask('GET', `${path}?${query}`)
    t.equal(reply.status, 400, query)
    t.notOk(reply.text.includes(CANARY))
  }
  const record = await ask('GET', `/v1/secrets/${await store()}?transport_key_needed=true`)
  t.equal(record.status, 200)
  t.notOk('transport_key_ref' in record.body)
})

t.test('a malformed or unknown secret id is 404', async t => {
  const id = await store()
  for (const other of [randomUUID(), id.toUpperCase(), id.replaceAll('-', ''), `${id}x`, 'x', "'--", '%ff%fe']) {
    const path = `/v1/secrets/${other}`
    for (const [method, below] of [
      ['GET', ''],
      ['DELETE', ''],
      ['GET', '/payload'],
      ['GET', '/metadata'],
      ['GET', '/metadata/k'],
      ['GET', '/consumers'],
    ] as const) {
      const { status, body } = await ask(method, path + below)
      // A path that is not percent-encoded UTF-8 is a bad request.
      t.match(
        { status, body },
        other === '%ff%fe' ? { status: 400 } : { status: 404, body: { code: 404 } },
        other + below,
      )
    }
  }
})

t.test('an expired secret is 404 everywhere', async t => {
  const id = await store({ payload: 'x', payload_content_type: 'text/plain', expiration: inSeconds(3600) })
  const path = `/v1/secrets/${id}`
  t.equal((await ask('GET', path)).status, 200)
  await database('secret')
    .where({ id })
    .update({ expiration: database.raw(`now() - interval '1 second'`) })
  for (const [method, below, body] of [
    ['GET', '', undefined],
    ['GET', '/payload', undefined],
    ['GET', '/metadata', undefined],
    ['PUT', '/metadata', { metadata: {} }],
    ['GET', '/acl', undefined],
    ['GET', '/consumers', undefined],
    ['DELETE', '', undefined],
  ] as const) {
    t.equal((await ask(method, path + below, body)).status, 404, method + below)
  }
  const list = (await ask('GET', '/v1/secrets?limit=100')).text
  t.notMatch(list, id)
})

t.test('an expiration with an offset is shown in UTC', async t => {
  for (const [given, shown] of [
    ['2999-01-01T02:00:00+02:00', '2999-01-01T00:00:00'],
    ['2999-01-01T00:00:00Z', '2999-01-01T00:00:00'],
    ['2999-01-01T00:00:00.250', '2999-01-01T00:00:00.250000'],
    ['2998-12-31 23:30-00:30', '2999-01-01T00:00:00'],
    ['9999-12-31T23:59:59', '9999-12-31T23:59:59'],
  ] as const) {
    const { body } = await post({ expiration: given })
    t.equal((await ask('GET', pathOf(body))).body.expiration, shown, given)
  }
})

t.test('deleting a secret removes its payload, metadata and consumers', async t => {
  const id = await store()
  const path = `/v1/secrets/${id}`
  await ask('PUT', `${path}/metadata`, { metadata: { a: 'b' } })
  await ask('POST', `${path}/consumers`, { service: 's', resource_type: 't', resource_id: 'r' })
  const gone = await ask('DELETE', path)
  t.match(gone, { status: 204, text: '' })
  t.equal((await ask('DELETE', path)).status, 404)
  const [row] = await database('secret').where({ id })
  t.match(row, { ciphertext: null, project_key_id: null, metadata: {}, deleted_at: Date })
  t.equal((await database('secret_consumer').where({ secret_id: id })).length, 0)
})

t.test('rights are checked before a request reveals anything', async t => {
  const secret = `/v1/secrets/${await store()}`
  const token = tokenOf('member', FOREIGN)
  const type = { 'Content-Type': 'text/plain' }
  t.equal(
    (await ask('PUT', secret, undefined, { raw: 'x', headers: type, token })).status,
    403,
    'rights are checked before the conflict',
  )
  const older = await ask('GET', secret, undefined, { headers: { Accept: 'text/plain' }, token })
  t.equal(older.status, 403)
  const audit = tokenOf('audit', OWN)
  t.equal((await ask('GET', secret, undefined, { token: audit })).status, 200, 'auditors see metadata')
  for (const headers of [{ Accept: 'text/plain' }, { Accept: 'application/octet-stream' }]) {
    const reply = await ask('GET', secret, undefined, { headers, token: audit })
    t.equal(reply.status, 403, 'no Accept header lets auditors read the payload')
  }
})

t.test('no payload is served if its read cannot be audited', async t => {
  const superuser = connect({ url: api.administratorUrl, applicationName: 'test', poolSize: 1 })
  t.teardown(() => superuser.destroy())
  const id = await store()
  await superuser.raw('ALTER TABLE key_manager_audit.audit_record RENAME TO audit_record_away')
  const reply = await payloadOf(`/v1/secrets/${id}`)
  await superuser.raw('ALTER TABLE key_manager_audit.audit_record_away RENAME TO audit_record')
  t.equal(reply.status, 500)
  t.notOk(reply.text.includes(CANARY))
  t.equal((await payloadOf(`/v1/secrets/${id}`)).text, CANARY)
})

t.test('each request runs a bounded number of statements', async t => {
  const id = await store()
  const path = `/v1/secrets/${id}`
  const count = async (body: () => Promise<unknown>) => (await statementsOf(body)).length
  t.equal(await count(() => store()), 1, 'store with a payload')
  t.equal(await count(() => post({})), 1, 'store without a payload')
  t.equal(await count(() => ask('GET', path)), 1, 'show')
  t.equal(await count(() => payloadOf(path)), 2, 'payload, with its audit record')
  t.equal(await count(() => ask('GET', '/v1/secrets?limit=100&name=%25&sort=name')), 1, 'list')
  t.equal(await count(() => ask('GET', '/v1/secrets', undefined, MICROVERSION('1.1'))), 1, 'list with consumers')
  t.equal(await count(() => ask('GET', `${path}/metadata`)), 1, 'user metadata')
  const empty = pathOf((await post({})).body)
  t.equal(await count(() => put(empty, 'x', { 'Content-Type': 'text/plain' })), 2, 'PUT of the payload')
})
