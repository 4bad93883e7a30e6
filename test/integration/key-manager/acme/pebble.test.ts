import { createPrivateKey, X509Certificate } from 'node:crypto'
import t from 'tap'
import { createCaBackends } from '../../../../controller/key-manager/certificate-authorities/backends.js'
import { rotateProjectKeys } from '../../../../controller/key-manager/rotation/project-keys.js'
import { createLog } from '../../../../controller/log/log.js'
import { writeCertificateRequest } from '../../../../x509/certificate-request.js'
import { parseDistinguishedName } from '../../../../x509/encoding/distinguished-name.js'
import { encodePem } from '../../../../x509/encoding/pem.js'
import { FOREIGN, OWN, tokenOf } from '../../../support/clients/callers.js'
import { startTestKeyManager } from '../../../support/clients/key-manager-api.js'
import { eventually } from '../../../support/eventually.js'
import { certificateOrderHelpers } from '../../../support/inputs/certificate-order-helpers.js'
import { fileOf, keyOf, openssl } from '../../../support/inputs/x509.js'
import { startChallengeResponder } from '../../../support/services/challenge-responder.js'
import { startPebble } from '../../../support/services/pebble.js'
import { orderHelpers } from '../../../support/worlds/order-worker.js'
import { renewalHelpers, startCertificateWorkers } from '../../../support/worlds/renewals.js'

/** Certificates from Debian's pebble, which demands an external account and refuses some nonces. */

const pebble = await startPebble(t, { externalAccount: true, nonceRejection: 10 })
const manager = await startTestKeyManager({
  certificate_authority: { project_names: [`${OWN}=dns.example`, `${OWN}=example`] },
  acme: {
    directory_url: pebble.directoryUrl,
    ca_file: pebble.caFile,
    contact: 'operator@example.com',
    terms_of_service_agreed: true,
    eab_key_id: pebble.external.keyId,
    eab_hmac_key_file: fileOf(`${pebble.external.hmacKey}\n`),
    dns_hook: pebble.dnsHook,
  },
})
const { database, ask } = manager
const backends = createCaBackends(manager, createLog('test', 'silent'))
await startCertificateWorkers(t, manager, backends)
const responder = await startChallengeResponder(t, manager, pebble)
const { order, ended, show } = orderHelpers(manager)
const { resultOf } = certificateOrderHelpers(manager)
const { ordered, pass, until } = renewalHelpers(manager)
const { id: caId } = await database('certificate_authority').where({ plugin_name: 'acme' }).first('id')

const requestFor = (names: string[]) =>
  encodePem(
    'CERTIFICATE REQUEST',
    writeCertificateRequest(
      parseDistinguishedName(`CN=${names[0]}`),
      keyOf('P-256'),
      names.map(value => ({ kind: 'dns', value })),
    ),
  )

async function expectTrusted(payload: { certificate: string; intermediates: string }): Promise<X509Certificate> {
  const verified = openssl([
    ...['verify', '-CAfile', fileOf(await pebble.root()), '-untrusted', fileOf(payload.intermediates)],
    fileOf(payload.certificate),
  ])
  t.match(verified, { status: 0 }, verified.text)
  return new X509Certificate(payload.certificate)
}

const payloads = (parts: Record<string, { payload: string }>) => ({
  certificate: parts.certificate?.payload ?? '',
  intermediates: parts.intermediates?.payload ?? '',
})

t.test('the directory is a CA like others, without a certificate of its own', async t => {
  const read = (path: string) => ask('GET', `/v1/cas/${caId}${path}`, undefined, { token: tokenOf('reader') })
  t.match((await read('')).body, { plugin_name: 'acme', plugin_ca_id: pebble.directoryUrl })
  t.equal((await read('/cacert')).status, 404)
  t.equal((await read('/intermediates')).status, 404)
  t.equal((await read('/crl')).status, 404)
  const below = { name: 'x', subject_dn: 'CN=x', parent_ca_ref: `x/${caId}` }
  t.equal((await ask('POST', '/v1/cas', below)).status, 400)
})

t.test('a load balancer proves the name over HTTP', async t => {
  responder.serves.delete('tls-alpn-01')
  const meta = { ca_id: caId, name: 'w', algorithm: 'ec', subject_dn: 'CN=www.example' }
  const record = await ended(await order('certificate', meta))
  t.match(record, { status: 'ACTIVE', sub_status: 'cert_generated' })
  const { parts } = await resultOf(record)
  const certificate = await expectTrusted(payloads(parts))
  t.ok(
    certificate.checkPrivateKey(createPrivateKey(parts.private_key?.payload ?? '')),
    'the key of the first step fits',
  )
  t.ok(certificate.checkHost('www.example'))
  t.ok(responder.served.includes('http-01 www.example'))
  t.same(await database('published_challenge'), [], 'nothing stays published')
  t.same(await database('pending_certificate'), [])
  const [row] = await database('certificate').where({ id: String(record.container_ref).slice(-36) })
  t.match(row, { names: ['www.example'], issuer: /Pebble Intermediate/, ca_id: caId })
  t.match(await database('issued_certificate').where({ serial: row.serial }), [{ ca_id: caId }])
})

