import { createPrivateKey, X509Certificate } from 'node:crypto'
import pg from 'pg'
import t from 'tap'
import { createCaBackends } from '../../../../controller/key-manager/certificate-authorities/backends.js'
import type { CaBackend, IssueOutcome } from '../../../../controller/key-manager/certificate-authorities/ca-backend.js'
import { eraseProject } from '../../../../controller/key-manager/erase-project.js'
import { FOREIGN, OWN, tokenOf } from '../../../support/clients/callers.js'
import { startTestKeyManager } from '../../../support/clients/key-manager-api.js'
import { eventually } from '../../../support/eventually.js'
import { certificateOrderHelpers, csr, storedMeta } from '../../../support/inputs/certificate-order-helpers.js'
import { keyOf } from '../../../support/inputs/x509.js'
import { renewalHelpers, startCertificateWorkers } from '../../../support/worlds/renewals.js'

const manager = await startTestKeyManager({ certificate_authority: { certificate_days: 90 } })
const { ask, database } = manager

/** The internal CA, whose answers a test may replace. */
const [internal] = createCaBackends(manager)
if (internal === undefined) throw new Error('There is no CA.')
let answer: IssueOutcome | null = null
const backend: CaBackend = { ...internal, issue: async (...words) => answer ?? internal.issue(...words) }

await startCertificateWorkers(t, manager, [backend])
const { show, ordered, pass, until, events } = renewalHelpers(manager)
const { resultOf, storedKey } = certificateOrderHelpers(manager)

const contentOf = async (id: string) => resultOf({ container_ref: `${manager.url}/v1/containers/${id}` })
const secretIdOf = (secret: { secret_ref?: unknown } | undefined) => String(secret?.secret_ref).slice(-36)
const rowOf = (table: string, id: string) => database(table).where({ id }).first()

t.test('an ordered certificate is listed with what is known about it and its next renewal', async t => {
  const id = await ordered({ subject_dn: 'CN=list.example' })
  const certificate = await until(id, 'planned', ({ next_renewal_at }) => next_renewal_at !== null)
  t.match(certificate, {
    container_ref: `${manager.url}/v1/containers/${id}`,
    names: ['list.example'],
    issuer: 'CN=Krater Root CA,O=Krater',
    ...{ version: 1, former_version: null, renew: true, renew_key: true, attempts: 0, last_error: null },
  })
  const left = (Date.parse(`${certificate.not_after}Z`) - Date.parse(`${certificate.next_renewal_at}Z`)) / 86_400_000
  t.ok(left >= 30 && left <= 32, `${left} days are left at two thirds of the life, with jitter`)
  const list = (await ask('GET', '/v1/certificates')).body
  t.match(list, { total: 1, certificates: [certificate] })
  t.match((await ask('GET', '/v1/certificates', undefined, { token: tokenOf('member', FOREIGN) })).body, { total: 0 })
})

