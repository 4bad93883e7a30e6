import t from 'tap'
import { createCaBackends } from '../../../../controller/key-manager/certificate-authorities/backends.js'
import { createLog } from '../../../../controller/log/log.js'
import { tokenOf } from '../../../support/clients/callers.js'
import { startTestKeyManager } from '../../../support/clients/key-manager-api.js'
import { eventually } from '../../../support/eventually.js'
import { problem, startFaultyAcme } from '../../../support/faults/faulty-acme.js'
import { orderHelpers } from '../../../support/worlds/order-worker.js'
import { renewalHelpers, startCertificateWorkers } from '../../../support/worlds/renewals.js'

/** A CA that limits, forgets, is slow, and gives renewal information, which pebble does not. */

const DAY = 86_400_000
const HOUR = 3_600_000

const fake = await startFaultyAcme(t)
const manager = await startTestKeyManager({
  acme: { directory_url: fake.directoryUrl, ca_file: fake.caFile, challenges: ['http-01'] },
})
const { database } = manager
const backends = createCaBackends(manager, createLog('test', 'silent'))
await startCertificateWorkers(t, manager, backends)
const { order, ended, show } = orderHelpers(manager)
const { ordered, pass, until, events } = renewalHelpers(manager)
const { id: caId } = await database('certificate_authority').where({ plugin_name: 'acme' }).first('id')

const place = (name: string) => order('certificate', { ca_id: caId, algorithm: 'ec', subject_dn: `CN=${name}` })
const countOf = (what: string) => fake.asked.filter(each => each.what === what).length
const rowOf = (id: string) => database('secret_order').where({ id }).first()

/** Waits until an order has been postponed. */
const postponed = (id: string, message: RegExp) =>
  eventually('postponed', async () => {
    const row = await rowOf(id)
    return row.status === 'PENDING' && message.test(row.sub_status_message ?? '') && row
  })

const secondsLeft = (time: Date) => (time.getTime() - Date.now()) / 1000

t.test('a rate limit with Retry-After is obeyed by orders', async t => {
  fake.faults = [({ what }) => (what === 'newOrder' ? problem('rateLimited', 429, { 'Retry-After': '5000' }) : null)]
  const id = await place('limited.test')
  const row = await postponed(id, /This is rateLimited/)
  t.match(row, { sub_status: 'cert_ca_unavail_for_issue' })
  const wait = secondsLeft(row.retry_at)
  t.ok(wait > 4900 && wait <= 5000, `${wait} s`)
  await database('secret_order').where({ id }).update({ retry_at: null })
  await manager.ask('DELETE', `/v1/orders/${id}`)
})

t.test('a date in Retry-After is obeyed, and a limit without any waits for an hour', async t => {
  const at = new Date(Date.now() + 2 * HOUR)
  fake.faults = [
    ({ what }) => (what === 'newOrder' ? problem('rateLimited', 429, { 'Retry-After': at.toUTCString() }) : null),
    ({ what }) => (what === 'newOrder' ? problem('rateLimited', 429) : null),
  ]
  const dated = await postponed(await place('dated.test'), /rateLimited/)
  t.ok(Math.abs(secondsLeft(dated.retry_at) - 7200) < 5, String(secondsLeft(dated.retry_at)))
  const bare = await postponed(await place('bare.test'), /rateLimited/)
  t.ok(Math.abs(secondsLeft(bare.retry_at) - 3600) < 5, String(secondsLeft(bare.retry_at)))
})