t.test('where nothing serves HTTP, the name is proved over TLS', async t => {
  responder.serves = new Set(['tls-alpn-01'])
  const id = await ordered({ ca_id: caId, subject_dn: 'CN=tls.example' })
  t.ok(responder.served.includes('tls-alpn-01 tls.example'))
  responder.serves.add('http-01')
  t.match(await until(id, 'stored', () => true), { names: ['tls.example'] })
})

t.test('a wildcard and its domain are proved in the DNS, in one order with other names', async t => {
  const names = ['*.dns.example', 'dns.example', 'a.example', 'b.example']
  const record = await ended(await order('certificate', { ca_id: caId, request_data: requestFor(names) }))
  t.match(record, { status: 'ACTIVE' })
  const { parts } = await resultOf(record)
  const certificate = await expectTrusted(payloads(parts))
  t.same((certificate.subjectAltName ?? '').split(', ').sort(), names.map(name => `DNS:${name}`).sort())
  t.same(await database('published_challenge'), [], 'the hook has withdrawn its records')
})

t.test('an order waits while no load balancer of its project serves the challenge', async t => {
  responder.serves.clear()
  const token = tokenOf('member', FOREIGN)
  const id = await order('certificate', { ca_id: caId, algorithm: 'ec', subject_dn: 'CN=waits.test' }, token)
  const waiting = await eventually('it waits', async () => {
    const record = await show(id, token)
    return /No load balancer/.test(String(record.sub_status_message)) && record
  })
  t.match(waiting, { status: 'PENDING', sub_status: 'cert_request_pending' })
  const other = await ended(await order('key', { name: 'k', algorithm: 'aes', bit_length: 256 }))
  t.match(other, { status: 'ACTIVE' }, 'other orders are not held up')
  const rows = await database('published_challenge').where({ request_id: id })
  t.same(
    rows.map(({ type }) => type).sort(),
    ['http-01', 'tls-alpn-01'],
    'no record in zones that are not the project’s',
  )
  t.match(rows, [{ project_id: FOREIGN, identifier: 'waits.test', served_at: null }])
  responder.serves.add('http-01')
  await database('published_challenge').where({ type: 'http-01' }).update({ served_at: new Date() })
  const done = await ended(id, token)
  t.match(done, { status: 'ACTIVE' })
})

t.test('a name that cannot be proved ends the order, with the CA’s reason', async t => {
  const { served } = responder
  const row = await order('certificate', { ca_id: caId, request_data: requestFor(['*.elsewhere.test']) })
  t.match(await ended(row), {
    status: 'ERROR',
    error_status_code: '400',
    error_reason: /not among those of the project/,
  })
  t.notOk(served.some(each => each.includes('elsewhere')))
})

t.test('a certificate is renewed at the CA, and revoked there', async t => {
  const id = await ordered({ ca_id: caId, subject_dn: 'CN=renew.example' })
  const { serial, not_after } = await database('certificate').where({ id }).first()
  await pass(id, (not_after.getTime() - Date.now()) / 86_400_000 - 5)
  t.match(await until(id, 'renewed', ({ version }) => version === 2), { attempts: 0 })
  const acme = backends.find(({ name }) => name === 'acme')
  t.equal(await acme?.revoke(caId, serial, 'superseded'), 'revoked', 'the former one')
  t.equal(await acme?.revoke(caId, serial, 'superseded'), 'already revoked')
  t.equal(await acme?.revoke(caId, '00', 'superseded'), 'unknown')
})

t.test('the key of the account is only stored encrypted, and outlives a rotation of all project keys', async t => {
  const [account] = await database('acme_client_account')
  t.match(account, { url: /^https/, directory_url: pebble.directoryUrl })
  t.notMatch(account.sealed_key.toString('latin1'), 'PRIVATE')
  const options = { report: () => undefined, onResume: () => undefined }
  t.match(await rotateProjectKeys(database, manager.keyring.backends, null, options), { unreadable: 0 })
  for (const project of [OWN, FOREIGN, '']) manager.keyring.forgetActive(project)
  await ordered({ ca_id: caId, subject_dn: 'CN=rotated.example' })
  const accounts = await database('acme_client_account')
  t.match(accounts, [{ id: account.id, url: account.url }])
  t.not(accounts[0].project_key_id, account.project_key_id)
})
