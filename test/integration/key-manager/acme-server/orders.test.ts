import { X509Certificate } from 'node:crypto'
import t, { type Test } from 'tap'
import { AcmeClient, type AcmeReply, acmeKey } from '../../../support/clients/acme-client.js'
import { FOREIGN, OWN, tokenOf } from '../../../support/clients/callers.js'
import type { Json } from '../../../support/clients/json-answers.js'
import { eventually } from '../../../support/eventually.js'
import { fileOf, keyOf, openssl } from '../../../support/inputs/x509.js'
import {
  dns,
  finalize,
  issue,
  orderOf,
  outcomeOf,
  pass,
  requestFor,
  startAcmeServer,
} from '../../../support/worlds/acme-server.js'

const world = await startAcmeServer({
  certificate_authority: {
    reserved_names: ['internal.example', '192.0.2.0/24'],
    permitted_names: ['open.internal.example'],
    project_names: [`${FOREIGN}=theirs.example`],
    certificate_days: 90,
  },
  acme_server: { accounts_per_hour: 1000, orders_per_hour: 1000, names_per_hour: 10_000 },
})
t.teardown(world.stop)
const { manager } = world
const { database } = manager

const idOf = (url: string): string => url.slice(-36)

const client = await world.client()

t.test('an order goes from pending over ready to valid, and its certificate verifies', async t => {
  const names = ['www.shop.example', '*.shop.example']
  const { url, body, authorizations } = await orderOf(client, dns(...names))
  t.match(body, { status: 'pending', identifiers: dns(...names), finalize: `${url}/finalize` })
  t.equal(authorizations.length, 2)
  const bodies: Json[] = []
  for (const each of authorizations) bodies.push((await client.send(each)).body)
  const [first = {}, second = {}] = bodies
  t.match(first, { status: 'pending', identifier: { type: 'dns', value: 'www.shop.example' } })
  t.notOk('wildcard' in first)
  t.same(
    (first.challenges as Json[]).map(({ type }) => type),
    ['http-01', 'tls-alpn-01', 'dns-01'],
  )
  t.match(second, { identifier: { value: 'shop.example' }, wildcard: true, challenges: [{ type: 'dns-01' }] })
  t.equal((second.challenges as Json[]).length, 1, 'a wildcard is proven by DNS only')
  const early = await client.send(`${url}/finalize`, { csr: requestFor(names) })
  t.equal(outcomeOf(early), '403 orderNotReady')
  await pass(world, authorizations.slice(0, 1))
  t.match((await client.send(url)).body, { status: 'pending' })
  await pass(world, authorizations)
  t.match((await client.send(url)).body, { status: 'ready' })
  const order = await finalize(client, url, requestFor(names, { subject: 'CN=www.shop.example' }))
  t.match(order, { status: 'valid', certificate: /\/acme\/certificate\// })
  const reply = await client.send(String(order.certificate))
  t.equal(reply.headers.get('content-type'), 'application/pem-certificate-chain')
  const [leaf = '', root = ''] = reply.text.split(/(?=-----BEGIN)/)
  t.match(openssl(['verify', '-CAfile', fileOf(root), '-purpose', 'sslserver', fileOf(leaf)]), { status: 0 })
  const certificate = new X509Certificate(leaf)
  t.ok(certificate.checkHost('www.shop.example'))
  t.ok(certificate.checkHost('any.shop.example'))
  t.equal(outcomeOf(await client.send(`${url}/finalize`, { csr: requestFor(names) })), '403 orderNotReady', 'once')
})

t.test('the certificate is an order of the key manager, in its quotas, its audit log and its list', async t => {
  const { url } = await issue(world, client, ['listed.example'])
  const { secret_order_id: id } = await database('acme_order')
    .where({ id: idOf(url) })
    .first()
  t.match((await manager.ask('GET', `/v1/orders/${id}`)).body, {
    status: 'ACTIVE',
    type: 'certificate',
    meta: { name: 'listed.example', request_type: 'custom' },
    creator_id: 'user-member',
  })
  for (const [action, where] of [
    ['order.create', { target_id: id }],
    ['certificate.issue', {}],
  ] as const) {
    const record = await database('audit_record')
      .where({ action, project_id: OWN, user_id: 'user-member', ...where })
      .first()
    t.ok(record, action)
  }
  t.same(await database('certificate').where({ order_id: id }), [], 'the client renews it, and nobody else')
  const { order_id } = await database('issued_certificate').where({ order_id: id }).first()
  t.equal(order_id, id)
  const other = await world.client(tokenOf('member', FOREIGN))
  await manager.ask(
    'PUT',
    `/v1/project-quotas/${FOREIGN}`,
    { project_quotas: { orders: 0 } },
    { token: tokenOf('admin,key-manager:service-admin') },
  )
  const { url: refused, authorizations } = await orderOf(other, dns('www.theirs.example'))
  await pass(world, authorizations)
  const answer = await other.send(`${refused}/finalize`, { csr: requestFor(['www.theirs.example']) })
  t.equal(outcomeOf(answer), '429 rateLimited')
  t.match((await other.send(refused)).body, { status: 'ready' }, 'it can be finalized later')
})

t.test('names: the rules of the internal CA decide, name by name', async t => {
  const order = (...identifiers: object[]) => client.send('new-order', { identifiers })
  for (const name of [
    'localhost',
    'a.localhost',
    'internal.example',
    'db.internal.example',
    '*.example',
    '*.com',
    '*.co.uk',
    'theirs.example',
    'www.theirs.example',
    'WWW.THEIRS.EXAMPLE',
    '*.theirs.example',
  ]) {
    t.equal(outcomeOf(await order(...dns(name))), '400 rejectedIdentifier', name)
  }
  for (const value of [
    '127.0.0.1',
    '::1',
    '192.0.2.7',
    '169.254.169.254',
    'fe80::1',
    '0.0.0.0',
    '224.0.0.1',
    '255.255.255.255',
  ]) {
    t.equal(outcomeOf(await order({ type: 'ip', value })), '400 rejectedIdentifier', value)
  }
  for (const name of [
    'a b',
    '-a.example',
    'a..example',
    'a.example.',
    '*',
    'a.*.example',
    '*a.example',
    'é.example',
    '10.0.0.1',
    '',
    'a\u0000.example',
    `${'a'.repeat(64)}.example`,
    `${'a.'.repeat(127)}example`,
  ]) {
    t.equal(outcomeOf(await order(...dns(name))), '400 malformed', JSON.stringify(name))
  }
  for (const value of [
    '::ffff:10.0.0.1',
    '010.0.0.1',
    '10.1',
    '2001:DB8::1%eth0',
    '2001:0db8::1',
    '1.2.3.4/32',
    'a.example',
  ]) {
    t.equal(outcomeOf(await order({ type: 'ip', value })), '400 malformed', value)
  }
  t.equal(outcomeOf(await order({ type: 'email', value: 'a@b.example' })), '400 unsupportedIdentifier')
  t.equal(outcomeOf(await order()), '400 malformed', 'no name')
  t.equal(
    outcomeOf(await order(...dns(...Array.from({ length: 101 }, (_, at) => `${at}.example`)))),
    '400 malformed',
    '101',
  )
  t.equal((await order(...dns('open.internal.example'))).status, 201, 'an exception of the operator')
  const several = await order(...dns('fine.example', 'internal.example', 'theirs.example'))
  t.match(several.body, {
    type: /rejectedIdentifier$/,
    subproblems: [{ identifier: { value: 'internal.example' } }, { identifier: { value: 'theirs.example' } }],
  })
  const same = await orderOf(client, dns('Same.example', 'same.example'))
  t.same(same.body.identifiers, dns('same.example'), 'each name once, in lower case')
})

t.test('an address is an identifier, proven without DNS', async t => {
  const { authorizations } = await orderOf(client, [{ type: 'ip', value: '10.9.8.7' }])
  const { body } = await client.send(authorizations[0] ?? '')
  t.same(
    (body.challenges as Json[]).map(({ type }) => type),
    ['http-01', 'tls-alpn-01'],
  )
  const { pem } = await issue(world, client, ['10.9.8.7', '2001:db8::7'])
  t.match(new X509Certificate(pem).subjectAltName, 'IP Address:10.9.8.7, IP Address:2001:DB8:0:0:0:0:0:7')
})

t.test('a request for a certificate must have exactly the names of the order, and a key of its own', async t => {
  const { url, authorizations } = await orderOf(client, dns('a.example', 'b.example'))
  await pass(world, authorizations)
  const send = (csr: string) => client.send(`${url}/finalize`, { csr })
  const both = ['a.example', 'b.example']
  const refusals: [string, string][] = [
    ['a name too few', requestFor(['a.example'])],
    ['a name too many', requestFor([...both, 'c.example'])],
    ['another name', requestFor(['a.example', 'c.example'])],
    ['a wildcard', requestFor(['a.example', '*.b.example'])],
    ['an address', requestFor([...both, '10.0.0.1'])],
    ['a URI', requestFor(both, { uri: 'https://a.example/' })],
    ['another common name', requestFor(both, { subject: 'CN=c.example' })],
    ['an organisation', requestFor(both, { subject: 'CN=a.example,O=Bank' })],
    ['names in the subject only', requestFor([], { subject: 'CN=a.example' })],
    ['the key of the account', requestFor(both, { key: client.key.privateKey })],
    ['garbage', 'AAAA'],
    ['no base64url', '???'],
    ['PEM', Buffer.from('-----BEGIN CERTIFICATE REQUEST-----').toString('base64url')],
    ['nothing', ''],
  ]
  for (const [what, csr] of refusals) {
    const reply = await send(csr)
    t.equal(outcomeOf(reply), '400 badCSR', `${what}: ${reply.text}`)
  }
  const broken = Buffer.from(requestFor(both), 'base64url')
  broken[broken.length - 1] = (broken.at(-1) ?? 0) ^ 1
  t.equal(outcomeOf(await send(broken.toString('base64url'))), '400 badCSR', 'a signature that is not valid')
  t.match((await client.send(url)).body, { status: 'ready' }, 'a refused request leaves the order as it was')
  const accepted = requestFor(['B.example', 'a.example'], { subject: 'CN=A.example', key: keyOf('RSA 2048') })
  t.match(await finalize(client, url, accepted), { status: 'valid' })
})

t.test('of two requests to finalize at once, at two processes, one makes an order', async t => {
  const { url, authorizations } = await orderOf(client, dns('race.example'))
  await pass(world, authorizations)
  const other = await world.another()
  const held = await database.transaction()
  await held('acme_order')
    .where({ id: idOf(url) })
    .forUpdate()
  const outcomes = [client.base, other].map(through => {
    const twin = new AcmeClient(client.base, client.key)
    twin.account = client.account
    return twin.send(`${url}/finalize`, { csr: requestFor(['race.example']) }, { through })
  })
  await eventually('both wait for the order', async () => {
    const { rows } = await database.raw(
      `SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()`,
    )
    return rows.length >= 2
  })
  await held.commit()
  t.same((await Promise.all(outcomes)).map(outcomeOf).sort(), ['200 undefined', '403 orderNotReady'])
  t.equal((await database('secret_order').whereJsonPath('meta', '$.name', '=', 'race.example')).length, 1)
})

t.test('a failed or deactivated authorization ends its order, and so does time', async t => {
  const failed = await orderOf(client, dns('failed.example'))
  await pass(world, failed.authorizations, 'invalid')
  t.match((await client.send(failed.authorizations[0] ?? '')).body, {
    status: 'invalid',
    challenges: [{ status: 'invalid' }],
  })
  t.match((await client.send(failed.url)).body, { status: 'invalid' })
  const given = await orderOf(client, dns('given-up.example'))
  await pass(world, given.authorizations)
  const [authorization = ''] = given.authorizations
  t.equal(outcomeOf(await client.send(authorization, { status: 'valid' })), '400 malformed')
  t.match((await client.send(authorization, { status: 'deactivated' })).body, { status: 'deactivated' })
  t.match((await client.send(given.url)).body, { status: 'invalid' })
  const late = await orderOf(client, dns('late.example'))
  await pass(world, late.authorizations)
  await database('acme_order')
    .where({ id: idOf(late.url) })
    .update({ expires_at: new Date(Date.now() - 1000) })
  t.match((await client.send(late.url)).body, { status: 'invalid' })
  const answer = await client.send(`${late.url}/finalize`, { csr: requestFor(['late.example']) })
  t.equal(outcomeOf(answer), '403 orderNotReady')
})

t.test('a rule that changes before the certificate is issued makes the order invalid, with the reason', async t => {
  const { url, authorizations } = await orderOf(client, dns('soon.reserved.example'))
  await pass(world, authorizations)
  const policy = manager.config.certificate_authority
  policy.reserved_names.push('reserved.example')
  t.teardown(() => policy.reserved_names.pop())
  const order = await finalize(client, url, requestFor(['soon.reserved.example']))
  t.match(order, { status: 'invalid', error: { type: /rejectedIdentifier$/, detail: /is reserved/ } })
  t.equal((await client.send(url.replace('/order/', '/certificate/'))).status, 404)
})

t.test('orders, accounts and failures are limited per hour, with the time to wait', async t => {
  const { acme_server: settings } = manager.config
  const before = { ...settings }
  t.teardown(() => Object.assign(settings, before))
  const limited = (t: Test, reply: AcmeReply, what: string) => {
    t.equal(outcomeOf(reply), '429 rateLimited', what)
    const seconds = Number(reply.headers.get('retry-after'))
    t.ok(seconds > 3500 && seconds <= 3600, `${what}: ${seconds}`)
  }
  const token = tokenOf('member', 'c'.repeat(32))
  const one = await world.client(token)
  Object.assign(settings, { orders_per_hour: 9 })
  for (let at = 0; at < 3; at++) await orderOf(one, dns('limit.example'))
  limited(t, await one.send('new-order', { identifiers: dns('limit.example') }), 'an account has a third')
  for (let at = 0; at < 2; at++) {
    const another = await world.client(token)
    for (let order = 0; order < 3; order++) await orderOf(another, dns('limit.example'))
  }
  limited(t, await (await world.client(token)).send('new-order', { identifiers: dns('limit.example') }), 'the project')
  Object.assign(settings, { orders_per_hour: 1000, failures_per_hour: 2 })
  const clumsy = await world.client(token)
  for (let at = 0; at < 2; at++) {
    await pass(world, (await orderOf(clumsy, dns('clumsy.example'))).authorizations, 'invalid')
  }
  limited(t, await clumsy.send('new-order', { identifiers: dns('clumsy.example') }), 'failures')
  t.equal((await one.send('new-order', { identifiers: dns('clumsy.example') })).status, 201, 'of others do not count')
  Object.assign(settings, { failures_per_hour: 1000, names_per_hour: 21 })
  const many = (count: number) => dns(...Array.from({ length: count }, (_, at) => `${at}.many.example`))
  limited(t, await one.send('new-order', { identifiers: many(10) }), 'names of the project, of which there are 12')
  t.equal((await one.send('new-order', { identifiers: many(9) })).status, 201, 'as many as are left')
  t.equal(outcomeOf(await one.send('new-order', { identifiers: many(30) })), '429 rateLimited', 'more than ever fit')
  Object.assign(settings, { accounts_per_hour: 4 })
  const late = new AcmeClient(manager.url, acmeKey())
  limited(t, await late.register(await world.bindingKey(token)), 'accounts')
})
