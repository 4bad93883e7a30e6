import { randomBytes } from 'node:crypto'
import t, { type Test } from 'tap'
import { configurationSchema } from '../../../controller/config/schema.js'
import { createKeyring } from '../../../controller/key-manager/crypto/keyring.js'
import { requireMasterKeys } from '../../../controller/key-manager/crypto/master-key.js'
import { createSimpleCrypto } from '../../../controller/key-manager/crypto/simple/backend.js'
import { newId } from '../../../controller/key-manager/ids.js'
import { storeOrder } from '../../../controller/key-manager/orders/store.js'
import { startOrderWorker } from '../../../controller/key-manager/orders/worker/worker.js'
import { createLog } from '../../../controller/log/log.js'
import { OWN, tokenOf } from '../../support/clients/callers.js'
import { createTestDatabase } from '../../support/database/database.js'
import { eventually } from '../../support/eventually.js'
import { CRASH_EXECUTORS } from '../../support/faults/crash-executors.js'
import { createCrashScene, differences, killsAt, SAME } from '../../support/faults/crash-scene.js'

/** Killing a key manager process at any moment loses nothing acknowledged and leaves nothing half-written. */

const testDatabase = await createTestDatabase()
const database = testDatabase.of('key_manager')
const masterKey = randomBytes(32)
const backend = createSimpleCrypto({ origin: 'the test', remedy: '', keys: [masterKey], reread: null })
await requireMasterKeys(database, backend)
const service = {
  database,
  keyring: createKeyring(database, [backend]),
  config: configurationSchema.parse({}).key_manager,
}
t.teardown(testDatabase.drop)
const { start, killAt } = await createCrashScene(t, testDatabase.urlOf('key_manager'), masterKey)

/**
 * The statements that a process runs for one order, in order. A newly started process has no project key
 * cached.
 */
const STEPS = {
  asymmetric: ['claimDue', 'readOrder', 'findActiveKey', 'store'],
  key: ['claimDue', 'readOrder', 'findActiveKey', 'begin', 'store', 'alsoStore', 'commit'],
  api: ['findActiveKey', 'insertActiveKey', 'insertOrder'],
}

const insertOrder = (type: 'key' | 'asymmetric', name: string) => {
  const meta = { name, algorithm: type === 'key' ? 'aes' : 'ec', bit_length: 256 }
  const passphrase = type === 'key' ? null : 'correct horse'
  const actor = { userId: 'u', projectId: OWN, requestId: null, remoteAddress: null }
  return storeOrder(service, { projectId: OWN, creatorId: 'u', type, meta, passphrase, expiration: null }, actor)
}

const isActive = async (id: string): Promise<boolean> => (await rowOf(id)).status === 'ACTIVE'
const rowOf = (id: string) => database('secret_order').where({ id }).first()

/** Runs `body` while a worker in this process takes over from the killed one. */
async function withHeir(body: () => Promise<void>): Promise<void> {
  const heir = await startOrderWorker({
    ...{ ...service, databaseUrl: testDatabase.urlOf('key_manager'), executors: CRASH_EXECUTORS },
    config: { concurrency: 4, sweep_interval: 60 },
    log: createLog('test', 'silent'),
  })
  try {
    await body()
  } finally {
    await heir.stop()
  }
}

/** Checks that the order has one complete result. */
async function expectOneResult(t: Test, id: string, type: 'key' | 'asymmetric', name: string): Promise<void> {
  const row = await eventually(`order ${id} has ended`, async () => (await isActive(id)) && rowOf(id))
  const secrets = await database('secret').where({ name }).pluck<string[]>('id')
  const containers = await database('container').where({ name }).pluck<string[]>('id')
  const audits = await database('audit_record').where({ action: 'secret.generate' }).whereIn('target_id', secrets)
  t.equal(secrets.length, type === 'key' ? 1 : 3, 'secrets')
  t.equal(audits.length, secrets.length, 'audit records')
  t.same(type === 'key' ? [row.secret_id] : secrets.sort(), secrets.sort())
  t.same(containers, type === 'key' ? [] : [row.container_id], 'containers')
  const places = await database('container_secret').whereIn('container_id', containers).pluck<string[]>('secret_id')
  t.same(places.sort(), type === 'key' ? [] : secrets.sort(), 'references in the container')
  if (type === 'key')
    t.equal((await database('project').where({ id: `also ${id}` })).length, 1, 'the executor’s own row')
  t.match(row, { lease_owner: null, sealed_passphrase: null, error_reason: null })
}

for (const type of ['asymmetric', 'key'] as const) {
  t.test(`killing a worker at any statement of an order of type ${type} still yields one result`, async t => {
    for (const [at, kill] of [...killsAt(STEPS[type]), null].entries()) {
      const worker = await start('orders')
      const name = `${type} ${at}`
      let id: string | null = null
      const killing = killAt(worker, kill, {
        hasBegun: async () => id !== null && (await rowOf(id)).status !== 'PENDING',
        isOver: async () => id !== null && isActive(id),
      })
      id = await insertOrder(type, name)
      const seen = await killing
      const before = await rowOf(id)
      t.comment(`${kill === null ? 'not killed' : `${kill.step} ${kill.at}`}: ${before.status}`)
      await withHeir(() => expectOneResult(t, String(id), type, name))
      if (before.status === 'ACTIVE')
        t.equal((await rowOf(id)).fence, before.fence, 'a finished order is not claimed again')
      if (kill === null) {
        const steps = seen.filter(step => step !== 'secondsUntilDue')
        t.same(differences(steps, STEPS[type]), SAME, 'an order takes exactly these steps')
      }
    }
  })
}

t.test('killing the API at any statement stores an order whole or not at all', async t => {
  for (const [at, kill] of [...killsAt(STEPS.api), null].entries()) {
    const api = await start('api')
    const name = `asked ${at}`
    let status: number | null = null
    const killing = killAt(api, kill, { hasBegun: async () => true, isOver: async () => status !== null })
    const asking = fetch(`${api.firstLine}/v1/orders`, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json', 'X-Auth-Token': tokenOf('member', newId()) },
      body: JSON.stringify({ type: 'asymmetric', meta: { name, algorithm: 'ec', bit_length: 256, passphrase: 'p' } }),
    }).then(
      reply => {
        status = reply.status
      },
      () => undefined,
    )
    const seen = await killing
    await asking
    const ids = await database('secret_order').whereRaw(`meta->>'name' = ?`, [name]).pluck<string[]>('id')
    t.comment(`${kill === null ? 'not killed' : `${kill.step} ${kill.at}`}: ${ids.length} orders`)
    t.equal(status, kill === null ? 202 : null)
    t.equal(ids.length, kill === null || kill.step === STEPS.api.at(-1) ? 1 : 0, 'stored whole or not at all')
    const accepted = await database('audit_record').where({ action: 'order.create' }).whereIn('target_id', ids)
    t.equal(accepted.length, ids.length)
    await withHeir(async () => {
      for (const id of ids) await expectOneResult(t, id, 'asymmetric', name)
    })
    if (kill === null) t.same(differences(seen, STEPS.api), SAME, 'a request takes exactly these steps')
  }
})
