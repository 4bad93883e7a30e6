import t, { type Test } from 'tap'
import type { ExternalIdentity } from '../../../controller/identity/external/external-identity.js'
import { createTokenCache } from '../../../controller/identity/external/token-cache.js'
import { callerOfToken, readTokenDocument } from '../../../controller/identity/external/token-document.js'
import type { Logger } from '../../../controller/log/log.js'
import { recordLog } from '../../support/recorded-log.js'
import { validatorAt } from '../../support/services/external-identity.js'
import { answer, notFound, startFakeKeystone, tokenDocument } from '../../support/services/fake-keystone.js'

/** A fake Keystone and a validator that uses it. */
async function scene(t: Test, settings: Partial<ExternalIdentity> = {}, log?: Logger) {
  const keystone = await startFakeKeystone(t)
  const validator = validatorAt(keystone.url, settings, log)
  t.teardown(validator.close)
  return { keystone, validate: validator.validate, signIn: validator.signIn }
}

t.test('a token document becomes a caller', async t => {
  const caller = (members: object) => callerOfToken(readTokenDocument(tokenDocument(members))!)
  t.match(caller({}), {
    user: { id: 'u1', name: 'alice', domain: { id: 'default', name: 'Default' } },
    project: { id: 'p1', name: 'service', domain: { id: 'default', name: 'Default' } },
    domain: null,
    system: false,
    roles: ['member'],
  })
  t.match(caller({ project: undefined, roles: undefined }), { project: null, domain: null, system: false, roles: [] })
  t.match(caller({ project: undefined, domain: { id: 'd', name: 'D' } }), { project: null, domain: { id: 'd' } })
  t.match(caller({ project: undefined, system: { all: true } }), { project: null, system: true })
  t.equal(caller({}).accessRules, undefined)
  t.same(
    caller({ expires_at: '2036-11-21T08:47:10' }).expiresAt,
    new Date('2036-11-21T08:47:10Z'),
    'a time without a zone is UTC',
  )
  const rule = { id: 'x', service: 'load-balancer', method: 'GET', path: '/v2/**' }
  const rules = [rule, { ...rule, service: 'compute' }, { ...rule, method: 'BREW' }, 'nonsense']
  const catalog = [{ type: 'load-balancer', id: 'c', name: 'octavia', endpoints: [] }]
  t.same(
    caller({ application_credential: { id: 'c', name: 'c', restricted: true, access_rules: rules }, catalog })
      .accessRules,
    [{ service: 'load-balancer', method: 'GET', path: '/v2/**' }],
    'only valid rules for services in the catalogue count',
  )
  t.same(caller({ application_credential: { access_rules: [rule] } }).accessRules, [], 'no rules without a catalogue')
  for (const body of [
    undefined,
    null,
    [],
    {},
    { token: {} },
    { token: { ...tokenDocument().token, expires_at: 'soon' } },
  ]) {
    t.equal(readTokenDocument(body), null)
  }
})

t.test('many requests with one token cause one validation', async t => {
  const { keystone, validate } = await scene(t)
  const callers = await Promise.all(Array.from({ length: 60 }, () => validate('good')))
  t.ok(callers.every(caller => caller?.user.id === 'u1'))
  t.same(keystone.asked, { login: 1, validate: 1 })
  await validate('good')
  t.equal(keystone.asked.validate, 1, 'later requests use the cache')
  t.same(keystone.queries, ['?nocatalog'])
})

t.test('without caching, every use is validated', async t => {
  const { keystone, validate } = await scene(t, { tokenCacheSeconds: 0 })
  for (let times = 0; times < 3; times++) t.ok(await validate('good'))
  t.equal(keystone.asked.validate, 3)
})

t.test('a recently expired token is valid together with a service token', async t => {
  const { keystone, validate } = await scene(t)
  keystone.validate = (request, response, body) =>
    request.url?.includes('allow_expired=1')
      ? answer(response, 200, tokenDocument({}, -100))
      : notFound(request, response, body)
  t.equal(await validate('good'), null)
  t.match(await validate('good', { allowExpired: true }), { user: { id: 'u1' } })
  t.equal(await validate('good'), null, 'it is not valid without a service token, even though it is cached')
})

t.test('invalid tokens are cached, and malformed ones are not sent to Keystone', async t => {
  const { keystone, validate } = await scene(t)
  for (let times = 0; times < 5; times++) t.equal(await validate('bad'), null)
  t.equal(keystone.asked.validate, 1)
  for (const token of ['', 'a b', 'a\r\nX-Auth-Token: b', 'schlüssel', 'x'.repeat(8193)]) {
    t.equal(await validate(token), null)
  }
  t.equal(keystone.asked.validate, 1)
})

t.test('tokens with access rules are fetched with the catalogue', async t => {
  const { keystone, validate } = await scene(t)
  const rule = { id: 'x', service: 'load-balancer', method: 'GET', path: '/v2/**' }
  keystone.validate = (request, response) => {
    t.equal(request.headers['openstack-identity-access-rules'], '1')
    const catalog = request.url?.includes('nocatalog') ? undefined : [{ type: 'load-balancer', endpoints: [] }]
    answer(response, 200, tokenDocument({ application_credential: { access_rules: [rule] }, catalog }))
  }
  t.match(await validate('good'), { accessRules: [{ service: 'load-balancer' }] })
  t.same(keystone.queries, ['?nocatalog', ''])
})

t.test('connections are reused', async t => {
  const { keystone, validate } = await scene(t)
  for (let times = 0; times < 10; times++) await validate(`good-${times}`)
  t.equal(keystone.connections(), 1)
})

t.test('a clock difference is logged once', async t => {
  for (const [hours, words] of [
    [2, /^Keystone's clock is 7(200|199|201) s ahead of this machine's/],
    [-2, /^Keystone's clock is 7(200|199|201) s behind this machine's/],
    [0, null],
  ] as const) {
    const recorded = recordLog()
    const { keystone, validate } = await scene(t, {}, recorded.log)
    keystone.validate = (_, response) =>
      answer(response, 200, tokenDocument(), { Date: new Date(Date.now() + hours * 3_600_000).toUTCString() })
    for (let times = 0; times < 3; times++) await validate(`good-${times}`)
    const warnings = recorded.lines.filter(({ level }) => level === 40).map(({ msg }) => msg)
    if (words === null) t.same(warnings, [])
    else {
      t.equal(warnings.length, 1)
      t.match(warnings[0], words)
    }
  }
})

t.test('a service user without the role to validate tokens is logged', async t => {
  const recorded = recordLog()
  const { keystone, signIn } = await scene(t, {}, recorded.log)
  keystone.login = (_, response) => answer(response, 201, tokenDocument(), { 'X-Subject-Token': 'own' })
  await signIn()
  t.match(recorded.text(), /has none of the roles service, admin/)
})

t.test('the token cache evicts the least recently used entry and expires entries', async t => {
  const cache = createTokenCache<number>(2)
  const later = performance.now() + 60_000
  cache.put('a', 1, later)
  cache.put('b', 2, later)
  cache.get('a')
  cache.put('c', 3, later)
  t.same([cache.get('a'), cache.get('b'), cache.get('c')], [1, undefined, 3])
  cache.put('a', 1, performance.now() - 1)
  t.equal(cache.get('a'), undefined)
})