t.test('a renewal replaces all parts at once, and keeps the container and the former parts', async t => {
  const id = await ordered({ name: 'web', subject_dn: 'CN=web.example' })
  const before = await contentOf(id)
  const keyId = secretIdOf(before.parts.private_key?.secret)
  await ask('PUT', `/v1/secrets/${keyId}/acl`, { read: { users: ['octavia'], 'project-access': false } })
  await ask('PUT', `/v1/secrets/${keyId}/metadata`, { metadata: { owner: 'web' } })
  const listener = new pg.Client({ connectionString: manager.databaseUrl })
  await listener.connect()
  t.teardown(() => listener.end())
  const notified: string[] = []
  listener.on('notification', ({ payload = '' }) => notified.push(payload))
  await listener.query('LISTEN krater_container')
  await pass(id, 61)
  t.match(await until(id, 'renewed', ({ version }) => version === 2), { former_version: 1, attempts: 0 })
  const after = await contentOf(id)
  t.same(Object.keys(after.parts), Object.keys(before.parts))
  t.equal(after.container.name, 'web')
  const certificate = new X509Certificate(after.parts.certificate?.payload ?? '')
  t.not(certificate.serialNumber, new X509Certificate(before.parts.certificate?.payload ?? '').serialNumber)
  t.ok(certificate.checkPrivateKey(createPrivateKey(after.parts.private_key?.payload ?? '')), 'the key fits')
  t.not(after.parts.private_key?.payload, before.parts.private_key?.payload, 'the key is new')
  t.match(await rowOf('secret', secretIdOf(after.parts.private_key?.secret)), {
    ...{ acl_users: ['octavia'], acl_project_access: false, metadata: { owner: 'web' }, name: 'web-private_key' },
  })
  t.match(await rowOf('secret', keyId), { deleted_at: null, ciphertext: Buffer }, 'the former key is kept')
  t.match(await events(id), [{ kind: 'renewed', version: 2, days_left: 89 }])
  await eventually('notified', async () => notified.includes(`${id} 2`))
  const [row] = await database('certificate').where({ id })
  t.equal((await database('issued_certificate').where({ order_id: row.order_id })).length, 2)
  t.match(
    await database('audit_record').where({
      action: 'secret.generate',
      target_id: secretIdOf(after.parts.private_key?.secret),
    }),
    [{ user_id: 'user-member', project_id: OWN, detail: { order: row.order_id } }],
  )
})

t.test('the renewal after that destroys the parts before the former ones', async t => {
  const id = await ordered({ subject_dn: 'CN=again.example' })
  const first = await contentOf(id)
  const keyId = secretIdOf(first.parts.private_key?.secret)
  await pass(id, 61)
  await until(id, 'renewed', ({ version }) => version === 2)
  await pass(id, 61)
  t.match(await until(id, 'renewed again', ({ version }) => version === 3), { former_version: 2 })
  t.match(await rowOf('secret', keyId), { ciphertext: null, project_key_id: null })
  t.equal((await ask('GET', `/v1/secrets/${keyId}`)).status, 404)
  t.match(await database('audit_record').where({ action: 'secret.delete', target_id: keyId }), [
    { detail: { superseded: true } },
  ])
  const other = await ordered({ subject_dn: 'CN=used.example' })
  const used = await contentOf(other)
  const usedKey = secretIdOf(used.parts.private_key?.secret)
  await ask('POST', `/v1/secrets/${usedKey}/consumers`, { service: 's', resource_type: 't', resource_id: 'r' })
  for (const version of [2, 3]) {
    await pass(other, 61)
    await until(other, 'renewed', certificate => certificate.version === version)
  }
  t.match(await rowOf('secret', usedKey), { deleted_at: null }, 'what has a consumer stays')
})

t.test('an order may ask for renewals with the same key, or for none', async t => {
  const same = await ordered({ subject_dn: 'CN=same.example', renew_key: false })
  const before = await contentOf(same)
  await pass(same, 61)
  await until(same, 'renewed', ({ version }) => version === 2)
  const after = await contentOf(same)
  t.equal(secretIdOf(after.parts.private_key?.secret), secretIdOf(before.parts.private_key?.secret))
  t.ok(
    new X509Certificate(after.parts.certificate?.payload ?? '').checkPrivateKey(
      createPrivateKey(before.parts.private_key?.payload ?? ''),
    ),
  )
  await pass(same, 61)
  await until(same, 'renewed', ({ version }) => version === 3)
  t.match(await rowOf('secret', secretIdOf(before.parts.private_key?.secret)), { deleted_at: null }, 'the key stays')
  const none = await ordered({ subject_dn: 'CN=none.example', renew: false })
  await pass(none, 85)
  t.match(await until(none, 'noticed', () => true), { version: 1, renew: false, next_renewal_at: null })
})

