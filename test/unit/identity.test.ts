import fc from 'fast-check'
import t from 'tap'
import { isAllowedBy } from '../../controller/identity/access-rules.js'
import { fillTemplate } from '../../controller/identity/catalog.js'
import { seal, unseal } from '../../controller/identity/credential-seal.js'
import { locate } from '../../controller/identity/discovery.js'
import { hashPassword, verifyPassword } from '../../controller/identity/passwords.js'
import { callerFrom, isoTime, type TokenDocument } from '../../controller/identity/tokens/document.js'

const document: TokenDocument = {
  methods: ['password'],
  user: { id: 'u', name: 'demo', domain: { id: 'default', name: 'Default' }, password_expires_at: null },
  audit_ids: ['a'],
  issued_at: '2026-11-21T07:47:10.000000Z',
  expires_at: '2026-11-21T08:47:10.000000Z',
}
const project = { id: 'p1', name: 'demo', domain: { id: 'default', name: 'Default' } }

t.test('access rules', async t => {
  const allows = (path: string, request: string) =>
    isAllowedBy([{ service: 'load-balancer', method: 'GET', path }], {
      service: 'load-balancer',
      method: 'GET',
      path: request,
    })
  t.ok(allows('/v2/lbaas/loadbalancers', '/v2/lbaas/loadbalancers'))
  t.notOk(allows('/v2/lbaas/loadbalancers', '/v2/lbaas/loadbalancers/1'))
  t.ok(allows('/v2/lbaas/*', '/v2/lbaas/pools'))
  t.notOk(allows('/v2/lbaas/*', '/v2/lbaas/pools/1'), 'a star is one segment')
  t.notOk(allows('/v2/lbaas/*', '/v2/lbaas/'), 'and not an empty one')
  t.ok(allows('/v2/{kind}/pools/{id}', '/v2/lbaas/pools/1'))
  t.ok(allows('/v2/**', '/v2/lbaas/pools/1/members'))
  t.ok(allows('/v2/**/members', '/v2/lbaas/pools/1/members'))
  t.notOk(allows('/v2/**/members', '/v2/lbaas/pools/1/members/2'))
  t.ok(allows('/v2/**/a/**/b', '/v2/a/x/a/y/b'))
  t.notOk(allows('/v2/.*', '/v2/xy'), 'patterns are no regular expressions')
  const rule = { service: 'network', method: 'GET' as const, path: '/**' }
  t.notOk(isAllowedBy([rule], { service: 'load-balancer', method: 'GET', path: '/v2' }), 'another service')
  t.notOk(isAllowedBy([rule], { service: 'network', method: 'POST', path: '/v2' }), 'another method')
  t.notOk(isAllowedBy([], { service: 'network', method: 'GET', path: '/v2' }), 'no rule allows nothing')
})

t.test('hostile patterns cost little', async t => {
  for (const pattern of [`/${'**/a/'.repeat(25)}x`, `/**${'/a'.repeat(60)}/b`, `/**${'/{a}'.repeat(30)}/b`]) {
    const rules = Array.from({ length: 100 }, () => ({ service: 's', method: 'GET' as const, path: pattern }))
    const started = performance.now()
    t.notOk(isAllowedBy(rules, { service: 's', method: 'GET', path: '/a'.repeat(7500) }))
    t.ok(performance.now() - started < 10_000, pattern)
  }
})

t.test('endpoint templates', async t => {
  const scoped = { ...document, project, roles: [] }
  t.equal(fillTemplate('http://h/%(project_id)s/x', scoped), 'http://h/p1/x')
  t.equal(fillTemplate('http://h/$(tenant_id)s', scoped), 'http://h/p1')
  t.equal(fillTemplate('http://h/$(user_id)s', document), 'http://h/u')
  t.equal(fillTemplate('http://h/%(project_id)s', document), null, 'left out without a project')
  t.equal(fillTemplate('http://h/%(constructor)s', scoped), null)
  t.equal(fillTemplate('http://h:9311', document), 'http://h:9311')
})

t.test('where a request came to', async t => {
  const at = (publicUrl: string | null, host: string, path = '/v3') =>
    locate(publicUrl === null ? null : new URL(publicUrl), `http://${host}`, path)
  t.same(at(null, 'lab:5000'), { base: 'http://lab:5000', path: '/v3' })
  t.same(at(null, '[::1]:5000', '/'), { base: 'http://[::1]:5000', path: '/' })
  t.same(at(null, 'lab', '/identity/v3/users'), { base: 'http://lab/identity', path: '/v3/users' })
  t.same(at(null, 'lab', '/identity'), { base: 'http://lab/identity', path: '/' })
  t.same(at(null, 'lab', '/identityx'), { base: 'http://lab', path: '/identityx' })
  const proxy = 'https://id.example.org/keystone/v3'
  t.same(at(proxy, 'id.example.org', '/keystone/v3'), { base: 'https://id.example.org/keystone', path: '/v3' })
  t.same(at(proxy, 'inside:5000', '/v3'), { base: 'http://inside:5000', path: '/v3' }, 'another name, another href')
  t.same(at(null, 'lab', '/v3/identity'), { base: 'http://lab', path: '/v3/identity' })
})

t.test('passwords', async t => {
  const hash = await hashPassword('gehe!m')
  t.notMatch(hash, 'gehe!m')
  t.not(hash, await hashPassword('gehe!m'), 'salted')
  t.equal(await verifyPassword('gehe!m', hash), true)
  t.equal(await verifyPassword('gehe!M', hash), false)
  t.equal(await verifyPassword('', null), false)
  t.equal(await verifyPassword('x', undefined), false)
  t.equal(await verifyPassword('x', 'not a hash'), false)
})

t.test('a flood of guesses is sent away, and ends', async t => {
  const outcomes = await Promise.allSettled(Array.from({ length: 70 }, () => verifyPassword('guess', null)))
  const refused = outcomes.flatMap(outcome => (outcome.status === 'rejected' ? [outcome.reason] : []))
  t.equal(refused.length, 4)
  for (const error of refused) t.match(error, { status: 503, headers: { 'Retry-After': '5' } })
  t.equal(await verifyPassword('guess', null), false, 'the next one is answered again')
})

t.test('a sealed blob opens with its own key and id only', async t => {
  const key = Buffer.alloc(32, 1)
  fc.assert(fc.property(fc.string({ unit: 'grapheme' }), blob => unseal(key, 'id', seal(key, 'id', blob)) === blob))
  const sealed = seal(key, 'id', 'secret')
  t.notOk(sealed.includes('secret'))
  t.throws(() => unseal(Buffer.alloc(32, 2), 'id', sealed))
  t.throws(() => unseal(key, 'other', sealed))
  const last = sealed.length - 1
  sealed[last] = sealed[last]! ^ 1
  t.throws(() => unseal(key, 'id', sealed))
})

t.test('a document becomes the caller that the services know', async t => {
  const expiresAt = new Date()
  t.same(callerFrom({ ...document, project, roles: [{ id: 'r', name: 'Load-Balancer_Member' }] }, expiresAt), {
    user: { id: 'u', name: 'demo', domain: { id: 'default', name: 'Default' } },
    project,
    domain: null,
    system: false,
    roles: ['load-balancer_member'],
    expiresAt,
  })
  t.match(callerFrom({ ...document, system: { all: true }, roles: [] }, expiresAt), { system: true, project: null })
  t.same(callerFrom(document, expiresAt).roles, [])
})

t.test('times have microseconds', async t => {
  t.equal(isoTime(new Date(Date.UTC(2026, 10, 21, 7, 47, 10, 5))), '2026-11-21T07:47:10.005000Z')
})
