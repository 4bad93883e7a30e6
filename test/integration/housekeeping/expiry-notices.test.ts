import t from 'tap'
import { giveExpiryNotices } from '../../../controller/housekeeping/expiry-notices.js'
import { createLog } from '../../../controller/log/log.js'
import { createTestDatabase } from '../../support/database/database.js'
import { insertLoadBalancer } from '../../support/database/load-balancer-rows.js'

/** Notices before certificates in use expire. */

const DAY_MS = 86_400_000

const testDatabase = await createTestDatabase()
t.teardown(testDatabase.drop)
const db = testDatabase.of('load_balancer')
const log = createLog('test', 'silent')
const loadBalancer = await insertLoadBalancer(db)

const facts = (daysLeft: number) => ({
  ...{ names: ['a.example', 'b.example'], issuer: 'CN=CA', serial: '1', keyType: 'ec' },
  notBefore: new Date(Date.now() - 100 * DAY_MS).toISOString(),
  notAfter: new Date(Date.now() + daysLeft * DAY_MS).toISOString(),
})
const put = (digest: string, daysLeft: number) =>
  db('tls_material')
    .insert({ load_balancer_id: loadBalancer, ref: 'ref', kind: 'certificate', digest, facts: facts(daysLeft) })
    .onConflict(['load_balancer_id', 'ref', 'kind'])
    .merge()
const notices = async () => {
  const rows = await db('load_balancer_event').where({ kind: 'certificate' }).orderBy(['created_at', 'id'])
  return rows.map(({ detail }) => detail.certificate as { notice: string; text: string })
}

t.test('each threshold gives one notice, whoever looks how often', async t => {
  await put('one', 31)
  t.equal(await giveExpiryNotices(db, log), 0)
  let expected = 0
  for (const [daysLeft, isNew] of [
    [29.5, true],
    [20, false],
    [13, true],
    [6.9, true],
    [2, true],
    [0.5, true],
    [-0.1, true],
    [-10, false],
  ] as const) {
    await put('one', daysLeft)
    await Promise.all([giveExpiryNotices(db, log), giveExpiryNotices(db, log)])
    expected += isNew ? 1 : 0
    t.equal((await notices()).length, expected, `${daysLeft} days left`)
  }
  const all = await notices()
  t.match(all[0], { notice: 'expires', text: /^The certificate ref for a\.example, b\.example expires at 20/ })
  t.match(all.at(-1), { notice: 'expired', text: /expired at/ })
})

t.test('a certificate in its place starts anew', async t => {
  const before = (await notices()).length
  await put('two', 90)
  t.equal(await giveExpiryNotices(db, log), 0)
  await put('two', 10)
  t.equal(await giveExpiryNotices(db, log), 1)
  t.equal((await notices()).length, before + 1, 'only the nearest threshold is told')
})
