import t from 'tap'
import { FOREIGN, tokenOf } from '../../../support/clients/callers.js'
import { startTestKeyManager } from '../../../support/clients/key-manager-api.js'
import { orderHelpers } from '../../../support/worlds/order-worker.js'

const keyManager = await startTestKeyManager({ quota: { orders: 40 } })
const { ask, database, keyring, statementsOf, stop } = keyManager
const { order, show } = orderHelpers(keyManager)
t.teardown(stop)

const AES = { name: 'k', algorithm: 'AES', bit_length: 256, mode: 'cbc' }

t.test('POST answers with the order’s reference alone; GET shows the fields that clients know', async t => {
  const reply = await ask('POST', '/v1/orders', {
    type: 'key',
    meta: { ...AES, payload_content_type: 'application/octet-stream', expiration: null, unknown: 1 },
    unknown: 'too',
  })
  t.equal(reply.status, 202)
  t.same(Object.keys(reply.body), ['order_ref'])
  t.equal(reply.headers.get('location'), reply.body.order_ref)
  const record = await show(String(reply.body.order_ref).slice(-36))
  t.same(Object.keys(record).sort(), ['created', 'creator_id', 'meta', 'order_ref', 'status', 'type', 'updated'])
  t.match(record, {
    status: 'PENDING',
    type: 'key',
    creator_id: 'user-member',
    order_ref: reply.body.order_ref,
    created: /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?$/,
  })
  t.equal(record.created, record.updated)
  t.same(record.meta, {
    name: 'k',
    algorithm: 'AES',
    bit_length: 256,
    mode: 'cbc',
    payload_content_type: 'application/octet-stream',
    expiration: null,
  })
})

t.test('name and expiration are shown even when not given', async t => {
  const bare = await show(await order('key', { algorithm: 'aes', bit_length: 128 }))
  t.same(bare.meta, { name: null, algorithm: 'aes', bit_length: 128, expiration: null })
  const ending = await show(await order('key', { ...AES, expiration: '2130-01-01T02:00:00+02:00' }))
  t.match(ending.meta, { expiration: '2130-01-01T00:00:00' })
})

t.test('POST refuses invalid key orders', async t => {
  const refused: [string, unknown][] = [
    ['a list', []],
    ['no type', { meta: AES }],
    ['no meta', { type: 'key' }],
    ['an unknown type', { type: 'Key', meta: AES }],
    ['meta that is a list', { type: 'key', meta: [] }],
    ['no algorithm', { type: 'key', meta: { bit_length: 256 } }],
    ['an empty algorithm', { type: 'key', meta: { ...AES, algorithm: ' ' } }],
    ['no length', { type: 'key', meta: { algorithm: 'aes' } }],
    ['a length as a string', { type: 'key', meta: { ...AES, bit_length: '256' } }],
    ['a length that is not a multiple of 8', { type: 'key', meta: { ...AES, bit_length: 255 } }],
    ['a negative length', { type: 'key', meta: { ...AES, bit_length: -8 } }],
    ['a huge length', { type: 'key', meta: { ...AES, bit_length: 32768 } }],
    ['a payload', { type: 'key', meta: { ...AES, payload: 'x' } }],
    ['an unknown content type', { type: 'key', meta: { ...AES, payload_content_type: 'text/html' } }],
    ['an expiration in the past', { type: 'key', meta: { ...AES, expiration: '2020-01-01' } }],
    ['an expiration that is not a time', { type: 'key', meta: { ...AES, expiration: 'soon' } }],
    ['a long name', { type: 'key', meta: { ...AES, name: 'x'.repeat(256) } }],
    ['a NUL', { type: 'key', meta: { ...AES, name: 'a\0b' } }],
  ]
  for (const [what, body] of refused) t.equal((await ask('POST', '/v1/orders', body)).status, 400, what)
  t.equal(
    (await ask('POST', '/v1/orders', undefined, { raw: '{}', headers: { 'Content-Type': 'text/plain' } })).status,
    415,
  )
})

