import t from 'tap'
import { FOREIGN, tokenOf } from '../../support/clients/callers.js'
import { startTestKeyManager } from '../../support/clients/key-manager-api.js'

const { ask, store, database, stop } = await startTestKeyManager()
t.teardown(stop)

t.test('a secret reads back as it was stored, until it is deleted', async t => {
  const stored = await ask('POST', '/v1/secrets/', {
    name: 'AES',
    secret_type: 'symmetric',
    algorithm: 'aes',
    bit_length: 256,
    mode: 'cbc',
    payload: Buffer.from([0, 1, 254, 255]).toString('base64'),
    payload_content_type: 'application/octet-stream',
    payload_content_encoding: 'base64',
  })
  t.equal(stored.status, 201)
  t.equal(stored.headers.get('location'), stored.body.secret_ref)
  const path = new URL(String(stored.body.secret_ref)).pathname
  const shown = await ask('GET', path)
  t.equal(shown.status, 200)
  t.match(shown.body, {
    name: 'AES',
    status: 'ACTIVE',
    secret_type: 'symmetric',
    algorithm: 'aes',
    bit_length: 256,
    mode: 'cbc',
    expiration: null,
    creator_id: 'user-member',
    content_types: { default: 'application/octet-stream' },
    secret_ref: stored.body.secret_ref,
    created: /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?$/,
  })
  t.notOk('consumers' in shown.body)
  t.notMatch(shown.text, 'AAH+')
  const payload = await ask('GET', `${path}/payload`)
  t.equal(payload.status, 200)
  t.same([...payload.bytes], [0, 1, 254, 255])
  t.equal(payload.headers.get('content-type'), 'application/octet-stream')
  t.match((await ask('GET', '/v1/secrets')).body, { total: 1, secrets: [{ name: 'AES' }] })
  t.equal((await ask('DELETE', path)).status, 204)
  t.equal((await ask('GET', path)).status, 404)
  t.equal((await ask('GET', `${path}/payload`)).status, 404)
})

t.test('another project cannot see or delete a secret', async t => {
  const id = await store()
  const token = tokenOf('member', FOREIGN)
  t.equal((await ask('GET', `/v1/secrets/${id}`, undefined, { token })).status, 403)
  t.equal((await ask('GET', `/v1/secrets/${id}/payload`, undefined, { token })).status, 403)
  t.equal((await ask('DELETE', `/v1/secrets/${id}`, undefined, { token })).status, 403)
  t.match((await ask('GET', '/v1/secrets', undefined, { token })).body, { total: 0, secrets: [] })
})

t.test('the database holds no payload in clear text', async t => {
  await store({ payload: 'a canary in a coal mine', payload_content_type: 'text/plain' })
  const { rows } = await database.raw(`SELECT string_agg(s::text, '') AS text FROM secret s`)
  t.notMatch(rows[0].text, Buffer.from('a canary in a coal mine').toString('hex'))
  t.notMatch(rows[0].text, 'canary')
})

t.test('the version document follows the requested microversion', async t => {
  const root = await ask('GET', '/', undefined, { token: null })
  t.equal(root.status, 300)
  t.match(root.body, { versions: { values: [{ id: 'v1', status: 'stable' }] } })
  const newer = await ask('GET', '/', undefined, {
    token: null,
    headers: { 'OpenStack-API-Version': 'key-manager 1.1' },
  })
  t.match(newer.body, { versions: [{ id: 'v1', status: 'CURRENT', min_version: '1.0', max_version: '1.2' }] })
  t.equal((await ask('GET', '/v1', undefined, { token: null })).status, 401)
  t.match((await ask('GET', '/v1/')).body, { version: { id: 'v1' } })
  t.equal((await ask('GET', '/v1', undefined, { headers: { 'OpenStack-API-Version': 'key-manager 1.3' } })).status, 406)
  t.equal((await ask('HEAD', '/v1')).status, 405)
})
