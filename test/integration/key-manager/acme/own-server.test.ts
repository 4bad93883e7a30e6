import { once } from 'node:events'
import { connect } from 'node:net'
import { createServer } from 'node:tls'
import pg from 'pg'
import t from 'tap'
import { CHALLENGE_CHANNEL } from '../../../../controller/key-manager/acme-server/wake-channel.js'
import { createCaBackends } from '../../../../controller/key-manager/certificate-authorities/backends.js'
import { createLog } from '../../../../controller/log/log.js'
import { startTestKeyManager } from '../../../support/clients/key-manager-api.js'
import { makePair } from '../../../support/inputs/certificates.js'
import { fileOf } from '../../../support/inputs/x509.js'
import { ownPorts } from '../../../support/ports.js'
import { startChallengeResponder } from '../../../support/services/challenge-responder.js'
import { startAcmeServer } from '../../../support/worlds/acme-server.js'
import { renewalHelpers, startCertificateWorkers } from '../../../support/worlds/renewals.js'

/** A key manager that gets certificates from another one's ACME server, which gives renewal information. */

const [port = 0, httpPort = 0, tlsPort = 0] = await ownPorts(3)
const origin = `https://127.0.0.1:${port}`
const server = await startAcmeServer({ public_url: origin, certificate_authority: { certificate_days: 90 } })
t.teardown(server.stop)
const ca = makePair({ subject: '/CN=The server’s own CA' })
const own = makePair({ subject: '/CN=localhost', issuer: ca, args: ['-addext', 'subjectAltName=IP:127.0.0.1'] })
const front = createServer({ cert: own.certificate, key: own.privateKey }, socket => {
  const behind = connect(Number(new URL(server.manager.url).port), '127.0.0.1')
  socket.pipe(behind).pipe(socket)
  socket.on('error', () => behind.destroy())
  behind.on('error', () => socket.destroy())
})
front.listen(port, '127.0.0.1')
await once(front, 'listening')

/** Stands in for the server's validators, which another test covers: every challenge passes. */
const validator = new pg.Client({ connectionString: server.manager.databaseUrl })
await validator.connect()
validator.on('notification', () => {
  const passed = { status: 'valid', settled_at: new Date() }
  const processing = server.manager.database('acme_challenge').where({ status: 'processing' })
  processing.update(passed).catch(() => undefined)
})
await validator.query(`LISTEN ${CHALLENGE_CHANNEL}`)

const { keyId, hmacKey } = await server.bindingKey()
const manager = await startTestKeyManager({
  acme: {
    directory_url: `${origin}/acme/directory`,
    ca_file: fileOf(ca.certificate),
    eab_key_id: keyId,
    eab_hmac_key_file: fileOf(hmacKey),
  },
})
const { database } = manager
await startCertificateWorkers(t, manager, createCaBackends(manager, createLog('test', 'silent')))
await startChallengeResponder(t, manager, { httpPort, tlsPort })
t.teardown(async () => {
  await validator.end()
  front.close()
})
const { ordered, pass, until } = renewalHelpers(manager)
const { id: caId } = await database('certificate_authority').where({ plugin_name: 'acme' }).first('id')

t.test('a certificate is renewed as the server’s renewal information says', async t => {
  const id = await ordered({ ca_id: caId, subject_dn: 'CN=own.test' })
  const planned = await until(id, 'planned', ({ next_renewal_at }) => next_renewal_at !== null)
  const row = await database('certificate').where({ id }).first()
  t.ok(row.window_start !== null && row.info_at > new Date())
  const renewal = Date.parse(`${planned.next_renewal_at}Z`)
  t.ok(renewal >= row.window_start.getTime() && renewal <= row.window_end.getTime(), 'within the window')
  const [issuer] = await server.manager.database('certificate_authority').select('id')
  const [internal] = createCaBackends(server.manager)
  t.equal(await internal?.revoke(issuer.id, row.serial, 'keyCompromise'), 'revoked')
  await database('certificate')
    .where({ id })
    .update({ not_before: new Date(Date.now() - 3_600_000), info_at: new Date(0) })
  await pass(id, 0)
  const renewed = await until(id, 'renewed at once, because it was revoked', ({ version }) => version === 2)
  t.match(renewed, { names: ['own.test'], attempts: 0 })
  const orders = await server.manager.database('acme_order').orderBy('created_at').select('replaces')
  t.equal(orders.length, 2)
  t.equal(orders[0].replaces, null)
  t.ok(orders[1].replaces, 'the second order says which certificate it replaces')
})
