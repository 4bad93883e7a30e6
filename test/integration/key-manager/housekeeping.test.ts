import { chmodSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { runCommandLine } from '../../../controller/cli/program.js'
import { connect } from '../../../controller/database/connection.js'
import { linkRecords } from '../../../controller/key-manager/audit/linker.js'
import { clean, previewCleaning } from '../../../controller/key-manager/housekeeping/clean.js'
import { deleteExpiredSecrets } from '../../../controller/key-manager/housekeeping/expire.js'
import { startKeyManagerHousekeeping } from '../../../controller/key-manager/housekeeping/housekeeping.js'
import { purgeDeleted } from '../../../controller/key-manager/housekeeping/purge.js'
import { newId } from '../../../controller/key-manager/ids.js'
import { createLog } from '../../../controller/log/log.js'
import { OWN, tokenOf } from '../../support/clients/callers.js'
import { startTestKeyManager } from '../../support/clients/key-manager-api.js'
import { eventually } from '../../support/eventually.js'
import { orderHelpers, startTestOrderWorker } from '../../support/worlds/order-worker.js'

const keyManager = await startTestKeyManager()
const { ask, database, databaseUrl, store, stop } = keyManager
const { order, ended } = orderHelpers(keyManager)
t.teardown(stop)
const worker = await startTestOrderWorker(keyManager)
t.teardown(worker.stop)

const PAYLOAD = { payload: 'canary', payload_content_type: 'text/plain' }
const NOTHING = { orders: 0, containers: 0, secrets: 0 }
const days = (count: number) => database.raw(`now() - ? * interval '1 day'`, [count])
const rowOf = (table: string, id: string) => database(table).where({ id }).first()

/** Stores a secret that has just expired. @returns its id */
const storeExpired = async (): Promise<string> => {
  const id = await store(PAYLOAD)
  await database('secret')
    .where({ id })
    .update({ expiration: database.raw(`now() - interval '1 second'`), metadata: '{"a": "b"}', acl_users: ['someone'] })
  return id
}

/** A completed order and the id of its result. */
const made = async (type: 'key' | 'asymmetric') => {
  const id = await order(type, { algorithm: type === 'key' ? 'aes' : 'ec', bit_length: 256, name: 'made' })
  const record = await ended(id)
  return { id, result: String(record.secret_ref ?? record.container_ref).slice(-36) }
}

/** Backdates the deletion of a row by some days. */
const deletedBefore = (table: string, id: string, count: number) =>
  database(table)
    .where({ id })
    .update({ deleted_at: days(count) })

t.test('an expired secret is deleted with its payload, metadata, ACL, consumers and references', async t => {
  const expired = await storeExpired()
  const live = await store({ ...PAYLOAD, expiration: '2130-01-01T00:00:00' })
  const container = newId()
  await database('container').insert({ id: container, project_id: OWN, creator_id: 'u', type: 'generic' })
  for (const secret_id of [expired, live])
    await database('container_secret').insert({ container_id: container, secret_id })
  for (const secret_id of [expired, live]) {
    const consumer = { service: 's', resource_type: 'r', resource_id: 'i', project_id: OWN }
    await database('secret_consumer').insert({ id: newId(), secret_id, ...consumer })
  }
  t.equal(await deleteExpiredSecrets(database), 1)
  t.match(await rowOf('secret', expired), {
    ...{ ciphertext: null, project_key_id: null, metadata: {}, acl_users: [] },
    deleted_at: Date,
  })
  t.match(await rowOf('secret', live), { deleted_at: null, ciphertext: Buffer })
  t.same(await database('container_secret').where({ container_id: container }).pluck('secret_id'), [live])
  t.same(await database('secret_consumer').pluck('secret_id'), [live])
  const records = await database('audit_record').where({ target_id: expired, action: 'secret.delete' })
  t.match(records, [
    { outcome: 'success', user_id: null, project_id: OWN, target_type: 'secret', detail: { expired: true } },
  ])
  t.equal(await deleteExpiredSecrets(database), 0)
  await database('container').where({ id: container }).delete()
})

t.test('expiry deletes more secrets than fit into one batch', async t => {
  await database.raw(
    `INSERT INTO secret (id, project_id, creator_id, expiration)
     SELECT gen_random_uuid(), 'many', 'u', now() - interval '1 hour' FROM generate_series(1, 1203)`,
  )
  t.equal(await deleteExpiredSecrets(database), 1203)
  t.match(await purgeDeleted(database, 1), NOTHING)
  t.match(await purgeDeleted(database, 0), { secrets: 1204 }, 'the count includes the secret of the previous test')
})

t.test('tombstones are purged after min_days', async t => {
  const secret = await store(PAYLOAD)
  const { id, result } = await made('key')
  await ask('DELETE', `/v1/secrets/${secret}`)
  await ask('DELETE', `/v1/orders/${id}`)
  await deletedBefore('secret', secret, 89)
  await deletedBefore('secret_order', id, 89)
  t.same(await purgeDeleted(database, 90), NOTHING)
  await deletedBefore('secret', secret, 91)
  await deletedBefore('secret_order', id, 91)
  t.same(await purgeDeleted(database, 90), { orders: 1, containers: 0, secrets: 1 })
  t.ok(await rowOf('secret', result), 'the deleted order’s result remains')
})

t.test('purging the deleted result of an order purges the order too', async t => {
  const key = await made('key')
  const pair = await made('asymmetric')
  const standing = await made('key')
  const parts = await database('container_secret').where({ container_id: pair.result }).pluck<string[]>('secret_id')
  await ask('DELETE', `/v1/secrets/${key.result}`)
  await database('container_secret').where({ container_id: pair.result }).delete()
  await deletedBefore('container', pair.result, 100)
  for (const id of [...parts, key.result]) await deletedBefore('secret', id, 100)
  t.same(await purgeDeleted(database, 90), { orders: 2, containers: 1, secrets: 3 })
  t.equal(await rowOf('secret_order', key.id), undefined)
  t.equal(await rowOf('secret_order', pair.id), undefined)
  t.ok(await rowOf('secret_order', standing.id))
  t.equal((await ask('GET', `/v1/orders/${standing.id}`)).status, 200)
})

t.test('purging leaves a pending order alone', async t => {
  await worker.stop()
  const id = await order('key', { algorithm: 'aes', bit_length: 256 })
  t.same(await purgeDeleted(database, 0), NOTHING)
  t.ok(await rowOf('secret_order', id))
  await database('secret_order').where({ id }).delete()
})

t.test('the clean command does exactly what it is asked for, and a dry run changes nothing', async t => {
  const expired = await storeExpired()
  const token = tokenOf('member', 'e'.repeat(32))
  const lonely = await store(PAYLOAD, token)
  await ask('DELETE', `/v1/secrets/${lonely}`, undefined, { token })
  await deletedBefore('secret', lonely, 2)
  const keysBefore = Number((await database('project_key').count())[0]?.count)

  const asked = { minDays: 1, expired: true, unusedProjects: true }
  const wouldBe = { expired: 1, purged: { orders: 0, containers: 0, secrets: 1 }, projectKeys: 1 }
  t.same(await previewCleaning(database, asked), wouldBe)
  t.same(await previewCleaning(database, asked), wouldBe, 'a dry run changes nothing')
  t.match(await rowOf('secret', expired), { deleted_at: null })

  t.same(await clean(database, { minDays: 3, expired: false, unusedProjects: false }), {
    ...{ expired: null, projectKeys: null },
    purged: NOTHING,
  })
  t.same(await clean(database, asked), wouldBe)
  t.match(await rowOf('secret', expired), { ciphertext: null })
  t.equal(Number((await database('project_key').count())[0]?.count), keysBefore - 1)
  t.same(await database('project_key').where({ project_id: 'e'.repeat(32) }), [])
  t.ok((await database('project_key').where({ project_id: OWN })).length > 0, 'a project with secrets keeps its key')
  t.equal((await ask('GET', `/v1/secrets/${await store(PAYLOAD, token)}/payload`, undefined, { token })).text, 'canary')
})

t.test('housekeeping expires and purges periodically until it stops', async t => {
  const expired = await storeExpired()
  const old = await store(PAYLOAD)
  await ask('DELETE', `/v1/secrets/${old}`)
  await deletedBefore('secret', old, 8)
  const housekeeping = startKeyManagerHousekeeping({
    database,
    config: { interval: 0.05, min_days: 7 },
    log: createLog('test', 'silent'),
  })
  await eventually('the secret expires', async () => (await rowOf('secret', expired)).deleted_at !== null)
  await eventually('the secret is purged', async () => (await rowOf('secret', old)) === undefined)
  const second = await storeExpired()
  await eventually('the next secret expires', async () => (await rowOf('secret', second)).deleted_at !== null)
  await housekeeping.stop()
  const third = await storeExpired()
  t.match(await rowOf('secret', third), { deleted_at: null }, 'housekeeping no longer runs')
})

/** Runs a key manager command and captures its output. */
async function command(t: Test, directory: string, ...words: string[]): Promise<{ status: number; text: string }> {
  const written = t.capture(process.stdout, 'write', () => true)
  const told = t.capture(process.stderr, 'write', () => true)
  const status = await runCommandLine(['--state-dir', directory, 'key-manager', ...words])
  written.restore()
  told.restore()
  const text = [...written(), ...told()].map(({ args }) => String(args[0])).join('')
  return { status, text }
}

t.test('the clean command reports what it did or, in a dry run, would do', async t => {
  process.env.KRATER_DATABASE_KEY_MANAGER = databaseUrl
  t.teardown(() => {
    delete process.env.KRATER_DATABASE_KEY_MANAGER
  })
  const directory = t.testdir({})
  const run = (...options: string[]) => command(t, directory, 'clean', ...options)
  const old = await store(PAYLOAD)
  await ask('DELETE', `/v1/secrets/${old}`)
  await deletedBefore('secret', old, 95)
  const trial = await run('--dry-run', '--expired', '--unused-projects')
  t.equal(trial.status, 0)
  t.match(
    trial.text,
    /Would delete expired secrets: \d+\nWould purge .*more than 90 days.*\n(.*\n)*.*secrets: 1\nWould remove keys .*: 0\nThis was a dry run/,
  )
  t.notMatch((await run('--min-days', '96')).text, /secrets: 1/)
  t.ok(await rowOf('secret', old))
  const done = await run()
  t.match(done.text, 'secrets: 1')
  t.notMatch(done.text, /dry run|expired|keys of projects/)
  t.equal(await rowOf('secret', old), undefined)
  for (const wrong of ['-1', 'x', '1.5', '36501', '']) t.equal((await run('--min-days', wrong)).status, 2, wrong)
})

t.test('the clean command and housekeeping remove audit records past their retention', async t => {
  const superuser = connect({ url: keyManager.administratorUrl, applicationName: 'test', poolSize: 1 })
  t.teardown(() => superuser.destroy())
  const key = Buffer.alloc(32, 0x5a)
  const directory = t.testdir({ keys: { 'key-manager-audit': key.toString('hex') } })
  const keyFile = join(directory, 'keys/key-manager-audit')
  chmodSync(keyFile, 0o600)
  t.teardown(() => {
    delete process.env.KRATER_DATABASE_KEY_MANAGER
    delete process.env.KRATER_KEY_MANAGER_AUDIT_RETENTION_DAYS
  })
  process.env.KRATER_DATABASE_KEY_MANAGER = databaseUrl
  const old = () => database('audit_record').where('seq', '<', 0).orderBy('seq').pluck('seq')
  // Older than every record of the tests above.
  await superuser.raw(
    `INSERT INTO key_manager_audit.audit_record (seq, at, action, outcome, target_type) OVERRIDING SYSTEM VALUE
     SELECT -n, now() - n * interval '20 days', 'secret.create', 'success', 'secret' FROM generate_series(2, 4) n`,
  )
  while ((await linkRecords(database, key)) > 0);
  t.notMatch((await command(t, directory, 'clean')).text, /[Aa]udit/)
  process.env.KRATER_KEY_MANAGER_AUDIT_RETENTION_DAYS = '50'
  t.match(
    (await command(t, directory, 'clean', '--dry-run')).text,
    'Would remove audit records older than 50 days: 2\n',
  )
  t.same(await old(), [-4, -3, -2])
  writeFileSync(keyFile, 'ab'.repeat(32))
  t.match(await command(t, directory, 'clean'), {
    status: 1,
    text: /audit log was not changed: Record 1 .*audit key is wrong/,
  })
  writeFileSync(keyFile, key.toString('hex'))
  t.match(await command(t, directory, 'clean'), { status: 0, text: 'older than 50 days: 2\n' })
  t.same(await old(), [-2])
  t.match(await command(t, directory, 'audit', 'verify'), {
    status: 0,
    text: /Retention removed 2 records from before \d{4}-[-\d]*T[\d:.]+ UTC\.\nAll \d+ records are unchanged/,
  })
  process.env.KRATER_KEY_MANAGER_AUDIT_RETENTION_DAYS = '29'
  t.match(await command(t, directory, 'clean'), { text: /audit_retention_days: "29".*at least 30/ })
  const options = { database, config: { interval: 0.05, min_days: 90 }, log: createLog('test', 'silent') }
  const housekeeping = startKeyManagerHousekeeping({ ...options, audit: { days: 30, key } })
  await eventually('the record is removed', async () => (await old()).length === 0)
  await housekeeping.stop()
})
