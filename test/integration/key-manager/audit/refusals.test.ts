import { randomUUID } from 'node:crypto'
import t from 'tap'
import { createRefusalLog } from '../../../../controller/key-manager/audit/refusals.js'
import { tokenOf } from '../../../support/clients/callers.js'
import { startTestKeyManager } from '../../../support/clients/key-manager-api.js'
import { eventually, quiet } from '../../../support/worlds/machines.js'

const actor = { userId: 'u', projectId: 'p', requestId: 'req-1', remoteAddress: '127.0.0.1' }
const { ask, store, database, stop } = await startTestKeyManager()
t.teardown(stop)

t.test('a flood of refusals records the first ones and counts the rest', async t => {
  const id = await store()
  const others = { token: tokenOf('member', 'c'.repeat(32)) }
  for (let asked = 0; asked < 60; asked++) await ask('GET', `/v1/secrets/${id}/payload`, undefined, others)
  const denied = () => database('audit_record').where({ action: 'secret.payload.read', project_id: 'c'.repeat(32) })
  t.equal((await denied()).length, 20)
  const { record } = createRefusalLog(database, quiet, 300)
  const refused = { action: 'secret.payload.read', outcome: 'denied', targetType: 'secret' } as const
  for (let asked = 0; asked < 500; asked++) {
    await record({ ...actor, projectId: 'd' }, { ...refused, targetId: id, detail: { status: 403 } })
  }
  const all = async () => {
    const rows = await database('audit_record').where({ project_id: 'd' })
    const count = rows.reduce((sum, { detail }) => sum + (detail.refusals ?? 1), 0)
    return count === 500 ? rows : null
  }
  t.ok((await eventually('all refusals are counted', all)).length < 250)
})

t.test('refusals that are only counted are recorded when the process stops', async t => {
  const { record, flush } = createRefusalLog(database, quiet)
  const refused = { action: 'secret.payload.read', outcome: 'denied', targetType: 'secret', targetId: null } as const
  const counted = async () => {
    const rows = await database('audit_record').whereIn('project_id', ['e', 'f'])
    return rows.reduce((sum, { detail }) => sum + (detail.refusals ?? 1), 0)
  }
  for (let asked = 0; asked < 50; asked++) {
    for (const projectId of ['e', 'f']) {
      await record({ ...actor, projectId }, { ...refused, detail: { status: 403 } })
    }
  }
  t.equal(await counted(), 40)
  await flush()
  t.equal(await counted(), 100)
  await flush()
  t.equal(await counted(), 100, 'the refusals are counted once')
})

t.test('a client that floods the CRL endpoint gets 429', async t => {
  const held = await database.transaction()
  await held.raw('LOCK TABLE certificate_authority')
  const flood = Array.from({ length: 300 }, () => ask('GET', `/crl/${randomUUID()}.crl`, undefined, { token: null }))
  const first = await Promise.race(flood)
  await held.rollback()
  t.equal(first.status, 429, 'this client’s queue is full')
  t.same(new Set((await Promise.all(flood)).map(({ status }) => status)), new Set([404, 429]))
})
