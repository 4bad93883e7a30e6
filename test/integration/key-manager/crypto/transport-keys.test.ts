import { randomUUID } from 'node:crypto'
import t from 'tap'
import { tokenOf } from '../../../support/clients/callers.js'
import { startTestKeyManager } from '../../../support/clients/key-manager-api.js'

const { ask, statementsOf, url, stop } = await startTestKeyManager()
t.teardown(stop)

const token = tokenOf('key-manager:service-admin')
const make = (body: unknown) => ask('POST', '/v1/transport_keys', body, { token })
const get = (path: string) => ask('GET', path, undefined, { token })

t.test('a transport key reads back as created, until it is deleted', async t => {
  const body = { plugin_name: 'some plugin', transport_key: 'MIIB', surplus: 1 }
  const made = await make(body)
  t.equal(made.status, 201)
  const ref = String(made.body.transport_key_ref)
  t.equal(made.headers.get('location'), ref)
  const { pathname } = new URL(ref)
  const shown = await get(pathname)
  t.equal(shown.status, 200)
  const { created, updated, ...rest } = shown.body
  t.match(created, /^\d{4}-\d\d-\d\dT/)
  t.equal(created, updated)
  t.same(rest, { transport_key_ref: ref, plugin_name: 'some plugin', transport_key: 'MIIB', status: 'ACTIVE' })
  t.equal((await ask('DELETE', pathname, undefined, { token })).status, 204)
  t.equal((await ask('DELETE', pathname, undefined, { token })).status, 404)
  t.equal((await get(pathname)).status, 404)
})

t.test('POST validates its body; an unknown id is 404', async t => {
  const whole = { plugin_name: 'p', transport_key: 'k' }
  const wrong = [
    ...[
      {},
      { plugin_name: 'p' },
      { transport_key: 'k' },
      { ...whole, plugin_name: ' ' },
      { ...whole, transport_key: '' },
    ],
    ...[
      { ...whole, plugin_name: null },
      { ...whole, transport_key: 1 },
      { ...whole, plugin_name: 'p'.repeat(256) },
    ],
    ...[{ ...whole, transport_key: '\0' }, [], null],
  ]
  for (const body of wrong) t.equal((await make(body)).status, 400, JSON.stringify(body))
  t.equal((await ask('POST', '/v1/transport_keys', undefined, { token, raw: '{}' })).status, 415)
  for (const id of ['x', randomUUID()]) {
    t.equal((await get(`/v1/transport_keys/${id}`)).status, 404)
    t.equal((await ask('DELETE', `/v1/transport_keys/${id}`, undefined, { token })).status, 404)
  }
})

t.test('the list shows references, filters by plugin name and pages', async t => {
  const refs: string[] = []
  for (const plugin_name of ['a', 'b', 'a']) {
    refs.push(String((await make({ plugin_name, transport_key: 'k' })).body.transport_key_ref))
  }
  t.same((await get('/v1/transport_keys')).body, { transport_keys: refs, total: 3 })
  t.same((await get('/v1/transport_keys?plugin_name=a')).body, { transport_keys: [refs[0], refs[2]], total: 2 })
  t.same((await get('/v1/transport_keys?plugin_name=%25')).body, { transport_keys: [], total: 0 })
  t.equal((await get('/v1/transport_keys?plugin_name=%00')).status, 400)
  t.same((await get('/v1/transport_keys?limit=1&offset=1')).body, {
    transport_keys: [refs[1]],
    total: 3,
    previous: `${url}/v1/transport_keys?limit=1&offset=0`,
    next: `${url}/v1/transport_keys?limit=1&offset=2`,
  })
  t.equal((await statementsOf(() => get('/v1/transport_keys'))).length, 1)
})

t.test('only a service administrator creates transport keys; auditors may list them', async t => {
  const body = { plugin_name: 'p', transport_key: 'k' }
  for (const role of ['member', 'creator', 'audit', 'reader']) {
    t.equal((await ask('POST', '/v1/transport_keys', body, { token: tokenOf(role) })).status, 403, role)
  }
  t.equal((await ask('GET', '/v1/transport_keys', undefined, { token: tokenOf('audit') })).status, 200)
  t.equal((await ask('GET', '/v1/transport_keys', undefined, { token: tokenOf('nobody') })).status, 403)
})
