import { createPrivateKey, randomBytes, X509Certificate } from 'node:crypto'
import t from 'tap'
import type { Database } from '../../../../controller/database/connection.js'
import { createCaBackends } from '../../../../controller/key-manager/certificate-authorities/backends.js'
import { certificateOrderExecutor } from '../../../../controller/key-manager/certificate-authorities/certificate-order.js'
import { createKeyring } from '../../../../controller/key-manager/crypto/keyring.js'
import { requireMasterKeys } from '../../../../controller/key-manager/crypto/master-key.js'
import { createSimpleCrypto } from '../../../../controller/key-manager/crypto/simple/backend.js'
import { createLog } from '../../../../controller/log/log.js'
import { startTestKeyManager } from '../../../support/clients/key-manager-api.js'
import { eventually } from '../../../support/eventually.js'
import { createCrashScene, differences, killsAt, SAME } from '../../../support/faults/crash-scene.js'
import { startFaultyAcme } from '../../../support/faults/faulty-acme.js'
import { certificateOrderHelpers } from '../../../support/inputs/certificate-order-helpers.js'
import { EXECUTORS, startTestOrderWorker } from '../../../support/worlds/order-worker.js'
import { renewalHelpers, startTestRenewalWorker } from '../../../support/worlds/renewals.js'

/** Killing a worker at any statement of a renewal at an ACME CA costs no second certificate, and loses no key. */

const fake = await startFaultyAcme(t)
const settings = { acme: { directory_url: fake.directoryUrl, ca_file: fake.caFile } }
const masterKey = randomBytes(32)
const manager = await startTestKeyManager(settings, undefined, async (database: Database) => {
  const backend = createSimpleCrypto({ origin: 'the test', remedy: '', keys: [masterKey], reread: null })
  await requireMasterKeys(database, backend)
  return createKeyring(database, [backend])
})
const { database } = manager
const backends = createCaBackends(manager, createLog('test', 'silent'))
for (const backend of backends) await backend.prepare()
const certificate = certificateOrderExecutor(manager, backends)
const orders = await startTestOrderWorker(manager, { executors: { ...EXECUTORS, certificate } })
t.teardown(async () => {
  await orders.stop()
  await manager.stop()
})
const { start, killAt } = await createCrashScene(t, manager.databaseUrl, masterKey, settings)
const { ordered, pass } = renewalHelpers(manager)
const { resultOf } = certificateOrderHelpers(manager)
const { id: caId } = await database('certificate_authority').where({ plugin_name: 'acme' }).first('id')

/** The statements up to the transaction that stores the result, whose steps another test kills at. */
const STEPS = [
  ...[
    'claimDue',
    'readCertificate',
    'withRenewalInfo',
    'selectAuthority',
    'findPendingKey',
    'findActiveKey',
    'issue/pending-key',
  ],
  ...[
    'isOfDirectory',
    'findAccount',
    'readState',
    'countOrder',
    'writeState',
    'whoProves',
    'challengesWhere',
    'begin',
    'commit',
  ],
]

const rowOf = (id: string) => database('certificate').where({ id }).first()
const versionOf = async (id: string): Promise<number> => (await database('container').where({ id }).first()).version
const countOf = (what: string) => fake.asked.filter(each => each.what === what).length

t.test('killing a worker at any statement still yields one certificate, with its key', async t => {
  for (const [at, kill] of [...killsAt(STEPS), null].entries()) {
    const id = await ordered({ ca_id: caId, subject_dn: `CN=crash-${at}.test` })
    const worker = await start('renewals')
    await eventually('planned', async () => (await rowOf(id)).renew_at !== null)
    const before = { newOrder: countOf('newOrder'), finalize: countOf('finalize') }
    let passed = false
    const killing = killAt(worker, kill, {
      hasBegun: async () => passed && ((await rowOf(id)).under_way || (await versionOf(id)) === 2),
      isOver: async () => (await versionOf(id)) === 2 && (await rowOf(id)).renew_at !== null,
    })
    passed = true
    await pass(id, 70)
    const seen = await killing
    t.comment(`${kill === null ? 'not killed' : `${kill.step} ${kill.at}`}: version ${await versionOf(id)}`)
    const heir = await startTestRenewalWorker(manager, backends)
    try {
      await eventually(
        'renewed',
        async () => (await versionOf(id)) === 2 && (await rowOf(id)).renew_at !== null,
        20_000,
      )
    } finally {
      await heir.stop()
    }
    const { parts } = await resultOf({ container_ref: `${manager.url}/v1/containers/${id}` })
    const served = new X509Certificate(parts.certificate?.payload ?? '')
    t.ok(served.checkPrivateKey(createPrivateKey(parts.private_key?.payload ?? '')), 'the key fits')
    t.equal(countOf('finalize') - before.finalize, 1, 'the CA issued one certificate')
    t.ok(countOf('newOrder') - before.newOrder <= 2, 'at most one order is left over')
    t.same(await database('pending_certificate'), [])
    if (kill === null) {
      const inTransaction =
        /^(lockCertificate|areLive|insertSecrets|recordIssue|recordAudit|keepPresentParts|swapParts)$/
      const steps = seen.filter(step => !inTransaction.test(step) && !/secondsUntil|releaseUntil/.test(step))
      t.same(differences(steps, STEPS), SAME, 'a renewal takes exactly these steps')
    }
  }
})
