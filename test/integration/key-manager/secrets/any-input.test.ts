import { randomUUID } from 'node:crypto'
import fc from 'fast-check'
import t from 'tap'
import * as z from 'zod'
import { tokenOf } from '../../../support/clients/callers.js'
import { type AskOptions, type KeyManagerReply, startTestKeyManager } from '../../../support/clients/key-manager-api.js'
import { anyText } from '../../../support/inputs/any-text.js'
import { attemptUntilDone, wellFormed } from '../../../support/inputs/arbitrary-input.js'
import { keyManagerRoutes, type Route } from '../../../support/inputs/key-manager-routes.js'

const api = await startTestKeyManager()
const { ask, store } = api
t.teardown(api.stop)

const routes = [...keyManagerRoutes.keys()].filter(
  route => / \/v1(\/secrets.*)?$/.test(route) && !route.endsWith('/acl'),
)

/** Text that often breaks programs. */
const HOSTILE = [
  ...[
    '',
    ' ',
    '\0',
    'a\0b',
    '\ud800',
    '\udc00x',
    '\ufeff',
    '\u202e',
    '%',
    '_',
    '\\',
    "'; DROP TABLE secret; --",
    '?',
    '$1',
  ],
  ...[
    'x'.repeat(256),
    '😀'.repeat(255),
    '-1',
    '0',
    '1e400',
    '99999999999999999999',
    'NaN',
    'true',
    'null',
    '[]',
    '__proto__',
  ],
  ...[
    '9999-12-31T23:59:59.999999',
    '0000-00-00',
    '2026-02-30T25:61:61',
    '-4713-01-01',
    '294277-01-01',
    '2999-01-01+99:99',
  ],
]
const hostile = fc.oneof(
  { weight: 3, arbitrary: fc.constantFrom(...HOSTILE) },
  { weight: 1, arbitrary: anyText({ maxLength: 60 }) },
)
const TIMES = ['2999-01-01T00:00:00', '2999-12-31T23:59:59+14:00', '2020-01-01']
const BASE64 = Buffer.from('a payload').toString('base64')
const TYPES = [
  'text/plain',
  'text/plain;charset=utf-8',
  'application/octet-stream',
  'application/pkcs8',
  'application/pkix-cert',
]

/** A value that is mostly valid and sometimes arbitrary. */
const mostly = (...good: unknown[]) =>
  fc.oneof(
    { weight: 40, arbitrary: fc.constantFrom<unknown>(...good) },
    { weight: 1, arbitrary: hostile },
    { weight: 1, arbitrary: fc.jsonValue() },
  )
const BODIES: Readonly<Record<string, fc.Arbitrary<unknown>>> = {
  secrets: fc.record(
    {
      name: mostly('a', null, 'ü'),
      secret_type: mostly('opaque', 'private'),
      algorithm: mostly('aes'),
      bit_length: mostly(256, 1),
      mode: mostly('cbc'),
      expiration: mostly(...TIMES),
      payload: mostly('hello', BASE64),
      payload_content_type: mostly(...TYPES),
      payload_content_encoding: mostly('base64'),
      transport_key_needed: mostly('false'),
    },
    { requiredKeys: ['payload', 'payload_content_type'] },
  ),
  metadata: fc.record({ metadata: fc.dictionary(mostly('k', 'a-b').map(String), mostly('v')) }),
  pair: fc.record({ key: fc.oneof(mostly('k'), fc.stringMatching(/^[a-z]{6}$/)), value: mostly('v') }),
  consumers: fc.record({ service: mostly('s'), resource_type: mostly('t'), resource_id: mostly('r', 'r2') }),
}