t.test('stored keys and requests are renewed with the same key only', async t => {
  const { ref, keyId } = await storedKey()
  const stored = await ordered({ ...storedMeta(ref), algorithm: undefined })
  await pass(stored, 61)
  await until(stored, 'renewed', ({ version }) => version === 2)
  const content = await contentOf(stored)
  t.equal(secretIdOf(content.parts.private_key?.secret), keyId)
  t.ok(new X509Certificate(content.parts.certificate?.payload ?? '').checkPrivateKey(keyOf('RSA 2048')))
  const request = { request_data: csr('P-256'), algorithm: undefined }
  t.match(await show(await ordered(request)), { renew: false, renew_key: false })
  const custom = await ordered({ ...request, renew: true })
  await pass(custom, 61)
  await until(custom, 'renewed', ({ version }) => version === 2)
  t.same(Object.keys((await contentOf(custom)).parts), ['certificate'])
  for (const meta of [
    { ...storedMeta(ref), renew_key: true },
    { request_data: csr('P-256'), renew_key: true },
    { renew: 1 },
  ]) {
    t.equal((await ask('POST', '/v1/orders', { type: 'certificate', meta })).status, 400)
  }
  t.equal((await ask('PATCH', `/v1/certificates/${custom}`, { renew_key: true })).status, 400)
  t.match((await ask('PATCH', `/v1/certificates/${custom}`, { renew: false })).body, { renew: false })
})

t.test('a key that its order’s creator may no longer use is not renewed with', async t => {
  const { ref, keyId } = await storedKey(null, tokenOf('creator'))
  const id = await ordered({ ...storedMeta(ref), algorithm: undefined })
  await ask('PUT', `/v1/secrets/${keyId}/acl`, { read: { 'project-access': false } }, { token: tokenOf('creator') })
  await pass(id, 61)
  t.match(await until(id, 'failed', ({ attempts }) => attempts === 1), { last_error: /may no longer use/, version: 1 })
})

t.test('a rollback brings back the former certificate, and a renewal now the next one', async t => {
  const id = await ordered({ subject_dn: 'CN=back.example' })
  t.equal((await ask('POST', `/v1/certificates/${id}/rollback`)).status, 409, 'there is no former version')
  t.equal((await ask('POST', `/v1/certificates/${id}/renew`)).status, 429, 'it was issued just now')
  const first = await contentOf(id)
  await pass(id, 62)
  await until(id, 'renewed', ({ version }) => version === 2)
  const second = await contentOf(id)
  t.match((await ask('POST', `/v1/certificates/${id}/rollback`)).body, { version: 3 })
  t.same((await contentOf(id)).parts, first.parts)
  const certificate = await until(id, 'planned', ({ next_renewal_at }) => next_renewal_at !== null)
  t.match(certificate, { version: 3, former_version: 2 })
  const wait = Date.parse(`${certificate.next_renewal_at}Z`) - Date.now()
  t.ok(wait > 23 * 3_600_000 && wait < 25 * 3_600_000, 'the renewal that is due waits for a day')
  t.match((await ask('POST', `/v1/certificates/${id}/rollback`)).body, { version: 4 })
  t.same((await contentOf(id)).parts, second.parts, 'a rollback of the rollback')
  t.match(await events(id), [{ kind: 'rolled back' }, { kind: 'rolled back' }, { kind: 'renewed' }])
  await database('certificate')
    .where({ id })
    .update({ checked_at: new Date(0) })
  t.equal((await ask('POST', `/v1/certificates/${id}/renew`)).status, 202)
  t.match(await until(id, 'renewed now', ({ version }) => version === 5), { former_version: 4 })
  await database('certificate_version')
    .where({ container_id: id })
    .update({ not_after: new Date(0) })
  t.equal((await ask('POST', `/v1/certificates/${id}/rollback`)).status, 409, 'the former certificate has expired')
})

