import { X509Certificate } from 'node:crypto'
import t from 'tap'
import { type AcmeClient, acmeKey } from '../../../support/clients/acme-client.js'
import { FOREIGN, OWN, tokenOf } from '../../../support/clients/callers.js'
import type { Json } from '../../../support/clients/json-answers.js'
import { fileOf, keyOf, openssl } from '../../../support/inputs/x509.js'
import { dns, issue, orderOf, outcomeOf, pass, startAcmeServer } from '../../../support/worlds/acme-server.js'

const DAY = 86_400_000

const world = await startAcmeServer({
  certificate_authority: { certificate_days: 90 },
  acme_server: { accounts_per_hour: 1000, orders_per_hour: 1000 },
})
t.teardown(world.stop)
const { manager } = world
const { database } = manager

const idOf = (url: string): string => url.slice(-36)

const client = await world.client()

/** The id of a certificate in renewal information (RFC 9773, 4.1). */
function certificateId(pem: string): string {
  const { serialNumber } = new X509Certificate(pem)
  const { text } = openssl(['x509', '-noout', '-ext', 'authorityKeyIdentifier', '-in', fileOf(pem)])
  const identifier = Buffer.from(/([0-9A-F]{2}(:[0-9A-F]{2}){19})/.exec(text)?.[1]?.replaceAll(':', '') ?? '', 'hex')
  const serial = Buffer.from(serialNumber.padStart(32, '0'), 'hex')
  const integer = (serial[0] ?? 0) >= 0x80 ? Buffer.concat([Buffer.from([0]), serial]) : serial
  return `${identifier.toString('base64url')}.${integer.toString('base64url')}`
}

t.test('a validity within that of the CA is kept, any other refused', async t => {
  const at = (milliseconds: number) => new Date(Math.floor((Date.now() + milliseconds) / 1000) * 1000).toISOString()
  const [notBefore, notAfter] = [at(DAY), at(11 * DAY)]
  const { pem, order } = await issue(world, client, ['short.example'], { notBefore, notAfter })
  const certificate = new X509Certificate(pem)
  t.equal(new Date(certificate.validFrom).toISOString(), notBefore)
  t.equal(new Date(certificate.validTo).toISOString(), notAfter)
  t.match(order, { notBefore, notAfter })
  const ask = (more: object) => client.send('new-order', { identifiers: dns('short.example'), ...more })
  for (const more of [
    { notAfter: at(91 * DAY) },
    { notAfter: at(-DAY) },
    { notBefore: at(-DAY) },
    { notBefore: at(10 * DAY), notAfter: at(9 * DAY) },
    { notAfter: 'tomorrow' },
    { notAfter: '2030-13-01T00:00:00Z' },
    { notAfter: 7 },
  ]) {
    t.equal(outcomeOf(await ask(more)), '400 malformed', JSON.stringify(more))
  }
})

t.test('the account, one that has proven the names, or the key of the certificate revokes it; nobody else', async t => {
  const der = (pem: string) => new X509Certificate(pem).raw.toString('base64url')
  const revoke = (by: AcmeClient, pem: string, reason?: number, key = by.key, kid = by.account) =>
    by.send('revoke-cert', { certificate: der(pem), ...(reason !== undefined && { reason }) }, { key, kid })
  const first = await issue(world, client, ['revoked.example'])
  const [colleague, foreigner] = [await world.client(), await world.client(tokenOf('member', FOREIGN))]
  t.equal(outcomeOf(await revoke(colleague, first.pem)), '403 unauthorized', 'an account of the project')
  t.equal(outcomeOf(await revoke(client, first.pem, 2)), '400 badRevocationReason', 'a CA’s reason')
  t.equal(outcomeOf(await revoke(client, first.pem, 99)), '400 badRevocationReason')
  t.equal((await revoke(client, first.pem, 1)).status, 200)
  t.equal(outcomeOf(await revoke(client, first.pem, 1)), '400 alreadyRevoked')
  const serial = new X509Certificate(first.pem).serialNumber.toLowerCase().padStart(32, '0')
  t.match(await database('issued_certificate').where({ serial }).first(), { revocation_reason: 'keyCompromise' })
  const record = await database('audit_record').where({ action: 'certificate.revoke' }).first()
  t.match(record, { user_id: 'user-member', project_id: OWN, remote_address: '127.0.0.1', detail: { serial } })

  const second = await issue(world, client, ['proven.example'])
  const { authorizations } = await orderOf(colleague, dns('proven.example'))
  await pass(world, authorizations)
  const theirs = await database('acme_authorization')
    .insert({
      ...(await database('acme_authorization')
        .where({ id: idOf(authorizations[0] ?? '') })
        .first()),
      ...{ id: '11111111-1111-4111-8111-111111111111', account_id: idOf(foreigner.account ?? '') },
    })
    .returning('id')
  t.equal(theirs.length, 1)
  await database('acme_challenge').insert({
    ...(await database('acme_challenge')
      .where({ authorization_id: idOf(authorizations[0] ?? ''), status: 'valid' })
      .first()),
    ...{ id: '22222222-2222-4222-8222-222222222222', authorization_id: '11111111-1111-4111-8111-111111111111' },
  })
  t.equal(
    outcomeOf(await revoke(foreigner, second.pem)),
    '403 unauthorized',
    'another project has proven the same name',
  )
  t.equal((await revoke(colleague, second.pem)).status, 200, 'the project has')

  const third = await issue(world, client, ['by-key.example'])
  const holder = { ...acmeKey(), privateKey: keyOf('P-256') }
  const { x, y, crv, kty } = holder.privateKey.export({ format: 'jwk' })
  const key = { ...holder, jwk: { kty, crv, x, y } as typeof holder.jwk }
  const other = acmeKey()
  t.equal(outcomeOf(await revoke(client, third.pem, 0, other, null)), '403 unauthorized', 'another key')
  t.equal((await revoke(client, third.pem, 0, key, null)).status, 200)

  const stranger = openssl([
    'req',
    '-x509',
    '-newkey',
    'ec',
    '-pkeyopt',
    'ec_paramgen_curve:P-256',
    '-nodes',
    '-keyout',
    '/dev/null',
    '-subj',
    '/CN=x',
    '-days',
    '1',
  ])
  const pem = stranger.text.slice(stranger.text.indexOf('-----BEGIN CERTIFICATE'))
  t.equal(outcomeOf(await revoke(client, pem)), '404 malformed', 'of another CA')
  t.equal(outcomeOf(await client.send('revoke-cert', { certificate: 'AAAA' })), '400 malformed')
})

