import t from 'tap'
import { purgeRecords, trimAnswers } from '../../../controller/housekeeping/purge.js'
import { createNoopNetworkDriver } from '../../../controller/network/noop/driver.js'
import { FOREIGN, tokenOf } from '../../support/clients/callers.js'
import { idIn, type Json } from '../../support/clients/json-answers.js'
import { SUBNET, startTestApi, type TestApi } from '../../support/clients/load-balancer-api.js'

const BALANCERS = '/v2/lbaas/loadbalancers'
const balancer = (more: object = {}): Json => ({ loadbalancer: { vip_subnet_id: SUBNET, ...more } })
const countOf = async (api: TestApi, table: string) => Number((await api.database(table).count().first())?.count)

const keyed = (api: TestApi, key: string, body: unknown = balancer(), token = tokenOf('member'), path = BALANCERS) =>
  api.ask('POST', path, body, token, { 'Idempotency-Key': key })

t.test('a repeated request runs once and gets the same answer', async t => {
  const api = await startTestApi()
  t.teardown(api.stop)
  const first = await keyed(api, '"a key"')
  t.equal(first.status, 201)
  t.equal(first.headers.get('idempotent-replayed'), null)
  await api.ask('PUT', `${BALANCERS}/${idIn(first, 'loadbalancer')}`, { loadbalancer: { name: 'changed since' } })
  const again = await keyed(api, 'a key')
  t.equal(again.status, 201)
  t.equal(again.text, first.text, 'the first answer, whether or not the key is quoted')
  t.equal(again.headers.get('idempotent-replayed'), 'true')
  t.not(again.headers.get('x-openstack-request-id'), first.headers.get('x-openstack-request-id'))
  t.equal(await countOf(api, 'load_balancer'), 1)
  t.equal(await countOf(api, 'load_balancer_event'), 2, 'the history records the request once')

  await t.test('whitespace and path spelling make no difference, everything else does', async t => {
    t.equal((await keyed(api, 'a key', `{ "loadbalancer" : {"vip_subnet_id":"${SUBNET}"} }`)).text, first.text)
    t.equal((await keyed(api, 'a key', balancer(), tokenOf('member'), '/v2.0/loadbalancers/')).text, first.text)
    for (const [body, path] of [
      [balancer({ name: 'x' }), BALANCERS],
      [
        { listener: { loadbalancer_id: idIn(first, 'loadbalancer'), protocol: 'TCP', protocol_port: 1 } },
        '/v2/lbaas/listeners',
      ],
    ] as const) {
      t.match(await keyed(api, 'a key', body, tokenOf('member'), path), {
        status: 422,
        body: { faultcode: 'Client', faultstring: /used for a different request/, debuginfo: null },
      })
    }
    t.equal(await countOf(api, 'load_balancer'), 1)
  })
  await t.test('keys belong to one user in one project', async t => {
    for (const token of [tokenOf('member', FOREIGN), tokenOf('load-balancer_member')]) {
      const other = await keyed(api, 'a key', balancer(), token)
      t.equal(other.status, 201)
      t.not(idIn(other, 'loadbalancer'), idIn(first, 'loadbalancer'))
    }
  })
})

t.test('every create accepts a key; without one, no extra statement runs', async t => {
  const api = await startTestApi({ providers: ['noop_driver'] })
  t.teardown(api.stop)
  const lb = idIn(await api.ask('POST', BALANCERS, balancer({ provider: 'noop_driver' })), 'loadbalancer')
  const listener = { listener: { loadbalancer_id: lb, protocol: 'HTTP', protocol_port: 80 } }
  const made = await keyed(api, 'l', listener, tokenOf('member'), '/v2/lbaas/listeners')
  t.equal(made.status, 201)
  t.equal((await keyed(api, 'l', listener, tokenOf('member'), '/v2/lbaas/listeners')).text, made.text)
  const profile = { flavorprofile: { name: 'p', provider_name: 'noop_driver', flavor_data: '{}' } }
  const profiles = () => keyed(api, 'f', profile, tokenOf('admin'), '/v2/lbaas/flavorprofiles')
  t.equal((await profiles()).text, (await profiles()).text)
  t.equal(await countOf(api, 'flavor_profile'), 1)

  const pool = (port: number) => ({
    pool: { loadbalancer_id: lb, name: `p${port}`, protocol: 'TCP', lb_algorithm: 'ROUND_ROBIN' },
  })
  const plain = await api.statementsOf(() => api.ask('POST', '/v2/lbaas/pools', pool(1)))
  t.notOk(
    plain.some(sql => /repeated_request|advisory/.test(sql)),
    plain.join('\n'),
  )
  const withKey = await api.statementsOf(() => keyed(api, 'p', pool(2), tokenOf('member'), '/v2/lbaas/pools'))
  t.equal(withKey.filter(sql => /repeated_request/.test(sql)).length, 2)
  const ignored = await api.ask('PUT', `${BALANCERS}/${lb}`, { loadbalancer: {} }, tokenOf('member'), {
    'Idempotency-Key': 'l',
  })
  t.equal(ignored.status, 200, 'updates ignore keys')
})

