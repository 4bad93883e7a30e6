import { createPrivateKey, randomBytes, X509Certificate } from 'node:crypto'
import t, { type Test } from 'tap'
import type { Database } from '../../../../controller/database/connection.js'
import { createCaBackends } from '../../../../controller/key-manager/certificate-authorities/backends.js'
import { certificateOrderExecutor } from '../../../../controller/key-manager/certificate-authorities/certificate-order.js'
import { createKeyring } from '../../../../controller/key-manager/crypto/keyring.js'
import { requireMasterKeys } from '../../../../controller/key-manager/crypto/master-key.js'
import { createSimpleCrypto } from '../../../../controller/key-manager/crypto/simple/backend.js'
import { startTestKeyManager } from '../../../support/clients/key-manager-api.js'
import { eventually } from '../../../support/eventually.js'
import { createCrashScene, differences, killsAt, SAME } from '../../../support/faults/crash-scene.js'
import { certificateOrderHelpers } from '../../../support/inputs/certificate-order-helpers.js'
import { EXECUTORS, startTestOrderWorker } from '../../../support/worlds/order-worker.js'
import { renewalHelpers, startTestRenewalWorker } from '../../../support/worlds/renewals.js'

/** Killing a worker at any statement of a renewal leaves one whole certificate in the container: the former or the next. */

const masterKey = randomBytes(32)
const manager = await startTestKeyManager({}, undefined, async (database: Database) => {
  const backend = createSimpleCrypto({ origin: 'the test', remedy: '', keys: [masterKey], reread: null })
  await requireMasterKeys(database, backend)
  return createKeyring(database, [backend])
})
const { database } = manager
const backends = createCaBackends(manager)
for (const backend of backends) await backend.prepare()
const certificate = certificateOrderExecutor(manager, backends)
const orders = await startTestOrderWorker(manager, { executors: { ...EXECUTORS, certificate } })
t.teardown(async () => {
  await orders.stop()
  await manager.stop()
})
const { start, killAt } = await createCrashScene(t, manager.databaseUrl, masterKey)
const { ordered, pass } = renewalHelpers(manager)
const { resultOf } = certificateOrderHelpers(manager)

/** The statements for one renewal, and for the plan after it. */
const STEPS = [
  ...['claimDue', 'readCertificate', 'defaultAuthority', 'openAuthority', 'findActiveKey', 'begin', 'lockCertificate'],
  ...[
    'areLive',
    'insertSecrets',
    'recordIssue',
    'recordAudit',
    'keepPresentParts',
    'swapParts',
    'commit',
    'withRenewalInfo',
    'releaseUntil',
  ],
]

const rowOf = (id: string) => database('certificate').where({ id }).first()
const versionOf = async (id: string): Promise<number> => (await database('container').where({ id }).first()).version

async function expectOneRenewal(t: Test, id: string, name: string): Promise<void> {
  const row = await eventually('renewed and planned', async () => {
    const found = await rowOf(id)
    return (await versionOf(id)) === 2 && found.renew_at !== null && !found.under_way && found
  })
  t.match(row, { lease_owner: null, attempts: 0 })
  const { parts } = await resultOf({ container_ref: `${manager.url}/v1/containers/${id}` })
  const served = new X509Certificate(parts.certificate?.payload ?? '')
  t.ok(
    served.checkPrivateKey(createPrivateKey(parts.private_key?.payload ?? '')),
    'certificate and key belong together',
  )
  t.equal(BigInt(`0x${served.serialNumber}`), BigInt(`0x${row.serial}`))
  const secrets = await database('secret').whereLike('name', `${name}-%`).whereNotNull('ciphertext').pluck('id')
  const former = await database('certificate_version').where({ container_id: id }).first()
  const used = [
    ...(await database('container_secret').where({ container_id: id }).pluck('secret_id')),
    ...former.parts.map(({ secret_id }: { secret_id: string }) => secret_id),
  ]
  t.same([...secrets].sort(), [...used].sort(), 'no secret is left over')
  t.equal((await database('issued_certificate').where({ order_id: row.order_id })).length, 2)
  t.equal((await database('certificate_event').where({ container_id: id, kind: 'renewed' })).length, 1)
}

t.test('killing a worker at any statement of a renewal still yields one renewal', async t => {
  for (const [at, kill] of [...killsAt(STEPS), null].entries()) {
    const name = `crash ${at} .`
    const id = await ordered({ name, subject_dn: `CN=crash-${at}.example` })
    const worker = await start('renewals')
    await eventually('planned', async () => (await rowOf(id)).renew_at !== null)
    let passed = false
    const killing = killAt(worker, kill, {
      hasBegun: async () => passed && ((await rowOf(id)).under_way || (await versionOf(id)) === 2),
      isOver: async () => (await versionOf(id)) === 2 && (await rowOf(id)).renew_at !== null,
    })
    passed = true
    await pass(id, 600)
    const seen = await killing
    t.comment(`${kill === null ? 'not killed' : `${kill.step} ${kill.at}`}: version ${await versionOf(id)}`)
    const heir = await startTestRenewalWorker(manager, backends)
    try {
      await expectOneRenewal(t, id, name)
    } finally {
      await heir.stop()
    }
    if (kill === null) {
      const steps = seen.filter(step => step !== 'secondsUntilCertificateDue')
      t.same(differences(steps, STEPS), SAME, 'a renewal takes exactly these steps')
    }
  }
})
