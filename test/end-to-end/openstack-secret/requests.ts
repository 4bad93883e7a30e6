import { setTimeout as delay } from 'node:timers/promises'
import type { Test } from 'tap'
import type { ApiClient } from '../../../controller/cli/api-client.js'
import { MISSING } from './scene.js'

/** The times that gophercloud parses: without a zone. */
const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?$/

type Json = Record<string, unknown>
type Reply = { status: number; json: Json; text: string; type: string | null }

/**
 * The requests of gophercloud, and so of the Terraform provider: its headers, its bodies, and what it expects
 * of answers.
 */
export async function requests(t: Test, { token, urlOf }: ApiClient): Promise<void> {
  const root = `${urlOf('key-manager')}/v1`

  async function ask(operation: string, body?: unknown, more: Record<string, string> = {}): Promise<Reply> {
    const [method = '', path = ''] = operation.split(' ')
    const isJson = body !== undefined && typeof body !== 'string'
    const answer = await fetch(path.startsWith('http') ? path : `${root}${path}`, {
      method,
      headers: {
        'User-Agent': 'gophercloud/v2.4.0',
        Accept: 'application/json',
        'Accept-Encoding': 'gzip',
        'X-Auth-Token': token,
        ...(isJson && { 'Content-Type': 'application/json' }),
        ...more,
      },
      ...(body !== undefined && { body: isJson ? JSON.stringify(body) : String(body) }),
    })
    const text = await answer.text()
    const type = answer.headers.get('Content-Type')
    return { status: answer.status, text, type, json: type?.startsWith('application/json') ? JSON.parse(text) : {} }
  }
  const secretOf = async (body: unknown) => {
    const { status, json } = await ask('POST /secrets', body)
    t.same([status, Object.keys(json)], [201, ['secret_ref']])
    return String(json.secret_ref)
  }

  await t.test('keymanager/v1/secrets', async t => {
    const ref = await secretOf({
      name: 'go',
      secret_type: 'passphrase',
      payload: 'hello',
      payload_content_type: 'text/plain',
    })
    const record = await ask(`GET ${ref}`)
    t.equal(record.status, 200)
    t.match(record.json, {
      created: TIME,
      updated: TIME,
      bit_length: null,
      algorithm: null,
      mode: null,
      expiration: null,
    })
    t.match(record.json, {
      content_types: { default: 'text/plain' },
      secret_ref: ref,
      status: 'ACTIVE',
      creator_id: /\w/,
    })
    t.equal(record.json.consumers, undefined)
    t.match(await ask(`GET ${ref}/payload`, undefined, { Accept: 'text/plain' }), { status: 200, text: 'hello' })
    t.match(await ask(`GET ${ref}/payload`), { status: 406, json: { code: 406, title: 'Not Acceptable' } })

    const expiring = await secretOf({ name: 'go expiring', expiration: '2099-01-01T00:00:00Z', bit_length: 256 })
    t.match((await ask(`GET ${expiring}`)).json, { expiration: '2099-01-01T00:00:00', bit_length: 256 })
    const payload = { 'Content-Type': 'application/octet-stream', 'Content-Encoding': 'base64' }
    t.match(await ask(`PUT ${expiring}`, 'aGVsbG8=', payload), { status: 204, text: '' })
    t.match(await ask(`GET ${expiring}/payload`, undefined, { Accept: 'application/octet-stream' }), {
      text: 'hello',
      type: 'application/octet-stream',
    })
    const filter = 'expiration=gte:2098-12-31T00:00:00,lt:2099-01-02T00:00:00&sort=created:desc'
    t.match((await ask(`GET /secrets?name=go+expiring&${filter}`)).json, {
      total: 1,
      secrets: [{ secret_ref: expiring }],
    })

    t.match(await ask(`PUT ${ref}/metadata`, { metadata: { foo: 'bar', something: 'something else' } }), {
      status: 201,
      json: { metadata_ref: `${ref}/metadata` },
    })
    t.match(await ask(`GET ${ref}/metadata`), {
      status: 200,
      json: { metadata: { foo: 'bar', something: 'something else' } },
    })
    t.match(await ask(`POST ${ref}/metadata`, { key: 'k', value: 'v' }), {
      status: 201,
      json: { key: 'k', value: 'v' },
    })
    t.match(await ask(`PUT ${ref}/metadata/k`, { key: 'k', value: 'w' }), {
      status: 200,
      json: { key: 'k', value: 'w' },
    })
    t.match(await ask(`GET ${ref}/metadata/k`), { status: 200, json: { key: 'k', value: 'w' } })
    t.match(await ask(`DELETE ${ref}/metadata/k`), { status: 204, text: '' })

    t.match(await ask(`PUT ${ref}/acl`, { read: { 'project-access': false, users: ['u'] } }), {
      status: 200,
      json: { acl_ref: `${ref}/acl` },
    })
    t.match((await ask(`GET ${ref}/acl`)).json, {
      read: { 'project-access': false, users: ['u'], created: TIME, updated: TIME },
    })
    t.match(await ask(`PATCH ${ref}/acl`, { read: { users: [] } }), { status: 200 })
    t.match((await ask(`GET ${ref}/acl`)).json, { read: { 'project-access': false, users: [] } })
    t.match(await ask(`DELETE ${ref}/acl`), { status: 200 })
    t.match((await ask(`GET ${ref}/acl`)).json, { read: { 'project-access': true } })
    t.match(await ask(`PUT ${ref}/acl`, { read: { 'project-access': true, users: null } }), { status: 400 })

    for (const each of [ref, expiring]) {
      t.match(await ask(`DELETE ${each}`), { status: 204, text: '' })
      t.match(await ask(`GET ${each}`), { status: 404, json: { code: 404, title: 'Not Found', description: /\w/ } })
    }
  })

  await t.test('keymanager/v1/containers', async t => {
    const [one, two] = [await secretOf({ name: 'one' }), await secretOf({ name: 'two' })]
    const made = await ask('POST /containers', {
      type: 'generic',
      name: 'go',
      secret_refs: [{ name: 'one', secret_ref: one }],
    })
    t.equal(made.status, 201)
    const ref = String(made.json.container_ref)
    const record = await ask(`GET ${ref}`)
    t.match(record.json, { created: TIME, updated: TIME, consumers: [], name: 'go', status: 'ACTIVE', type: 'generic' })
    t.match(record.json, { container_ref: ref, secret_refs: [{ name: 'one', secret_ref: one }], creator_id: /\w/ })

    const consumer = { name: 'go', URL: 'http://example.org' }
    t.match(await ask(`POST ${ref}/consumers`, consumer), {
      status: 200,
      json: { container_ref: ref, consumers: [consumer] },
    })
    t.match((await ask(`GET ${ref}/consumers`)).json, {
      total: 1,
      consumers: [{ ...consumer, created: TIME, updated: TIME }],
    })
    t.match(await ask(`DELETE ${ref}/consumers`, consumer), {
      status: 200,
      json: { container_ref: ref, consumers: [] },
    })
    t.match(await ask(`POST ${ref}/secrets`, { name: 'two', secret_ref: two }), {
      status: 201,
      json: { container_ref: ref },
    })
    t.match(await ask(`DELETE ${one}`), { status: 409, json: { code: 409, title: 'Conflict' } })
    t.match(await ask(`DELETE ${ref}/secrets`, { name: 'two', secret_ref: two }), { status: 204, text: '' })
    for (const each of [ref, one, two]) t.match(await ask(`DELETE ${each}`), { status: 204, text: '' })
  })

  await t.test('keymanager/v1/orders', async t => {
    const meta = {
      algorithm: 'aes',
      bit_length: 256,
      mode: 'cbc',
      name: 'go',
      payload_content_type: 'application/octet-stream',
    }
    const seen: unknown[] = []
    async function finished(body: unknown): Promise<Json> {
      const made = await ask('POST /orders', body)
      t.same([made.status, Object.keys(made.json)], [202, ['order_ref']])
      for (let looks = 0; looks < 300; looks++) {
        const { json } = await ask(`GET ${made.json.order_ref}`)
        seen.push(json.status)
        if (json.status === 'ACTIVE' || json.status === 'ERROR') return json
        await delay(20)
      }
      throw new Error('The order never ends.')
    }
    const order = await finished({ type: 'key', meta })
    t.match(order, { status: 'ACTIVE', type: 'key', created: TIME, updated: TIME, meta: { ...meta, expiration: null } })
    t.match(order, { secret_ref: /\/v1\/secrets\//, sub_status: /\w/, sub_status_message: /\w/, creator_id: /\w/ })
    const pair = await finished({
      type: 'asymmetric',
      meta: { algorithm: 'rsa', bit_length: 2048, mode: 'none', name: 'go' },
    })
    t.match(pair, { status: 'ACTIVE', container_ref: /\/v1\/containers\// })
    const failed = await finished({ type: 'key', meta: { ...meta, algorithm: 'odd' } })
    t.match(failed, { status: 'ERROR', error_status_code: '400', error_reason: /odd/ })
    const known = ['PENDING', 'ACTIVE', 'ERROR']
    t.same(
      seen.filter(status => !known.includes(String(status))),
      [],
      'no other status is shown',
    )
    const container = (await ask(`GET ${pair.container_ref}`)).json
    t.equal(container.type, 'rsa')
    for (const each of [order, pair, failed]) t.match(await ask(`DELETE ${each.order_ref}`), { status: 204, text: '' })
    await ask(`DELETE ${pair.container_ref}`)
    const parts = (container.secret_refs as { secret_ref: string }[]).map(({ secret_ref }) => secret_ref)
    for (const each of [order.secret_ref, ...parts]) t.match(await ask(`DELETE ${each}`), { status: 204 })
  })

  await t.test('keymanager/v1/quotas', async t => {
    const path = `/project-quotas/${MISSING.replaceAll('-', '')}`
    const unset = { orders: null, containers: null, consumers: null, cas: null }
    t.match(await ask(`PUT ${path}`, { project_quotas: { secrets: 10, ...unset } }), { status: 204, text: '' })
    t.match(await ask(`GET ${path}`), { status: 200, json: { project_quotas: { secrets: 10, ...unset } } })
    t.match(await ask('GET /quotas'), { status: 200, json: { quotas: { secrets: -1, orders: -1, cas: -1 } } })
    t.match(await ask(`DELETE ${path}`), { status: 204, text: '' })
    t.match(await ask(`GET ${path}`), { status: 404 })
  })

  await t.test('secret consumers, as newer clients register them', async t => {
    const ref = await secretOf({ name: 'consumed' })
    const consumer = { service: 'image', resource_type: 'image', resource_id: MISSING }
    const version = { 'OpenStack-API-Version': 'key-manager 1.1' }
    t.match(await ask(`GET ${root.replace(/v1$/, '')}`, undefined, version), {
      status: 300,
      json: { versions: [{ id: 'v1', status: 'CURRENT', min_version: '1.0', max_version: /^1\.\d$/ }] },
    })
    t.match(await ask('GET /', undefined, version), {
      status: 200,
      json: { version: { id: 'v1', status: 'CURRENT', min_version: '1.0', max_version: /^1\.\d$/ } },
    })
    t.match(await ask(`POST ${ref}/consumers/`, consumer, version), { status: 200, json: { consumers: [consumer] } })
    t.match((await ask(`GET ${ref}`, undefined, version)).json, { consumers: [consumer] })
    t.match((await ask('GET /secrets?name=consumed', undefined, version)).json, {
      secrets: [{ consumers: [consumer] }],
    })
    t.match((await ask(`GET ${ref}/consumers`, undefined, version)).json, {
      consumers: [{ ...consumer, created: TIME }],
      total: 1,
    })
    t.match(await ask(`DELETE ${ref}/consumers`, consumer, version), { status: 200, json: { consumers: [] } })
    t.match(await ask(`DELETE ${ref}`, undefined, version), { status: 204 })
  })
}
