import t, { type Test } from 'tap'
import { AcmeClient, type AcmeReply, acmeKey, bindingOf, jwsOf } from '../../../support/clients/acme-client.js'
import { FOREIGN, tokenOf } from '../../../support/clients/callers.js'
import { dns, orderOf, startAcmeServer } from '../../../support/worlds/acme-server.js'

const world = await startAcmeServer({ acme_server: { accounts_per_hour: 1000 } })
t.teardown(world.stop)
const { manager } = world
const { database, url: base } = manager

const typeOf = ({ body }: AcmeReply): string => String(body.type).replace('urn:ietf:params:acme:error:', '')

/** Checks that an answer is a problem document of this type and status, with a nonce for the next try. */
function refused(t: Test, reply: AcmeReply, status: number, type: string, what: string): void {
  t.equal(`${reply.status} ${typeOf(reply)}`, `${status} ${type}`, `${what}: ${reply.text}`)
  t.equal(reply.headers.get('content-type'), 'application/problem+json', what)
  t.equal(reply.body.status, status, what)
  t.ok(String(reply.body.detail).length > 0, what)
}

t.test('the directory names every operation, and says that accounts need a binding', async t => {
  const answer = await fetch(`${base}/acme/directory`)
  t.equal(answer.status, 200)
  t.same(await answer.json(), {
    newNonce: `${base}/acme/new-nonce`,
    newAccount: `${base}/acme/new-account`,
    newOrder: `${base}/acme/new-order`,
    revokeCert: `${base}/acme/revoke-cert`,
    keyChange: `${base}/acme/key-change`,
    renewalInfo: `${base}/acme/renewal-info`,
    meta: { externalAccountRequired: true },
  })
  t.match(answer.headers.get('link'), `<${base}/acme/directory>;rel="index"`)
})

t.test('a nonce comes by HEAD with 200 and by GET with 204, and is never cached', async t => {
  for (const [method, status] of [
    ['HEAD', 200],
    ['GET', 204],
  ] as const) {
    const answer = await fetch(`${base}/acme/new-nonce`, { method })
    t.equal(answer.status, status)
    t.match(answer.headers.get('replay-nonce'), /^[A-Za-z0-9_-]{40,60}$/)
    t.equal(answer.headers.get('cache-control'), 'no-store')
  }
  t.equal((await database('acme_used_nonce')).length, 0, 'a nonce that nobody has used is not stored')
})

t.test(
  'an account with each kind of key orders, and its key is not changed by another request for an account',
  async t => {
    for (const alg of ['ES256', 'ES384', 'RS256', 'EdDSA'] as const) {
      const client = await world.client(undefined, alg)
      t.match((await orderOf(client, dns(`${alg.toLowerCase()}.example`))).body, { status: 'pending' }, alg)
      const again = await client.send('new-account', {}, { kid: null })
      t.match(again, { status: 200, body: { status: 'valid' } }, `${alg}: the same account, without a binding`)
      t.equal(again.headers.get('location'), client.account)
      t.match(await client.send('new-account', { onlyReturnExisting: true }, { kid: null }), { status: 200 })
    }
  },
)

t.test('an account needs a binding by a key that exists, is not revoked and belongs to it', async t => {
  const client = new AcmeClient(base, acmeKey())
  const ask = (payload: unknown) => client.send('new-account', payload, { kid: null })
  const url = client.url('new-account')
  const { keyId, hmacKey } = await world.bindingKey()
  const bind = (binding: object) => ask({ externalAccountBinding: binding })
  refused(t, await ask({}), 403, 'externalAccountRequired', 'no binding')
  refused(t, await ask({ onlyReturnExisting: true }), 400, 'accountDoesNotExist', 'no account yet')
  const other = acmeKey()
  const { jwk } = client.key
  refused(t, await bind(bindingOf(keyId, hmacKey, url, other.jwk)), 400, 'malformed', 'the key of somebody else')
  refused(t, await bind(bindingOf(keyId, hmacKey, `${base}/acme/new-order`, jwk)), 400, 'malformed', 'another url')
  refused(t, await bind(bindingOf(keyId, `A${hmacKey}`, url, jwk)), 403, 'unauthorized', 'another HMAC key')
  refused(t, await bind(bindingOf(hmacKey, hmacKey, url, jwk)), 403, 'unauthorized', 'an id that is none')
  refused(
    t,
    await bind({ ...bindingOf(keyId, hmacKey, url, jwk), header: {} }),
    400,
    'malformed',
    'an unprotected header',
  )
  const signed = jwsOf({ alg: 'ES256', kid: keyId, url }, jwk, client.key)
  refused(t, await bind(signed), 403, 'unauthorized', 'a signature in place of a MAC')
  t.equal((await manager.ask('DELETE', `/v1/acme-accounts/${keyId}`)).status, 204)
  refused(t, await bind(bindingOf(keyId, hmacKey, url, jwk)), 403, 'unauthorized', 'revoked')
  const row = await database('acme_binding_key').where({ id: keyId }).first()
  t.match(row, { sealed_key: null, project_key_id: null }, 'of a revoked key nothing is kept')
})