t.test('a failed request is not recorded, so its key can be used again', async t => {
  const api = await startTestApi()
  t.teardown(api.stop)
  const nowhere = { listener: { loadbalancer_id: SUBNET, protocol: 'HTTP', protocol_port: 80 } }
  for (const [body, path, status] of [
    [balancer({ bogus: 1 }), BALANCERS, 400],
    [balancer({ provider: 'nobody' }), BALANCERS, 400],
    [nowhere, '/v2/lbaas/listeners', 404],
    ['{', BALANCERS, 400],
  ] as const) {
    t.equal((await keyed(api, 'k', body, tokenOf('member'), path)).status, status)
    t.equal((await keyed(api, 'k', balancer(), tokenOf('reader'))).status, 403)
  }
  t.equal(await countOf(api, 'repeated_request'), 0)
  t.equal((await keyed(api, 'k')).status, 201)

  const port = (number: number) => ({ protocol: 'TCP', protocol_port: number })
  const twice = balancer({ listeners: [port(1), port(1)] })
  t.equal((await keyed(api, 'other', twice)).status, 409)
  const lb = idIn(await keyed(api, 'other'), 'loadbalancer')
  const listener = { listener: { loadbalancer_id: lb, ...port(1) } }
  t.equal((await api.ask('POST', '/v2/lbaas/listeners', listener)).status, 201)
  t.equal(
    (await keyed(api, 'taken', listener, tokenOf('member'), '/v2/lbaas/listeners')).status,
    409,
    'a conflict found inside the transaction',
  )
  t.equal(await countOf(api, 'listener'), 1)
  t.equal(await countOf(api, 'repeated_request'), 2)
})

t.test('keys are printable and of limited length', async t => {
  const api = await startTestApi()
  t.teardown(api.stop)
  for (const key of ['x'.repeat(256), '""', 'caf\u00e9', 'a\tb']) {
    t.match(await keyed(api, key), { status: 400, body: { faultstring: /Idempotency-Key/ } }, JSON.stringify(key))
  }
  t.equal((await keyed(api, 'x'.repeat(255))).status, 201)
  const row = await api.database('repeated_request').first()
  t.match(row.request_sha256, /^[0-9a-f]{64}$/, 'only a hash of the request is kept')
})

t.test('a repeat while the first request runs is 409', async t => {
  let entered: () => void = () => undefined
  let proceed: () => void = () => undefined
  const inside = new Promise<void>(resolve => {
    entered = resolve
  })
  const gate = new Promise<void>(resolve => {
    proceed = resolve
  })
  const noop = createNoopNetworkDriver()
  const api = await startTestApi({
    network: {
      ...noop,
      findSubnet: async (caller, id) => {
        entered()
        await gate
        return noop.findSubnet(caller, id)
      },
    },
  })
  t.teardown(api.stop)
  const first = keyed(api, 'k')
  await inside
  t.match(await keyed(api, 'k'), { status: 409, body: { faultstring: /still in progress. Try again/ } })
  t.match(await keyed(api, 'k', balancer({ name: 'another' })), { status: 409 }, '409 whatever the body of the repeat')
  proceed()
  t.equal((await first).status, 201)
  t.equal((await keyed(api, 'k')).text, (await first).text)
  t.equal(await countOf(api, 'load_balancer'), 1)
  const many = await Promise.all(Array.from({ length: 12 }, () => keyed(api, 'many')))
  t.same(
    [...new Set(many.map(({ status }) => status))].filter(status => status !== 409),
    [201],
  )
  t.equal(await countOf(api, 'load_balancer'), 2, 'exactly one of many concurrent requests runs')
})

t.test('a database that fails before the commit leaves neither object nor record', async t => {
  const api = await startTestApi()
  t.teardown(api.stop)
  await api.database.raw(`
    CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS $$
      BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NEW; END $$;
    CREATE TRIGGER die BEFORE INSERT ON repeated_request FOR EACH ROW EXECUTE FUNCTION die()`)
  t.equal((await keyed(api, 'k')).status, 503)
  t.equal(await countOf(api, 'load_balancer'), 0)
  await api.database.raw('DROP TRIGGER die ON repeated_request')
  t.equal((await keyed(api, 'k')).status, 201)
  t.equal(await countOf(api, 'load_balancer'), 1)
})

t.test('records are kept for a day', async t => {
  const api = await startTestApi()
  t.teardown(api.stop)
  const old = await keyed(api, 'old')
  await keyed(api, 'young')
  await api
    .database('repeated_request')
    .where({ key: 'old' })
    .update({ created_at: api.database.raw(`now() - interval '25 hours'`) })
  const anew = await keyed(api, 'old')
  t.not(
    idIn(anew, 'loadbalancer'),
    idIn(old, 'loadbalancer'),
    'after a day the same key starts a new request, purged or not',
  )
  t.equal((await keyed(api, 'old')).text, anew.text)
  await api
    .database('repeated_request')
    .where({ key: 'old' })
    .update({ created_at: api.database.raw(`now() - interval '25 hours'`) })
  await purgeRecords(api.database)
  t.strictSame(await api.database('repeated_request').pluck('key'), ['young'])
})

t.test('a project keeps its newest answers, and others keep theirs', async t => {
  const api = await startTestApi()
  t.teardown(api.stop)
  for (const key of ['first', 'second', 'third']) await keyed(api, key)
  const [{ bytes }] = await api.database('repeated_request').select(api.database.raw('octet_length(body) AS bytes'))
  await api.database('repeated_request').where({ key: 'first' }).update({ project_id: 'another' })
  await trimAnswers(api.database, Math.floor(1.5 * bytes))
  t.strictSame((await api.database('repeated_request').pluck('key')).sort(), ['first', 'third'])
})