function bodyOf(route: Route): fc.Arbitrary<string | Buffer | undefined> {
  if (route.startsWith('GET')) return fc.constant(undefined)
  const [, , , , below, key] = route.split('/')
  const kind =
    route === 'POST /v1/secrets'
      ? 'secrets'
      : below === 'metadata' && route.startsWith('PUT') && !key
        ? 'metadata'
        : below
  const good = BODIES[kind === 'metadata' && !(route.startsWith('PUT') && !key) ? 'pair' : (kind ?? '')]
  const bytes = fc.uint8Array({ maxLength: 100 }).map(array => Buffer.from(array))
  // JSON.stringify escapes lone surrogates, so they reach the API.
  return fc.oneof(
    { weight: good === undefined ? 0 : 12, arbitrary: (good ?? fc.constant(null)).map(value => JSON.stringify(value)) },
    { weight: 1, arbitrary: fc.jsonValue().map(value => JSON.stringify(value)) },
    { weight: good === undefined ? 6 : 1, arbitrary: bytes },
    { weight: 1, arbitrary: fc.constantFrom('', '{', BASE64, '{"a":'.repeat(40), `"${'x'.repeat(26_000)}"`) },
  )
}

const segment = hostile.map(text => encodeURIComponent(wellFormed(text)) || '%20')
function pathOf(route: Route, ids: readonly string[]): fc.Arbitrary<string> {
  const parts = (route.split(' ')[1] ?? '').split('/').map(part => {
    if (!part.startsWith(':')) return fc.constant(part)
    const present = part === ':key' ? ['k', 'a-b'] : ids
    return fc.oneof(
      { weight: 10, arbitrary: fc.constantFrom(...present) },
      { weight: 1, arbitrary: fc.constantFrom(randomUUID(), '%E0%A4%A', '%00', '..%2f', '%25', '%2500') },
      { weight: 1, arbitrary: segment },
    )
  })
  return fc.tuple(...parts).map(all => all.join('/'))
}

const PARAMETERS = [
  ...[
    'limit',
    'offset',
    'name',
    'alg',
    'mode',
    'bits',
    'secret_type',
    'created',
    'updated',
    'expiration',
    'sort',
    'acl_only',
  ],
  ...['expiring_in_days', 'force', 'transport_key_needed', 'transport_key_id', 'trans_wrapped_session_key', 'x'],
]
const GOOD_VALUES = ['1', 'true', 'name:desc', 'gt:2020-01-01T00:00:00,lt:2999-01-01', 'a%', 'opaque']
const query = fc.oneof(
  { weight: 2, arbitrary: fc.constant('') },
  {
    weight: 2,
    arbitrary: fc
      .array(fc.tuple(fc.constantFrom(...PARAMETERS), fc.oneof(hostile, fc.constantFrom(...GOOD_VALUES))), {
        maxLength: 3,
      })
      .map(pairs => `?${pairs.map(([name, value]) => `${name}=${encodeURIComponent(wellFormed(value))}`).join('&')}`),
  },
  { weight: 1, arbitrary: fc.constantFrom('?name=%', '?name=%E0%A4%A', '?%=%&&==', '?name=%ff', '?sort', '?=') },
)

/** Text that an HTTP header can carry. */
const headerText = fc.stringMatching(/^[!-~]([ -~\xa1-\xff]{0,20}[!-~])?$/)
const headersOf = (route: Route): fc.Arbitrary<Record<string, string>> => {
  const isUpload = route === 'PUT /v1/secrets/:id'
  const sometimes = (...values: string[]) =>
    fc.oneof({ weight: 12, arbitrary: fc.constantFrom(...values) }, { weight: 1, arbitrary: headerText })
  return fc.record(
    {
      'Content-Type': sometimes(...(isUpload ? TYPES : ['application/json', 'application/json; charset=utf-8'])),
      Accept: sometimes('*/*', '*/*', '*/*', 'application/json', 'application/json', 'text/plain'),
      'Content-Encoding': sometimes('base64', 'identity'),
      'OpenStack-API-Version': sometimes('key-manager 1.0', 'key-manager 1.2', 'key-manager latest', 'compute 2.1'),
      'X-Forwarded-Host': headerText,
    },
    { requiredKeys: ['Content-Type'] },
  )
}

/** Words of the validation library, which say nothing to a client. */
const FOREIGN_WORDS = /Invalid (input|option)|expected .* received/
const description = z
  .string()
  .min(1)
  .refine(text => !FOREIGN_WORDS.test(text))
  .nullable()