t.test('POST refuses invalid key pair orders', async t => {
  const ec = { algorithm: 'EC', bit_length: 521 }
  const refused: [string, unknown][] = [
    ['an unknown curve', { ...ec, curve: 'secp256k1' }],
    ['a curve that does not match bit_length', { ...ec, curve: 'prime256v1' }],
    ['a passphrase that is not a string', { ...ec, passphrase: 7 }],
    ['a passphrase that is too long', { ...ec, pass_phrase: 'x'.repeat(1001) }],
    ['an RSA length that is not a multiple of 8', { algorithm: 'rsa', bit_length: 2047 }],
  ]
  for (const [what, meta] of refused) {
    t.equal((await ask('POST', '/v1/orders', { type: 'asymmetric', meta })).status, 400, what)
  }
  const record = await show(await order('asymmetric', { ...ec, curve: 'secp521r1' }))
  t.same(record.meta, { name: null, algorithm: 'EC', bit_length: 521, expiration: null }, 'the curve is not shown')
})

t.test('a passphrase is stored encrypted and never shown', async t => {
  for (const member of ['passphrase', 'pass_phrase']) {
    const id = await order('asymmetric', { algorithm: 'rsa', bit_length: 2048, [member]: 'correct horse' })
    t.notMatch(JSON.stringify(await show(id)), /passphrase|pass_phrase|correct horse/)
    const row = await database('secret_order').where({ id }).first()
    t.notMatch(JSON.stringify(row), 'correct horse')
    t.notMatch(row.sealed_passphrase.toString('latin1'), 'correct horse')
    const key = await database('project_key').where({ id: row.project_key_id }).first()
    const sealed = {
      ciphertext: row.sealed_passphrase,
      key: { id: key.id, wrapped: key.wrapped, masterKeyId: key.master_key_id },
      backend: key.backend,
    }
    t.equal((await keyring.open(sealed, `passphrase of order ${id}`)).toString(), 'correct horse')
    await t.rejects(keyring.open(sealed, 'passphrase of order another'))
  }
  const none = await order('asymmetric', { algorithm: 'rsa', bit_length: 2048, passphrase: '' })
  t.equal((await database('secret_order').where({ id: none }).first()).sealed_passphrase, null)
})

t.test('the API accepts unknown algorithms and lengths, which the worker refuses', async t => {
  t.match(await show(await order('key', { algorithm: 'rot13', bit_length: 8 })), { status: 'PENDING' })
})

t.test('deleting an order erases its passphrase and fences off its worker', async t => {
  const id = await order('asymmetric', { algorithm: 'rsa', bit_length: 2048, passphrase: 'secret' })
  const before = await database('secret_order').where({ id }).first()
  t.equal((await ask('DELETE', `/v1/orders/${id}`)).status, 204)
  t.equal((await ask('GET', `/v1/orders/${id}`)).status, 404)
  t.equal((await ask('DELETE', `/v1/orders/${id}`)).status, 404)
  const row = await database('secret_order').where({ id }).first()
  t.match(row, { sealed_passphrase: null, project_key_id: null, fence: before.fence + 1 })
})

t.test('orders are immutable: PUT is 405', async t => {
  const all = await ask('PUT', '/v1/orders', { type: 'key', meta: AES })
  t.equal(all.status, 405)
  t.match(all.body, { code: 405, title: 'Method Not Allowed', description: /cannot be changed/ })
  const id = await order('key', AES)
  t.equal((await ask('PUT', `/v1/orders/${id}`, { type: 'key', meta: AES })).status, 405)
})

t.test('another project’s order is 404', async t => {
  const id = await order('key', AES)
  const token = tokenOf('admin', FOREIGN)
  t.equal((await ask('GET', `/v1/orders/${id}`, undefined, { token })).status, 404)
  t.equal((await ask('DELETE', `/v1/orders/${id}`, undefined, { token })).status, 404)
  t.match((await ask('GET', '/v1/orders', undefined, { token })).body, { orders: [], total: 0 })
  for (const wrong of ['1', 'x', id.toUpperCase(), `${id}0`]) {
    t.equal((await ask('GET', `/v1/orders/${wrong}`)).status, 404, wrong)
  }
})