t.test('a rollback to a deleted part is refused', async t => {
  const id = await ordered({ subject_dn: 'CN=deleted.example' })
  const keyId = secretIdOf((await contentOf(id)).parts.private_key?.secret)
  await pass(id, 61)
  await until(id, 'renewed', ({ version }) => version === 2)
  t.equal((await ask('DELETE', `/v1/secrets/${keyId}`)).status, 204)
  t.match(await ask('POST', `/v1/certificates/${id}/rollback`), { status: 409, body: { description: /deleted/ } })
  t.match(await show(id), { version: 2 })
})

t.test('a failed renewal is tried again, with growing pauses, and tells why', async t => {
  const id = await ordered({ subject_dn: 'CN=fails.example' })
  answer = { kind: 'unavailable', message: 'The CA is away.' }
  await pass(id, 61)
  const failed = await until(
    id,
    'failed',
    ({ attempts, next_renewal_at }) => attempts === 1 && next_renewal_at !== null,
  )
  t.match(failed, { version: 1, last_error: 'The CA is away.' })
  const pause = (Date.parse(`${failed.next_renewal_at}Z`) - Date.now()) / 1000
  t.ok(pause > 35 && pause <= 60, `${pause} s`)
  answer = { kind: 'rejected', reason: 'No.' }
  await pass(id, 1)
  t.match(await until(id, 'failed again', ({ attempts }) => attempts === 2), { last_error: 'No.' })
  answer = null
  await pass(id, 1)
  t.match(await until(id, 'renewed', ({ version }) => version === 2), { attempts: 0, last_error: null })
  t.match(await events(id), [
    { kind: 'renewed' },
    { kind: 'failed', message: 'No.', version: 1 },
    { kind: 'failed', message: 'The CA is away.', days_left: 28 },
  ])
})

t.test('notices come while a renewal is overdue, and at the expiry', async t => {
  const id = await ordered({ subject_dn: 'CN=late.example' })
  answer = { kind: 'unavailable', message: 'The CA is away.' }
  for (const days of [77, 7, 3, 2, 2]) {
    const { attempts } = await show(id)
    await pass(id, days)
    await until(id, 'tried', certificate => Number(certificate.attempts) > Number(attempts))
  }
  answer = null
  const notices = (await events(id))
    .filter(({ kind }) => kind !== 'failed')
    .map(({ kind, days_left }) => [kind, days_left])
  t.same(notices, [
    ['expired', 0],
    ['expiring', 0],
    ['expiring', 2],
    ['expiring', 5],
    ['expiring', 12],
  ])
  await pass(id, 0.2)
  await until(id, 'renewed', ({ version }) => version === 2)
})

t.test('a fault in the service fails the attempt, without telling its reason', async t => {
  const id = await ordered({ subject_dn: 'CN=fault.example' })
  const issue = backend.issue
  backend.issue = async () => {
    throw new Error('secret internals')
  }
  await pass(id, 61)
  const failed = await until(id, 'failed', ({ attempts }) => attempts === 1)
  backend.issue = issue
  t.match(failed, { last_error: 'The renewal failed because of a fault in the service.' })
})

t.test('what was deleted is not renewed', async t => {
  const id = await ordered({ subject_dn: 'CN=gone.example' })
  const order = String((await show(id)).order_ref).slice(-36)
  await ask('DELETE', `/v1/orders/${order}`)
  await pass(id, 61)
  await until(id, 'renewed although the order’s record was deleted', ({ version }) => version === 2)
  await ask('DELETE', `/v1/containers/${id}`)
  t.equal((await ask('GET', `/v1/certificates/${id}`)).status, 404)
  t.same(await database('certificate').where({ id }), [])
  t.same(await database('certificate_event').where({ container_id: id }), [])
})

t.test('nothing of a deleted project stays', async t => {
  await eraseProject(database, OWN)
  t.same(await database('certificate').where({ project_id: OWN }), [])
  t.same(await database('secret').where({ project_id: OWN }).whereNotNull('ciphertext'), [])
})