const fault = z.strictObject({ code: z.int(), title: z.string().min(1), description })
const versionFault = z.strictObject({ code: z.string(), title: z.string(), message: z.string() })

/** Deletions run last, so that other routes find their objects. */
const LATE: readonly string[] = [
  'DELETE /v1/secrets/:id/metadata/:key',
  'DELETE /v1/secrets/:id/consumers',
  'DELETE /v1/secrets/:id',
]

t.test('any request about secrets gets an answer in the API’s format, never an unexpected error', async t => {
  const tally = new Map<number, number>()
  const succeeded = new Set<Route>()
  const check = (reply: KeyManagerReply, request: string) => {
    tally.set(reply.status, (tally.get(reply.status) ?? 0) + 1)
    if (reply.status >= 500) throw new Error(`${request}: ${reply.status} ${reply.text}`)
    if (reply.status < 400) return true
    const { success, data } = z.union([fault, versionFault]).safeParse(reply.body)
    if (!success) throw new Error(`${request}: ${reply.text}`)
    if (typeof data.code === 'number' && data.code !== reply.status) throw new Error(`${request}: ${reply.text}`)
    return false
  }
  const consumer = { service: 's', resource_type: 't', resource_id: 'r' }
  const setUp = async () => {
    const id = await store()
    await ask('PUT', `/v1/secrets/${id}/metadata`, { metadata: { k: 'v', 'a-b': 'w' } })
    const registered = await ask('POST', `/v1/secrets/${id}/consumers`, consumer)
    return { id, consumerId: String(registered.headers.get('location')).slice(-36) }
  }
  const { id, consumerId } = await setUp()

  for (const route of [...routes].sort((a, b) => LATE.indexOf(a) - LATE.indexOf(b))) {
    await t.test(route, async () => {
      const [method = ''] = route.split(' ')
      const isDestructive = route === 'DELETE /v1/secrets/:id' || route === 'PUT /v1/secrets/:id'
      // A payload is stored once and a secret deleted once, so these routes need more secrets.
      const spare = isDestructive ? await Promise.all(Array.from({ length: 12 }, () => store({}))) : []
      const ids = isDestructive ? spare : [id]
      const path =
        route === 'GET /v1/secrets/:id/consumers/:consumer'
          ? fc.oneof(fc.constant(`/v1/secrets/${id}/consumers/${consumerId}`), pathOf(route, ids))
          : pathOf(route, ids)
      const request = fc.record({
        path,
        query,
        headers: headersOf(route),
        raw: bodyOf(route),
        token: fc.constantFrom(...['member', 'creator', 'admin', 'admin', 'reader'].map(role => tokenOf(role))),
      })
      await attemptUntilDone(
        request,
        async ({ path: where, query: what, headers, raw, token }) => {
          const options: AskOptions = { headers, token, ...(raw === undefined ? {} : { raw }) }
          const reply = await ask(method, where + what, undefined, options)
          if (check(reply, `${method} ${where}${what} ${JSON.stringify({ ...options, raw: String(raw) })}`)) {
            succeeded.add(route)
          }
        },
        () => succeeded.has(route),
        { numRuns: route === 'GET /v1/secrets' || route === 'POST /v1/secrets' ? 100 : 50 },
      )
    })
  }

  await t.test('unknown paths and the root', async () => {
    await fc.assert(
      fc.asyncProperty(fc.webPath(), fc.constantFrom('', '/v1', '/v1/secrets'), async (path, prefix) => {
        check(await ask('GET', prefix + path), prefix + path)
      }),
      { numRuns: 40 },
    )
    for (const path of ['//', '/v1//secrets', '/v1/secrets/%E0%A4%A', '/v1/secrets/..%2f..', '/?build=%00', '/v1?%']) {
      check(await ask('GET', path), path)
    }
  })

  t.strictSame(
    routes.filter(route => !succeeded.has(route)),
    [],
    'every route succeeds at least once',
  )
  t.ok((tally.get(201) ?? 0) > 20 && (tally.get(400) ?? 0) > 50, JSON.stringify([...tally]))
})