t.test('each role may do with orders what Barbican’s policy allows', async t => {
  const id = await order('key', AES)
  const able = async (roles: string) => {
    const token = tokenOf(roles)
    return [
      (await ask('POST', '/v1/orders', { type: 'key', meta: AES }, { token })).status,
      (await ask('GET', '/v1/orders', undefined, { token })).status,
      (await ask('GET', `/v1/orders/${id}`, undefined, { token })).status,
      (await ask('DELETE', `/v1/orders/${id}`, undefined, { token })).status,
    ]
  }
  t.same(await able('reader'), [403, 403, 403, 403])
  t.same(await able('audit'), [403, 403, 200, 403])
  t.same(await able('observer'), [403, 200, 200, 403])
  t.same(await able('creator'), [202, 200, 200, 403])
  t.same(await able('member'), [202, 200, 200, 204])
})

t.test('the list filters by type and metadata, and pages', async t => {
  const token = tokenOf('member', 'c'.repeat(32))
  const ids: string[] = []
  for (const name of ['first', 'second', '50%']) ids.push(await order('key', { ...AES, name }, token))
  const pair = await order('asymmetric', { algorithm: 'rsa', bit_length: 2048, name: 'pair' }, token)
  const certificate = await order('key', { ...AES, name: 'cert' }, token)
  await database('secret_order').where({ id: certificate }).update({ type: 'certificate', status: 'PROCESSING' })
  const listed = async (query: string) => {
    const { body } = await ask('GET', `/v1/orders${query}`, undefined, { token })
    const orders = body.orders as { order_ref: string }[]
    return { ...body, orders: orders.map(({ order_ref }) => order_ref.slice(-36)) }
  }
  t.match(await listed(''), { orders: [...ids, pair], total: 4 }, 'the list omits certificate orders')
  t.match(await listed('?type=all'), { orders: [...ids, pair, certificate], total: 5 })
  t.match(await listed('?type=certificate'), { orders: [certificate], total: 1 })
  t.match(await listed('?type=asymmetric'), { orders: [pair], total: 1 })
  t.match(await listed('?meta=second'), { orders: [ids[1]], total: 1 })
  t.match(await listed('?meta=50%25'), { orders: [ids[2]], total: 1 }, 'the filter is a text, not a pattern')
  t.match(await listed('?meta=_'), { total: 4 }, 'it matches the underscore in "bit_length"')
  t.match(await listed('?unknown=1'), { total: 4 })
  const page = await listed('?limit=2&offset=1&type=all')
  t.same(page.orders, [ids[1], ids[2]])
  t.match(page, { total: 5, next: /limit=2&offset=3&type=all$/, previous: /limit=2&offset=0&type=all$/ })
  t.equal((await ask('GET', '/v1/orders?meta=%00', undefined, { token })).status, 400)
  t.match(
    await show(certificate, token),
    { type: 'certificate', status: 'PROCESSING' },
    'a certificate order can be shown by id',
  )

  await database('secret_order').where({ id: pair }).update({ status: 'PROCESSING' })
  t.match(await show(pair, token), { status: 'PENDING' }, 'clients of the older API do not know PROCESSING')
  t.match((await statementsOf(() => listed('?type=all'))).length, 1)
})

t.test('POST and GET each run one statement', async t => {
  const post = await statementsOf(() => order('key', AES))
  t.equal(post.length, 1)
  const id = await order('key', AES)
  t.equal((await statementsOf(() => show(id))).length, 1)
})

t.test('each new order has an audit record', async t => {
  const id = await order('key', AES)
  const records = await database('audit_record').where({ target_id: id })
  t.equal(records.length, 1)
  t.match(records[0], { action: 'order.create', outcome: 'success', user_id: 'user-member', detail: { type: 'key' } })
})

t.test('concurrent requests do not exceed the quota', async t => {
  const token = tokenOf('member', 'd'.repeat(32))
  const replies = await Promise.all(
    Array.from({ length: 45 }, () => ask('POST', '/v1/orders', { type: 'key', meta: AES }, { token })),
  )
  const statuses = replies.map(({ status }) => status)
  t.equal(statuses.filter(status => status === 202).length, 40)
  t.equal(statuses.filter(status => status === 403).length, 5)
})

t.test('expose_processing_status shows PROCESSING', async t => {
  const open = await startTestKeyManager({ expose_processing_status: true })
  const words = orderHelpers(open)
  const id = await words.order('key', AES)
  await open.database('secret_order').where({ id }).update({ status: 'PROCESSING' })
  t.match(await words.show(id), { status: 'PROCESSING' })
  await open.stop()
})