t.test('renewal information: a window at two thirds of the life, in the past once revoked', async t => {
  const { pem } = await issue(world, client, ['renewed.example'])
  const id = certificateId(pem)
  const ask = async (name: string) => {
    const answer = await fetch(`${manager.url}/acme/renewal-info/${name}`)
    return { status: answer.status, headers: answer.headers, body: (await answer.json()) as Json }
  }
  const first = await ask(id)
  t.equal(first.status, 200)
  t.equal(first.headers.get('retry-after'), '21600')
  const { start, end } = first.body.suggestedWindow as { start: string; end: string }
  const daysUntil = (time: string) => (new Date(time).getTime() - Date.now()) / DAY
  t.ok(Math.abs(daysUntil(start) - 60) < 0.1, start)
  t.ok(daysUntil(end) > daysUntil(start) && daysUntil(end) < 70, end)
  await client.send('revoke-cert', { certificate: new X509Certificate(pem).raw.toString('base64url') })
  const { end: past } = (await ask(id)).body.suggestedWindow as { end: string }
  t.ok(daysUntil(past) < 0)
  const [identifier = '', serial = ''] = id.split('.')
  for (const bad of ['x', '.', `${identifier}.`, `${identifier}.AAAA`, `${serial}.${serial}`, `AAAA.${serial}`]) {
    t.equal((await ask(bad)).status, 404, bad)
  }
})

t.test('an order replaces a certificate of its account once, with a name in common', async t => {
  const { pem } = await issue(world, client, ['next.example', 'more.example'])
  const replaces = certificateId(pem)
  const ask = (by: AcmeClient, name: string, id = replaces) =>
    by.send('new-order', { identifiers: dns(name), replaces: id })
  const stranger = await world.client()
  t.equal(outcomeOf(await ask(stranger, 'next.example')), '400 malformed', 'of another account')
  t.equal(outcomeOf(await ask(client, 'else.example')), '400 malformed', 'without a name in common')
  t.equal(outcomeOf(await ask(client, 'next.example', 'AAAA.AAAA')), '400 malformed', 'of no certificate')
  t.match(await ask(client, 'next.example'), { status: 201, body: { replaces } })
  const second = await issue(world, client, ['next.example'], { replaces })
  t.match(second.order, { replaces, status: 'valid' })
  t.equal(outcomeOf(await ask(client, 'next.example')), '409 alreadyReplaced')
})

t.test('with CAs of projects, the chain has the project’s CA and ends below the root', async t => {
  const authority = manager.config.certificate_authority
  authority.project_cas = true
  t.teardown(() => {
    authority.project_cas = false
  })
  const { pem } = await issue(world, client, ['chained.example'])
  const [leaf = '', middle = '', ...others] = pem.split(/(?=-----BEGIN)/)
  t.same(others, [])
  const { certificate: root } = await database('certificate_authority').whereNull('parent_id').first()
  const files = ['-CAfile', fileOf(root), '-untrusted', fileOf(middle), fileOf(leaf)]
  t.match(openssl(['verify', ...files]), { status: 0 })
})