t.test('revoking a binding key ends the accounts that it created', async t => {
  const key = await world.bindingKey()
  const client = new AcmeClient(base, acmeKey())
  t.equal((await client.register(key)).status, 201)
  t.match((await manager.ask('GET', '/v1/acme-accounts?limit=100')).body.acme_accounts, [{ status: /ACTIVE|REVOKED/ }])
  await manager.ask('DELETE', `/v1/acme-accounts/${key.keyId}`)
  refused(t, await client.send('new-order', { identifiers: dns('a.example') }), 401, 'unauthorized', 'orders')
  refused(t, await client.register(key), 401, 'unauthorized', 'the account is known')
  t.equal((await manager.ask('DELETE', `/v1/acme-accounts/${key.keyId}`)).status, 204, 'again')
})

t.test('a key of another project is neither listed nor revoked', async t => {
  const { keyId } = await world.bindingKey(tokenOf('member', FOREIGN))
  t.notMatch((await manager.ask('GET', '/v1/acme-accounts?limit=100')).text, keyId)
  t.equal((await manager.ask('DELETE', `/v1/acme-accounts/${keyId}`)).status, 404)
  t.match(await database('acme_binding_key').where({ id: keyId }).first(), { revoked_at: null })
})

t.test('contacts: one mailto address each; they can be changed', async t => {
  const client = await world.client()
  const account = client.account ?? ''
  t.match(await client.send(account, { contact: ['mailto:ops@example.org'] }), {
    status: 200,
    body: { contact: ['mailto:ops@example.org'], status: 'valid' },
  })
  t.match((await client.send(account)).body, { contact: ['mailto:ops@example.org'], orders: `${account}/orders` })
  refused(t, await client.send(account, { contact: ['tel:+123'] }), 400, 'unsupportedContact', 'tel')
  refused(t, await client.send(account, { contact: ['mailto:a@b.c,d@e.f'] }), 400, 'invalidContact', 'two')
  refused(t, await client.send(account, { contact: ['mailto:a\u0000@b.c'] }), 400, 'invalidContact', 'NUL')
  refused(t, await client.send(account, { contact: 'mailto:a@b.c' }), 400, 'malformed', 'no list')
})

t.test('a deactivated account does nothing any more, and its key gets no other', async t => {
  const client = await world.client()
  refused(t, await client.send(client.account ?? '', { status: 'valid' }), 400, 'malformed', 'only deactivated')
  t.match(await client.send(client.account ?? '', { status: 'deactivated' }), {
    status: 200,
    body: { status: 'deactivated' },
  })
  refused(t, await client.send(client.account ?? ''), 401, 'unauthorized', 'show')
  refused(t, await client.send('new-order', { identifiers: dns('a.example') }), 401, 'unauthorized', 'order')
  refused(t, await client.register(await world.bindingKey()), 401, 'unauthorized', 'new account')
})

t.test('a nonce is good once, for a valid request, from this server', async t => {
  const client = await world.client()
  const nonce = await client.nonce()
  const order = () => client.send('new-order', { identifiers: dns('nonce.example') }, { header: { nonce } })
  const other = acmeKey()
  const forged = await client.send('new-order', {}, { header: { nonce }, key: other })
  refused(t, forged, 400, 'malformed', 'a signature by another key does not use the nonce up')
  t.equal((await order()).status, 201)
  refused(t, await order(), 400, 'badNonce', 'replayed')
  const both = await client.nonce()
  const twins = await Promise.all(
    [1, 2]
      .map(() => new AcmeClient(base, client.key))
      .map(twin => {
        twin.account = client.account
        return twin.send(client.account ?? '', null, { header: { nonce: both } })
      }),
  )
  t.same(twins.map(({ status }) => status).sort(), [200, 400], 'at the same time')
  for (const bad of [
    '',
    'AAAA',
    `${(await client.nonce()).slice(0, -4)}AAAA`,
    `${await client.nonce()}=`,
    7,
    undefined,
  ]) {
    const reply = await client.send(client.account ?? '', null, { header: { nonce: bad } })
    const type = bad === 7 ? 'malformed' : 'badNonce'
    refused(t, reply, 400, type, `the nonce ${bad}`)
    t.match(reply.headers.get('replay-nonce'), /^[\w-]{40,}$/, 'a good one comes with the refusal')
  }
})

