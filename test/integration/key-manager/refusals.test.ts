import t from 'tap'
import { FOREIGN, tokenOf } from '../../support/clients/callers.js'
import { startTestKeyManager } from '../../support/clients/key-manager-api.js'

const manager = await startTestKeyManager()
t.teardown(manager.stop)
const { ask, store } = manager

type Refusal = { what: string; method: string; path: string; body?: unknown; token?: string; says: RegExp }

const TYPES = /text\/plain, application\/octet-stream, application\/pkcs8, application\/pkix-cert/
const key = { algorithm: 'aes', bit_length: 256 }

t.test('a refusal names the member, the reason and the way out', async t => {
  const id = await store()
  const container = { name: 'c', type: 'rsa', secret_refs: [] }
  const rows: Refusal[] = [
    secret('a list instead of an object', [], /secret is invalid: it must be an object\.$/),
    secret('a number as a name', { name: 5 }, /"name" must be a string\.$/),
    ...[0, -5, 99999, 1.5, '256'].map(bits =>
      secret(`a bit length of ${bits}`, { bit_length: bits }, /"bit_length" must be a whole number from 1 to 32767\.$/),
    ),
    secret('a secret type that does not exist', { secret_type: 'x' }, /"secret_type" must be one of symmetric, /),
    secret('a payload without a type', { payload: 'x' }, TYPES),
    secret('a payload of another type', { payload: 'x', payload_content_type: 'text/html' }, TYPES),
    secret('no time', { expiration: 'soon' }, /expiration is not an ISO 8601 time such as 2030-01-31T12:00:00: "soon"/),
    order('no meta', { type: 'key' }, /order is invalid: "meta" is required\.$/),
    order('no type', { meta: key }, /"type" must be one of key, asymmetric, certificate\.$/),
    order(
      'a bit length of 0',
      { type: 'key', meta: { ...key, bit_length: 0 } },
      /"bit_length" must be a whole number from/,
    ),
    order('no algorithm', { type: 'key', meta: { bit_length: 256 } }, /"algorithm" is required\.$/),
    order('another type', { type: 'key', meta: { ...key, payload_content_type: 'text/html' } }, TYPES),
    {
      what: 'no references',
      method: 'POST',
      path: '/v1/containers',
      body: container,
      says: /rsa needs .*"public_key"/,
    },
    put('an unknown member', 'acl', { write: {} }, /ACL is invalid: it has unknown members: write\.$/),
    put('users that are no list', 'acl', { read: { users: 'me' } }, /"read\.users" must be a list\.$/),
    put(
      'access that is no boolean',
      'acl',
      { read: { 'project-access': 1 } },
      /"read\.project-access" must be true or false/,
    ),
    get('an unknown sort key', '/v1/secrets?sort=size', /sorted by "size", only by algorithm, bit_length, /),
    get('two upper bounds', '/v1/secrets?created=lt:2030-01-01,lte:2030-01-01', /one upper bound \(lt: or lte:\)/),
    get('an unknown path', '/v1/nothing', /\/docs lists the paths/),
    get(
      'another project’s secret',
      `/v1/secrets/${id}`,
      /"secret show" on an object of another project\.$/,
      tokenOf('member', FOREIGN),
    ),
    get('a role without rights', '/v1/secrets', /"secrets list" with the roles reader\.$/, tokenOf('reader')),
  ]
  function put(what: string, of: string, body: unknown, says: RegExp): Refusal {
    return { what, method: 'PUT', path: `/v1/secrets/${id}/${of}`, body, says }
  }
  for (const { what, method, path, body, token, says } of rows) {
    const reply = await ask(method, path, body, token === undefined ? {} : { token })
    t.match(reply.body, { code: reply.status, title: /./, description: says }, what)
    t.ok(reply.status >= 400 && reply.status < 500, `${what}: ${reply.status}`)
  }
})

t.test('a quota says what to do, and a private secret that it is private', async t => {
  const limited = await startTestKeyManager({ quota: { secrets: 1 } })
  t.teardown(limited.stop)
  const id = await limited.store()
  await limited.ask('PUT', `/v1/secrets/${id}/acl`, { read: { 'project-access': false } })
  const full = await limited.ask('POST', '/v1/secrets', {})
  t.match(full, { status: 403, body: { description: /quota of secrets: delete some, or ask an administrator/ } })
  const token = tokenOf('observer')
  const hidden = await limited.ask('GET', `/v1/secrets/${id}/payload`, undefined, { token })
  t.match(hidden, { status: 403, body: { description: /on a private object of another user/ } })
})

const secret = (what: string, body: unknown, says: RegExp): Refusal => ({
  what,
  method: 'POST',
  path: '/v1/secrets',
  body,
  says,
})
const order = (what: string, body: unknown, says: RegExp): Refusal => ({
  what,
  method: 'POST',
  path: '/v1/orders',
  body,
  says,
})
const get = (what: string, path: string, says: RegExp, token?: string): Refusal => ({
  ...{ what, method: 'GET', path, says },
  ...(token !== undefined && { token }),
})
