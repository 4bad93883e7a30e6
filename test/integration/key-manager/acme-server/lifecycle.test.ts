import t from 'tap'
import { inTransaction } from '../../../../controller/database/transaction.js'
import { CryptoUnavailable } from '../../../../controller/key-manager/crypto/backend.js'
import { eraseProject } from '../../../../controller/key-manager/erase-project.js'
import { listHeldProjects } from '../../../../controller/key-manager/held-projects.js'
import { purgeAcme } from '../../../../controller/key-manager/housekeeping/acme.js'
import { removeUnusedProjectKeys } from '../../../../controller/key-manager/housekeeping/unused-keys.js'
import { rotateProjectKeys } from '../../../../controller/key-manager/rotation/project-keys.js'
import { AcmeClient, acmeKey } from '../../../support/clients/acme-client.js'
import { OWN, tokenOf } from '../../../support/clients/callers.js'
import { dns, issue, orderOf, outcomeOf, startAcmeServer } from '../../../support/worlds/acme-server.js'

const world = await startAcmeServer({ acme_server: { accounts_per_hour: 1000 } })
t.teardown(world.stop)
const { manager } = world
const { database, keyring } = manager
const ago = (days: number) => new Date(Date.now() - days * 86_400_000)
const idOf = (url: unknown): string => String(url).slice(-36)

t.test('binding keys and nonces outlive a rotation of all project keys', async t => {
  const client = await world.client()
  const unused = await world.bindingKey()
  const [nonce, before] = [await client.nonce(), await database('project_key').select('id')]
  const options = { report: () => undefined, onResume: () => undefined }
  const result = await rotateProjectKeys(database, keyring.backends, null, options)
  t.match(result, { unreadable: 0 })
  const after = (await database('project_key').select('id')).map(({ id }) => id)
  t.notOk(
    before.some(({ id }) => after.includes(id)),
    'all keys were replaced',
  )
  keyring.forgetActive(OWN)
  t.equal((await new AcmeClient(manager.url, acmeKey()).register(unused)).status, 201)
  t.equal((await client.send(client.account ?? '', null, { header: { nonce } })).status, 200)
})

t.test('the project’s key is in use as long as a binding key is sealed with it', async t => {
  const project = 'd'.repeat(32)
  const { keyId } = await world.bindingKey(tokenOf('member', project))
  const isThere = async () => (await database('project_key').where({ project_id: project })).length
  await inTransaction(database, removeUnusedProjectKeys)
  t.equal(await isThere(), 1)
  await manager.ask('DELETE', `/v1/acme-accounts/${keyId}`, undefined, { token: tokenOf('member', project) })
  await inTransaction(database, removeUnusedProjectKeys)
  t.equal(await isThere(), 0)
  keyring.forgetActive(project)
})

t.test('erasing a project removes its keys, accounts, orders and challenges, and no other’s', async t => {
  const project = 'e'.repeat(32)
  const token = tokenOf('member', project)
  const [gone, stays] = [await world.client(token), await world.client()]
  await orderOf(gone, dns('gone.example'))
  const kept = await orderOf(stays, dns('stays.example'))
  const held = (await listHeldProjects(database)).map(({ projectId }) => projectId)
  t.ok(held.includes(project))
  await eraseProject(database, project)
  for (const table of ['acme_binding_key', 'acme_account', 'acme_order', 'acme_authorization', 'acme_challenge']) {
    t.same(await database(table).where({ project_id: project }), [], table)
  }
  t.equal(outcomeOf(await gone.send('new-order', { identifiers: dns('a.example') })), '400 accountDoesNotExist')
  t.match((await stays.send(kept.url)).body, { status: 'pending' })
  keyring.forgetActive(project)
})

t.test('housekeeping removes used nonces, orders and accounts once they matter no longer', async t => {
  const client = await world.client()
  const open = await orderOf(client, dns('open.example'))
  const old = await orderOf(client, dns('old.example'))
  const issued = await issue(world, client, ['issued.example'])
  const [left, revoked] = [await world.client(), await world.bindingKey()]
  await left.send(left.account ?? '', { status: 'deactivated' })
  await manager.ask('DELETE', `/v1/acme-accounts/${revoked.keyId}`)
  const nonces = async () => (await database('acme_used_nonce')).length
  t.match(await purgeAcme(database, 90), { nonces: 0, orders: 0, accounts: 0, keys: 0 })
  const used = await nonces()
  t.ok(used > 0)
  await database('acme_used_nonce').update({ expires_at: ago(1) })
  await database('acme_order')
    .where({ id: idOf(old.url) })
    .update({ purge_at: ago(1) })
  await database('acme_account')
    .where({ id: idOf(left.account) })
    .update({ deactivated_at: ago(91) })
  await database('acme_binding_key')
    .where({ id: revoked.keyId })
    .update({ revoked_at: ago(91) })
  t.same(await purgeAcme(database, 90), { nonces: used, orders: 1, accounts: 1, keys: 1 })
  t.equal((await client.send(open.url)).status, 200)
  t.equal((await client.send(old.url)).status, 404)
  t.equal((await client.send(issued.url)).status, 200, 'as long as its certificate may be renewed or revoked')
  const { purge_at } = await database('acme_order')
    .where({ id: idOf(issued.url) })
    .first()
  const { not_after } = await database('issued_certificate').first('not_after')
  t.ok(purge_at > not_after)
})

t.test('a deleted result: the certificate is gone, the order stays valid, and nothing breaks', async t => {
  const client = await world.client()
  const { url, order } = await issue(world, client, ['deleted.example'])
  const { secret_order_id: id } = await database('acme_order')
    .where({ id: idOf(url) })
    .first()
  const { body } = await manager.ask('GET', `/v1/orders/${id}`)
  const container = new URL(String(body.container_ref)).pathname
  const { secret_refs } = (await manager.ask('GET', container)).body as { secret_refs: { secret_ref: string }[] }
  t.equal((await manager.ask('DELETE', container)).status, 204)
  for (const { secret_ref } of secret_refs) await manager.ask('DELETE', new URL(secret_ref).pathname)
  t.equal(outcomeOf(await client.send(String(order.certificate))), '404 malformed')
  t.match((await client.send(url)).body, { status: 'valid' })
  await database('secret_order').where({ id }).delete()
  t.match((await client.send(url)).body, { status: 'invalid' }, 'once housekeeping has removed the order')
})

t.test('a crypto back end that is away: 503 in the shape of ACME, and the order is as before', async t => {
  const client = await world.client()
  const { order } = await issue(world, client, ['away.example'])
  const { open } = keyring
  keyring.open = async () => {
    throw new CryptoUnavailable('the token is away')
  }
  t.teardown(() => Object.assign(keyring, { open }))
  const away = await client.send(String(order.certificate))
  t.equal(away.status, 503, away.text)
  t.equal(away.headers.get('content-type'), 'application/problem+json')
  t.match(away.body, { type: /serverInternal$/, detail: /try again later/ })
  keyring.open = open
  t.equal((await client.send(String(order.certificate))).status, 200)
})