t.test('a request is bound to its URL and its algorithm', async t => {
  const client = await world.client()
  const account = client.account ?? ''
  const ask = (header: Record<string, unknown>, key = client.key) => client.send(account, null, { header, key })
  refused(t, await ask({ url: `${base}/acme/new-order` }), 403, 'unauthorized', 'another url')
  refused(t, await ask({ url: account.replace('127.0.0.1', 'localhost') }), 403, 'unauthorized', 'another host')
  refused(t, await ask({ url: undefined }), 403, 'unauthorized', 'no url')
  for (const alg of ['none', 'HS256', 'ES512', 'RS512', '']) {
    const reply = await ask({ alg })
    refused(t, reply, 400, 'badSignatureAlgorithm', alg)
    t.same(reply.body.algorithms, ['ES256', 'ES384', 'EdDSA', 'RS256'])
  }
  refused(t, await ask({ alg: 'RS256' }), 400, 'malformed', 'the algorithm of another kind of key')
  refused(t, await ask({ crit: ['b64'], b64: false }), 400, 'malformed', 'a critical header that is not known')
})

t.test('a request names either its account or its key, and the key has to be one of the account kind', async t => {
  const client = await world.client()
  const ask = (path: string, header: Record<string, unknown>) =>
    client.send(path, { identifiers: dns('a.example') }, { header })
  refused(t, await ask('new-order', { jwk: client.key.jwk }), 400, 'malformed', 'both')
  refused(t, await ask('new-order', { kid: undefined }), 400, 'malformed', 'none')
  refused(
    t,
    await ask('new-order', { kid: undefined, jwk: client.key.jwk }),
    400,
    'malformed',
    'a key where an account must be',
  )
  refused(t, await ask('new-account', {}), 400, 'malformed', 'an account where a key must be')
  refused(t, await ask('new-order', { kid: `${base}/acme/account/` }), 400, 'accountDoesNotExist', 'no id')
  refused(
    t,
    await ask('new-order', { kid: 'http://evil.example/acme/account/1' }),
    400,
    'accountDoesNotExist',
    'elsewhere',
  )
  const stranger = await world.client()
  refused(t, await ask('new-order', { kid: stranger.account }), 400, 'malformed', 'the account of somebody else')
  const asKey = (jwk: object) => client.send('new-account', {}, { kid: null, header: { jwk } })
  refused(t, await asKey({ ...client.key.jwk, d: 'AAAA' }), 400, 'malformed', 'a private key')
  refused(t, await asKey({ ...client.key.jwk, x: 'AAAA' }), 400, 'badPublicKey', 'not on the curve')
  refused(t, await asKey({ kty: 'oct', k: 'AAAA' }), 400, 'malformed', 'a symmetric key')
  refused(t, await asKey(acmeKey('ES512').jwk), 400, 'badPublicKey', 'P-521')
  refused(t, await asKey({ kty: 'RSA', n: 'gAAB', e: 'AQAB' }), 400, 'badPublicKey', 'a short RSA key')
})