t.test('a refused nonce is replaced at once, and a worker that fails to get on continues the same order', async t => {
  const before = countOf('newOrder')
  fake.faults = [
    ({ what }) => (what === 'newOrder' ? problem('badNonce') : null),
    ({ what }) => (what === 'finalize' ? problem('serverInternal', 500) : null),
  ]
  const id = await place('nonce.test')
  await postponed(id, /serverInternal/)
  const pending = await database('pending_certificate').where({ id }).first()
  t.match(pending, { state: { order: /\/order\// } })
  t.notMatch(pending.sealed_key.toString('latin1'), 'PRIVATE')
  await database('secret_order').where({ id }).update({ retry_at: null })
  await database.raw(`SELECT pg_notify('krater_secret_order', 'quick')`)
  t.match(await ended(id), { status: 'ACTIVE' })
  t.equal(countOf('newOrder') - before, 2, 'one order: the first was refused for its nonce')
  t.same(await database('pending_certificate').where({ id }), [])
})

t.test('a worker that dies after the CA’s answer costs no second certificate', async t => {
  const acme = backends.find(({ name }) => name === 'acme')
  if (acme === undefined) throw new Error('no ACME')
  const { issue } = acme
  const serials: string[] = []
  // As if the process had died when the certificate arrived.
  acme.issue = async (...words) => {
    const outcome = await issue(...words)
    if (outcome.kind !== 'issued') return outcome
    serials.push(outcome.issued.serial)
    return serials.length === 1 ? { kind: 'pending', seconds: 1, message: 'again' } : outcome
  }
  const before = countOf('finalize')
  const id = await place('dies.test')
  const record = await ended(id)
  acme.issue = issue
  t.match(record, { status: 'ACTIVE' })
  t.equal(countOf('finalize') - before, 1)
  t.equal(new Set(serials).size, 1, 'the second step gets the same certificate, for the same key')
})

t.test('an order that the CA forgot begins anew, and so does an account', async t => {
  fake.faults = [({ what }) => (what === 'order' ? problem('malformed', 404) : null)]
  const id = await place('forgotten.test')
  await postponed(id, /malformed/)
  await database('secret_order').where({ id }).update({ retry_at: null })
  await database.raw(`SELECT pg_notify('krater_secret_order', 'quick')`)
  t.match(await ended(id), { status: 'ACTIVE' })
  fake.faults = [({ what }) => (what === 'newOrder' ? problem('accountDoesNotExist') : null)]
  const accounts = countOf('newAccount')
  const other = await place('account.test')
  await postponed(other, /accountDoesNotExist/)
  await database('secret_order').where({ id: other }).update({ retry_at: null })
  await database.raw(`SELECT pg_notify('krater_secret_order', 'quick')`)
  t.match(await ended(other), { status: 'ACTIVE' })
  t.equal(countOf('newAccount') - accounts, 1)
})

t.test('an order that the CA does not make is not counted', async t => {
  const counted = async () => (await database('acme_client_order')).length
  const before = await counted()
  fake.faults = [({ what }) => (what === 'newOrder' ? problem('serverInternal', 503) : null)]
  await postponed(await place('outage.test'), /serverInternal/)
  t.equal(await counted(), before)
  t.match(await ended(await place('counted.test')), { status: 'ACTIVE' })
  t.equal(await counted(), before + 1)
})

t.test('an account that the CA refuses is the operator’s fault, not the order’s', async t => {
  fake.faults = [
    ({ what }) => (what === 'newOrder' ? problem('accountDoesNotExist') : null),
    ({ what }) => (what === 'newAccount' ? problem('unauthorized', 401) : null),
  ]
  const id = await place('binding.test')
  await postponed(id, /accountDoesNotExist/)
  await database('secret_order').where({ id }).update({ retry_at: null })
  await database.raw(`SELECT pg_notify('krater_secret_order', 'quick')`)
  await postponed(id, /operator’s account/)
  await database('secret_order').where({ id }).update({ retry_at: null })
  await database.raw(`SELECT pg_notify('krater_secret_order', 'quick')`)
  t.match(await ended(id), { status: 'ACTIVE' })
})

for (const [from, fault] of [
  [false, 'finalize'],
  [true, 'certificate'],
] as const) {
  t.test(`a renewal goes on when it is to have ${from ? 'the former' : 'a new'} key after all`, async t => {
    const id = await ordered({ ca_id: caId, subject_dn: `CN=key-${from}.test` })
    await until(id, 'planned', ({ next_renewal_at }) => next_renewal_at !== null)
    const setNewKey = (new_key: boolean) => database('certificate').where({ id }).update({ new_key })
    await setNewKey(from)
    fake.faults = [({ what }) => (what === fault ? problem('serverInternal', 503) : null)]
    await pass(id, 70)
    await until(id, 'failed', ({ attempts }) => attempts === 1)
    await setNewKey(!from)
    for (let attempt = 1; attempt <= 3 && (await until(id, 'shown', () => true)).version === 1; attempt++) {
      await pass(id, 1)
      await until(id, 'tried', ({ attempts, version }) => version === 2 || Number(attempts) > attempt)
    }
    t.match(await until(id, 'shown', () => true), { version: 2 })
  })
}

t.test('what the CA refuses for good ends in ERROR; what cannot be read is tried again', async t => {
  fake.faults = [({ what }) => (what === 'newOrder' ? problem('rejectedIdentifier', 403) : null)]
  t.match(await ended(await place('refused.test')), {
    ...{ status: 'ERROR', error_status_code: '400', sub_status: 'cert_invalid_operation' },
    error_reason: 'The CA refuses the order: This is rejectedIdentifier.',
  })
  fake.faults = [({ what }) => (what === 'certificate' ? { status: 200, text: 'no certificate' } : null)]
  await postponed(await place('garbage.test'), /is no certificate/)
})

t.test('a CA that hangs holds up neither other projects nor other orders', async t => {
  fake.faults = Array.from(
    { length: 20 },
    () =>
      ({ what }: { what: string }) =>
        what === 'newOrder' ? 'hang' : null,
  )
  const ids = await Promise.all(Array.from({ length: 12 }, (_, at) => place(`hangs-${at}.test`)))
  await eventually('they hang', async () => 20 - fake.faults.length >= 2)
  const token = tokenOf('member', 'another-project')
  const key = await order('key', { name: 'k', algorithm: 'aes', bit_length: 256 }, token)
  t.match(await ended(key, token), { status: 'ACTIVE' })
  t.equal(20 - fake.faults.length, 2, 'a project has two turns at a time')
  fake.faults = []
  for (const id of ids) await manager.ask('DELETE', `/v1/orders/${id}`)
})

t.test('the CA’s renewal information decides, within the reserve, and is read again when the CA says', async t => {
  const start = new Date(Date.now() + 40 * DAY)
  fake.renewalInfo = { start, end: new Date(start.getTime() + DAY), retryAfter: 7200 }
  // The directory is kept for an hour: another backend reads the new one.
  const later = createCaBackends(manager, createLog('test', 'silent')).find(({ name }) => name === 'acme')
  const acme = backends.find(({ name }) => name === 'acme')
  if (later === undefined || acme === undefined) throw new Error('no ACME')
  Object.assign(acme, later)
  const id = await ordered({ ca_id: caId, subject_dn: 'CN=ari.test' })
  const planned = await until(id, 'planned', ({ next_renewal_at }) => next_renewal_at !== null)
  const renewal = Date.parse(`${planned.next_renewal_at}Z`)
  t.ok(renewal >= start.getTime() && renewal <= start.getTime() + DAY, String(planned.next_renewal_at))
  const row = await database('certificate').where({ id }).first()
  t.ok(Math.abs(secondsLeft(row.info_at) - 7200) < 5)
  const asked = fake.asked.filter(({ what }) => what === 'renewalInfo')
  t.match(asked.at(-1)?.id, /^[\w-]{20,}\.[\w-]+$/)
  fake.renewalInfo = { start: new Date(Date.now() - DAY), end: new Date(Date.now() - HOUR), retryAfter: 7200 }
  const orders = countOf('newOrder')
  await database('certificate')
    .where({ id })
    .update({ not_before: new Date(Date.now() - DAY) })
  await pass(id, 0.1)
  t.match(await until(id, 'renewed at once', ({ version }) => version === 2), { attempts: 0 })
  t.equal(countOf('newOrder') - orders, 1)
  t.equal(fake.asked.filter(({ what }) => what === 'newOrder').at(-1)?.payload.replaces, asked.at(-1)?.id)
})

t.test('a renewal obeys the CA’s limits, whatever its own pauses are', async t => {
  fake.renewalInfo = {
    start: new Date(Date.now() + 50 * DAY),
    end: new Date(Date.now() + 51 * DAY),
    retryAfter: 80_000,
  }
  const id = await ordered({ ca_id: caId, subject_dn: 'CN=held.test' })
  await until(id, 'planned', ({ next_renewal_at }) => next_renewal_at !== null)
  fake.faults = [({ what }) => (what === 'newOrder' ? problem('rateLimited', 429, { 'Retry-After': '90000' }) : null)]
  await pass(id, 70)
  const failed = await until(id, 'failed', ({ attempts }) => attempts === 1)
  t.match(failed, { last_error: 'The CA reports: This is rateLimited.' })
  const wait = (Date.parse(`${failed.next_renewal_at}Z`) - Date.now()) / 1000
  t.ok(Math.abs(wait - 90_000) < 10, `${wait} s`)
  await database('certificate')
    .where({ id })
    .update({ attempted_at: new Date(0), checked_at: new Date(0) })
  t.equal((await manager.ask('POST', `/v1/certificates/${id}/renew`)).status, 202)
  const orders = countOf('newOrder')
  await until(id, 'planned', ({ next_renewal_at }) => next_renewal_at !== null)
  t.equal(countOf('newOrder'), orders, 'also when somebody asks for a renewal now')
  t.match(await events(id), [{ kind: 'failed' }])
  t.match(await show(String(failed.order_ref).slice(-36)), { status: 'ACTIVE' })
  await manager.ask('DELETE', `/v1/containers/${id}`)
})

t.test('what a deleted order leaves is removed', async t => {
  fake.authorizes = false
  const id = await place('left.test')
  await postponed(id, /No load balancer/)
  t.equal((await database('published_challenge').where({ request_id: id })).length, 1)
  await manager.ask('DELETE', `/v1/orders/${id}`)
  for (const { sweep } of backends) await sweep?.()
  t.same(await database('published_challenge'), [])
  t.same(await database('pending_certificate').where({ id }), [])
})

t.test('a project cannot use up the account that all share', async t => {
  fake.authorizes = true
  const token = tokenOf('member', 'greedy')
  await database('acme_client_order').insert(Array.from({ length: 100 }, () => ({ project_id: 'greedy' })))
  const id = await order('certificate', { ca_id: caId, algorithm: 'ec', subject_dn: 'CN=greedy.test' }, token)
  const orders = countOf('newOrder')
  const row = await postponed(id, /had its orders of a day/)
  t.ok(secondsLeft(row.retry_at) > 3500)
  t.equal(countOf('newOrder'), orders)
  t.match(await ended(await place('modest.test')), { status: 'ACTIVE' })
})
