import t from 'tap'
import { storeChallenge } from '../../../../controller/key-manager/certificate-authorities/acme/challenge-rows.js'
import { createCaBackends } from '../../../../controller/key-manager/certificate-authorities/backends.js'
import { createLog } from '../../../../controller/log/log.js'
import { FOREIGN, OWN, tokenOf } from '../../../support/clients/callers.js'
import { startTestKeyManager } from '../../../support/clients/key-manager-api.js'
import { eventually } from '../../../support/eventually.js'
import { startChallengeResponder } from '../../../support/services/challenge-responder.js'
import { startPebble } from '../../../support/services/pebble.js'
import { orderHelpers } from '../../../support/worlds/order-worker.js'
import { startCertificateWorkers } from '../../../support/worlds/renewals.js'

/** A CA that uses every valid authorization of an account again, as public CAs do for weeks. All projects share the account. */

const pebble = await startPebble(t, { reuse: 100 })
const manager = await startTestKeyManager({
  certificate_authority: { project_names: [`${OWN}=given.test`] },
  acme: {
    ...{ directory_url: pebble.directoryUrl, ca_file: pebble.caFile, terms_of_service_agreed: true },
    challenges: ['http-01'],
  },
})
const { database } = manager
const backends = createCaBackends(manager, createLog('test', 'silent'))
await startCertificateWorkers(t, manager, backends)
const responder = await startChallengeResponder(t, manager, pebble)
const { order, ended, show } = orderHelpers(manager)
const { id: caId } = await database('certificate_authority').where({ plugin_name: 'acme' }).first('id')

const [owner, thief] = [tokenOf('member', FOREIGN), tokenOf('member', 'thief')]
const place = (name: string, token: string) =>
  order('certificate', { ca_id: caId, algorithm: 'ec', subject_dn: `CN=${name}` }, token)
const timesProven = (name: string) => [...responder.tokens].filter(each => each.endsWith(` ${name}`)).length

t.test('no project gets a certificate because another one has proven the name', async t => {
  t.match(await ended(await place('shop.test', owner), owner), { status: 'ACTIVE' })
  // No load balancer of the other project answers for the name.
  responder.serves.clear()
  const id = await place('shop.test', thief)
  const waiting = await eventually('it waits, or has the certificate', async () => {
    const record = await show(id, thief)
    return (record.status === 'ACTIVE' || /No load balancer/.test(String(record.sub_status_message))) && record
  })
  t.match(waiting, { status: 'PENDING', sub_status: 'cert_request_pending' })
  await manager.ask('DELETE', `/v1/orders/${id}`, undefined, { token: thief })
  for (const { sweep } of backends) await sweep?.()
  responder.serves.add('http-01')
})

t.test('the project itself proves a name anew for each certificate', async t => {
  const before = timesProven('shop.test')
  t.match(await ended(await place('shop.test', owner), owner), { status: 'ACTIVE' })
  t.match(await ended(await place('shop.test', owner), owner), { status: 'ACTIVE' })
  t.equal(timesProven('shop.test') - before, 2)
})

t.test('a name that the operator gave to a project needs no second proof', async t => {
  const token = tokenOf('member', OWN)
  t.match(await ended(await place('www.given.test', token), token), { status: 'ACTIVE' })
  t.match(await ended(await place('www.given.test', token), token), { status: 'ACTIVE' })
  t.equal(timesProven('www.given.test'), 1)
})

t.test('of two projects that share an open authorization, only the first publishes it', async t => {
  responder.serves.clear()
  const first = await place('open.test', owner)
  const published = await eventually('published', () =>
    database('published_challenge').where({ request_id: first }).first(),
  )
  const { id: _, token, identifier, digest, type } = published
  const common = { token, identifier, digest, type, keyAuthorization: 'x', expiresAt: published.expires_at }
  await storeChallenge(database, { ...common, requestId: caId, projectId: 'thief' })
  t.equal((await database('published_challenge').where({ token })).length, 1)
  await storeChallenge(database, { ...common, requestId: caId, projectId: FOREIGN })
  t.equal((await database('published_challenge').where({ token })).length, 2, 'orders of one project share it')
})