t.test('what is no signed JSON gets a problem document', async t => {
  const client = await world.client()
  const send = (raw: string, type?: string) =>
    client.send('new-order', {}, { raw, ...(type !== undefined && { type }) })
  for (const raw of ['', '{', '[]', '{}', 'null', '{"protected":"e30","payload":"","signature":"AA","header":{}}']) {
    refused(t, await send(raw), 400, 'malformed', raw)
  }
  refused(t, await send('{}', 'application/json'), 415, 'malformed', 'another type')
  refused(
    t,
    await send(JSON.stringify({ protected: 'A'.repeat(70_000), payload: '', signature: 'AA' })),
    413,
    'malformed',
    'long',
  )
  const { jwk: _, ...header } = {
    alg: 'ES256',
    nonce: await client.nonce(),
    url: client.url('new-order'),
    kid: client.account,
    jwk: 0,
  }
  const jws = jwsOf(header, 'not JSON', client.key)
  refused(t, await send(JSON.stringify(jws)), 400, 'malformed', 'a payload that is no JSON')
  const answer = await fetch(`${base}/acme/nothing`)
  t.equal(answer.status, 404)
  t.equal(answer.headers.get('content-type'), 'application/problem+json')
  t.equal((await fetch(`${base}/acme/new-order`)).status, 405)
})

t.test('a new key replaces the old one, which then is no key of the account', async t => {
  const client = await world.client()
  const account = client.account ?? ''
  const [old, next] = [client.key, acmeKey('ES384')]
  const url = client.url('key-change')
  const change = (payload: object, header: object = {}, key = next) =>
    client.send('key-change', jwsOf({ alg: key.alg, jwk: key.jwk, url, ...header }, payload, key))
  const honest = { account, oldKey: old.jwk }
  refused(t, await change({ ...honest, account: `${account}x` }), 400, 'malformed', 'another account')
  refused(t, await change({ ...honest, oldKey: next.jwk }), 400, 'malformed', 'another old key')
  refused(t, await change(honest, { url: `${url}x` }), 400, 'malformed', 'another url inside')
  refused(t, await change(honest, { nonce: 'AAAA' }), 400, 'malformed', 'a nonce inside')
  refused(t, await change(honest, { jwk: old.jwk }), 400, 'malformed', 'not signed by the new key')
  const stranger = await world.client()
  const taken = await change(honest, {}, stranger.key)
  refused(t, taken, 409, 'malformed', 'the key of another account')
  t.equal(taken.headers.get('location'), stranger.account)
  t.match(await change(honest), { status: 200, body: { status: 'valid' } })
  refused(t, await client.send(account), 400, 'malformed', 'the old key')
  client.key = next
  t.equal((await client.send(account)).status, 200)
  t.match(await database('audit_record').where({ action: 'acme-account.change' }).first(), { outcome: 'success' })
})

t.test('nobody sees objects of another account: the answer is the same as for none at all', async t => {
  const [client, stranger] = [await world.client(), await world.client(tokenOf('member', FOREIGN))]
  const { url, authorizations } = await orderOf(client, dns('mine.example'))
  const [authorization = ''] = authorizations
  const shown = await client.send(authorization)
  const [challenge] = shown.body.challenges as { url: string }[]
  for (const path of [
    url,
    `${url}/finalize`,
    authorization,
    challenge?.url ?? '',
    url.replace('/order/', '/certificate/'),
  ]) {
    const payload = path.endsWith('finalize') ? { csr: 'AAAA' } : null
    const theirs = await stranger.send(path, payload)
    refused(t, theirs, 404, 'malformed', path)
    const none = await stranger.send(path.replace(/[0-9a-f]{12}/, '000000000000'), payload)
    t.equal(theirs.body.detail, none.body.detail, path)
  }
  refused(t, await stranger.send(client.account ?? ''), 403, 'unauthorized', 'account')
  refused(t, await stranger.send(`${client.account}/orders`), 403, 'unauthorized', 'orders')
  t.match((await client.send(`${client.account}/orders`)).body, { orders: [url] })
})

t.test('without the setting there is no ACME server', async t => {
  const other = await startAcmeServer({ acme_server: { enable: false } })
  t.teardown(other.stop)
  t.equal((await fetch(`${other.manager.url}/acme/directory`)).status, 404)
})

t.test('nonces of one process are good for another', async t => {
  const client = await world.client()
  const other = await world.another()
  const account = client.account ?? ''
  const header = { alg: 'ES256', kid: account, nonce: await client.nonce(), url: account }
  const body = JSON.stringify(jwsOf(header, null, client.key))
  const send = () =>
    fetch(account.replace(base, other), {
      method: 'POST',
      headers: { 'Content-Type': 'application/jose+json' },
      body,
    })
  t.equal((await send()).status, 200)
  t.equal((await send()).status, 400, 'and used up there')
  const here = await fetch(account, { method: 'POST', headers: { 'Content-Type': 'application/jose+json' }, body })
  t.equal(here.status, 400, 'and here')
})
