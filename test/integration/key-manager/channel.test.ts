import { randomBytes, randomUUID } from 'node:crypto'
import { connect } from 'node:net'
import t from 'tap'
import { type KeyChannel, openKeyChannel } from '../../../amphora-agent/key-channel/client.js'
import { many } from '../../../controller/database/query.js'
import { sql } from '../../../controller/database/sql.js'
import { createChecks } from '../../../controller/inspection/checks.js'
import {
  amphoraChannelKey,
  controllerChannelKey,
  createChannelCertificate,
} from '../../../controller/key-channel/keys.js'
import { bind as bindFound, dueBindings } from '../../../controller/key-manager/bindings/store.js'
import { startChannelServer } from '../../../controller/key-manager/channel/server.js'
import { createChannelTokens } from '../../../controller/key-manager/channel/tokens.js'
import { createLog } from '../../../controller/log/log.js'
import { FOREIGN, tokenOf } from '../../support/clients/callers.js'
import { startTestKeyManager } from '../../support/clients/key-manager-api.js'
import { eventually } from '../../support/eventually.js'
import { buildInspectorThread, makeBundle, makePair, type Pair } from '../../support/inputs/certificates.js'

/** What load balancers bind at the key manager, and what their amphorae read on the key channel. */

const checks = createChecks({ inspectionMilliseconds: 5000, program: await buildInspectorThread(t.testdir({})) })
// So that nothing but its binding keeps a secret from being deleted.
const settings = { delete_referenced_secrets: true }
const keyManager = await startTestKeyManager(settings, undefined, undefined, checks)
t.teardown(keyManager.stop)
const { ask, store } = keyManager
const secret = randomBytes(32)
const certificate = createChannelCertificate()
let clock = Date.now()
const server = startChannelServer({
  service: { ...keyManager, checks, recordRefusal: async () => undefined },
  address: { host: '127.0.0.1', port: 0 },
  certificate,
  secret,
  log: createLog('test', 'silent'),
  now: () => clock,
})
const { port } = await server.listening
t.teardown(server.stop)

function channelOf(
  subject: string,
  key = subject === 'controller' ? controllerChannelKey(secret) : amphoraChannelKey(secret, subject),
): KeyChannel {
  const channel = openKeyChannel({
    endpoints: [{ host: '127.0.0.1', port }],
    certificate: certificate.certificate,
    subject,
    privateKey: key,
    timeoutMs: 60_000,
  })
  t.teardown(channel.close)
  return channel
}
const controller = channelOf('controller')

const root = makePair({ subject: '/CN=root' })
const web = makePair({ issuer: root })
const text = (payload: string) => store({ payload, payload_content_type: 'text/plain' })

async function storeContainer(): Promise<{ ref: string; key: string; id: string }> {
  const key = await text(web.privateKey)
  const names = [
    ['certificate', await text(web.certificate)],
    ['private_key', key],
    ['intermediates', await text(root.certificate)],
  ]
  const secret_refs = names.map(([name, id]) => ({ name, secret_ref: `${keyManager.url}/v1/secrets/${id}` }))
  const { body } = await ask('POST', '/v1/containers', { type: 'certificate', secret_refs })
  const ref = String(body.container_ref)
  return { ref, key, id: ref.slice(-36) }
}

/** Gives a container another certificate and key, as a renewal does. */
async function replaceParts(containerId: string, pair: Pair) {
  const parts: [string, string][] = [
    ['certificate', await text(pair.certificate)],
    ['private_key', await text(pair.privateKey)],
    ['intermediates', await text(root.certificate)],
  ]
  await keyManager.database.transaction(async trx => {
    await trx('container_secret').where({ container_id: containerId }).delete()
    for (const [name, secret_id] of parts)
      await trx('container_secret').insert({ container_id: containerId, secret_id, name })
    await trx('container').where({ id: containerId }).increment('version')
    await trx('container_consumer').where({ container_id: containerId }).update({ material: '{}' })
  })
}

/** The load balancer, if the key manager must be told of it again. */
const dueNow = async (id: string) => (await dueBindings(keyManager.database, 1000)).filter(one => one === id)

const url = (id: string) => `http://load-balancer.test/v2/lbaas/loadbalancers/${id}`
const bind = (id: string, certificates: string[], token = tokenOf('member')) =>
  ask('POST', `/v1/bindings/${id}`, { url: url(id), certificates }, { token })
async function put(id: string, refs: string[], amphorae: string[], project = 'a'.repeat(32)) {
  const references = refs.map(ref => ({ ref, kind: 'certificate' }))
  const { status, bytes } = await controller.send({
    method: 'PUT',
    path: `/v1/bindings/${id}`,
    body: { project_id: project, url: url(id), references, amphorae },
  })
  return { status, body: JSON.parse(bytes.toString()) }
}
const read = async (channel: KeyChannel, path: string) => (await channel.send({ method: 'GET', path })).status

t.test('what a load balancer uses stays, and its amphorae alone may read it', async t => {
  const [id, other] = [randomUUID(), randomUUID()]
  const [amphora, stranger] = [randomUUID(), randomUUID()]
  const { ref, key, id: containerId } = await storeContainer()
  const bound = await bind(id, [ref])
  t.match(bound.body, { references: [{ ref, kind: 'certificate', facts: { names: ['www.example.com'] } }] })
  t.match(await put(id, [ref], [amphora]), { status: 200, body: { references: [{ ref, digest: /^[0-9a-f]{64}$/ }] } })
  await put(other, [], [stranger])

  const own = channelOf(amphora)
  t.equal(await read(own, `/v1/containers/${containerId}`), 200)
  t.equal(
    (await own.send({ method: 'GET', path: `/v1/secrets/${key}/payload` })).bytes.toString(),
    web.privateKey.trim(),
  )
  t.equal(await read(channelOf(stranger), `/v1/secrets/${key}/payload`), 404, 'not what another load balancer uses')
  t.equal(await read(channelOf(randomUUID()), `/v1/secrets/${key}/payload`), 404, 'nor an amphora that serves none')
  t.equal(await read(own, `/v1/secrets/${await text('x')}/payload`), 404, 'nor what it does not use')
  t.equal(await read(controller, `/v1/secrets/${key}/payload`), 403, 'a controller reads no secret')
  t.equal((await own.send({ method: 'DELETE', path: `/v1/bindings/${id}` })).status, 403, 'an amphora says nothing')

  const reads = await many(
    keyManager.database,
    sql`SELECT outcome, target_id, detail FROM key_manager_audit.audit_record WHERE action = 'secret.payload.read'`,
  )
  t.match(reads, [{ outcome: 'success', target_id: key, detail: { amphora_id: amphora, load_balancer_id: id } }])

  const refused = await ask('DELETE', `/v1/containers/${containerId}`)
  t.equal(refused.status, 409)
  t.match(refused.text, `in use by load balancer ${id}`)
  const part = { name: 'private_key', secret_ref: `${keyManager.url}/v1/secrets/${key}` }
  t.equal((await ask('DELETE', `/v1/containers/${containerId}/secrets`, part)).status, 409, 'nor does it lose a part')
  t.equal((await ask('DELETE', `/v1/secrets/${key}`)).status, 409, 'and none of its parts is deleted')
  const consumer = { name: 'load-balancer', URL: url(id) }
  t.match((await ask('GET', `/v1/containers/${containerId}`)).body, { consumers: [consumer] })
  t.equal((await ask('DELETE', `/v1/containers/${containerId}/consumers`, consumer)).status, 409)

  t.equal((await controller.send({ method: 'DELETE', path: `/v1/bindings/${id}` })).status, 204)
  t.equal(await read(own, `/v1/containers/${containerId}`), 404, 'a released load balancer reads no more')
  t.equal((await ask('DELETE', `/v1/containers/${containerId}`)).status, 204)
})

t.test('a bundle is bound as a secret, and a reference that is gone has a reason', async t => {
  const id = randomUUID()
  const bundle = await store({
    payload: makeBundle(web).toString('base64'),
    payload_content_type: 'application/octet-stream',
    payload_content_encoding: 'base64',
  })
  const ref = `${keyManager.url}/v1/secrets/${bundle}`
  t.equal((await bind(id, [ref])).status, 200)
  t.match((await ask('DELETE', `/v1/secrets/${bundle}?force=true`)).text, `in use by load balancer ${id}`)
  const gone = `${keyManager.url}/v1/secrets/${randomUUID()}`
  t.match((await put(id, [ref, gone], [])).body, {
    references: [
      { ref, digest: /./ },
      { ref: gone, reason: /./ },
    ],
  })
  await put(id, [], [])
  t.equal((await ask('DELETE', `/v1/secrets/${bundle}`)).status, 204)
})

t.test('a worker that releases a certificate keeps it for a request that is about to use it again', async t => {
  const id = randomUUID()
  const [former, next] = [await storeContainer(), await storeContainer()]
  await bind(id, [former.ref])
  await put(id, [former.ref], [])
  await bind(id, [next.ref])
  await put(id, [former.ref, next.ref], [])
  t.equal((await bind(id, [former.ref])).status, 200)
  await put(id, [next.ref], [])
  t.equal((await ask('DELETE', `/v1/containers/${former.id}`)).status, 409)
  await put(id, [former.ref], [])
  t.equal((await ask('DELETE', `/v1/containers/${next.id}`)).status, 204)
})

t.test('another project’s object is bound by its ACL alone, and only as long as that lasts', async t => {
  const [id, amphora] = [randomUUID(), randomUUID()]
  const { ref, key, id: containerId } = await storeContainer()
  const foreign = tokenOf('member', FOREIGN)
  t.match((await bind(id, [ref], foreign)).body, { references: [{ reason: /may not use it/ }] })
  const paths = [
    `/v1/containers/${containerId}`,
    ...((await ask('GET', `/v1/containers/${containerId}`)).body.secret_refs as { secret_ref: string }[]).map(
      ({ secret_ref }) => new URL(secret_ref).pathname,
    ),
  ]
  for (const path of paths) await ask('PUT', `${path}/acl`, { read: { users: ['user-member'] } })
  t.match((await bind(id, [ref], foreign)).body, { references: [{ digest: /./ }] })
  await put(id, [ref], [amphora], FOREIGN)
  t.equal(await read(channelOf(amphora), `/v1/secrets/${key}/payload`), 200)
  for (const path of paths) await ask('DELETE', `${path}/acl`)
  t.equal(await read(channelOf(amphora), `/v1/secrets/${key}/payload`), 404)
  t.match((await put(id, [ref], [amphora], FOREIGN)).body, { references: [{ reason: /you may not use it/ }] })
  t.equal((await ask('DELETE', `/v1/containers/${containerId}`)).status, 204, 'its owner may delete it')
})

t.test('a load balancer that may use another project’s certificate gets its renewal', async t => {
  const [id, amphora] = [randomUUID(), randomUUID()]
  const { ref, id: containerId } = await storeContainer()
  const secretsIn = async () =>
    ((await ask('GET', `/v1/containers/${containerId}`)).body.secret_refs as { secret_ref: string }[]).map(
      ({ secret_ref }) => new URL(secret_ref).pathname,
    )
  for (const path of [`/v1/containers/${containerId}`, ...(await secretsIn())])
    await ask('PUT', `${path}/acl`, { read: { users: ['user-member'] } })
  await bind(id, [ref], tokenOf('member', FOREIGN))
  const told = async () => (await put(id, [ref], [amphora], FOREIGN)).body.references[0]
  const { digest } = await told()

  const renewed = makePair({ issuer: root })
  await replaceParts(containerId, renewed)
  t.same(await dueNow(id), [id], 'the controller is told')
  t.match(await told(), { digest: /^[0-9a-f]{64}$/ })
  t.not((await told()).digest, digest)
  t.same(await dueNow(id), [], 'and then no more')

  await replaceParts(containerId, { ...renewed, privateKey: web.privateKey })
  t.match(await told(), { reason: /key/ }, 'a certificate that cannot be used')
  t.same(await dueNow(id), [], 'is told once')
  await replaceParts(containerId, renewed)
  t.same(await dueNow(id), [id])
  t.match(await told(), { digest: /./ })
})

t.test('more certificates change at once than are checked together', async t => {
  const id = randomUUID()
  const made = await Promise.all(Array.from({ length: 140 }, storeContainer))
  const refs = made.map(({ ref }) => ref)
  for (const some of [refs.slice(0, 70), refs.slice(70)]) await bind(id, some)
  await put(id, refs, [])
  await keyManager.database.raw(`UPDATE container_consumer SET material = '{}' WHERE load_balancer_id = '${id}'`)
  const { status, body } = await put(id, refs, [])
  t.equal(status, 200)
  t.ok((body.references as object[]).every(one => 'digest' in one))
})

t.test('a certificate that is renewed while it is checked is looked at again', async t => {
  const id = randomUUID()
  const { ref, id: containerId } = await storeContainer()
  const target = { kind: 'containers', id: containerId } as const
  const material = { certificate: { digest: 'of the former version', facts: null } }
  const binds = (version: number, found: typeof material | object) =>
    bindFound(keyManager.database, { id, projectId: 'a'.repeat(32), url: url(id) }, 'user-member', [
      { target, version, material: found },
    ])
  await binds(1, material)
  await put(id, [ref], [])
  await replaceParts(containerId, makePair({ issuer: root }))
  await binds(1, material)
  t.same(await dueNow(id), [id], 'what was found of the former version is dropped')
  await binds(1, {})
  t.same(await dueNow(id), [id], 'also if that could not be used')
})

t.test('nobody takes a load balancer’s certificate away by binding it for it', async t => {
  const [id, amphora] = [randomUUID(), randomUUID()]
  const { ref, key, id: containerId } = await storeContainer()
  await bind(id, [ref])
  await put(id, [ref], [amphora])
  const reads = () => read(channelOf(amphora), `/v1/secrets/${key}/payload`)

  const foreign = tokenOf('member', FOREIGN)
  const { secret_refs } = (await ask('GET', `/v1/containers/${containerId}`)).body
  const secrets = (secret_refs as { secret_ref: string }[]).map(({ secret_ref }) => new URL(secret_ref).pathname)
  const paths = [`/v1/containers/${containerId}`, ...secrets]
  for (const path of paths) await ask('PUT', `${path}/acl`, { read: { users: ['user-member'] } })
  t.match((await bind(id, [ref], foreign)).body, { references: [{ digest: /./ }] }, 'another project may use it')
  const other = randomUUID()
  const stolen = { url: url(id), certificates: [ref] }
  t.match(await ask('POST', `/v1/bindings/${other}`, stolen, { token: foreign }), { status: 400, text: other })
  for (const path of paths) await ask('DELETE', `${path}/acl`)

  t.equal(await reads(), 200)
  t.equal((await ask('DELETE', `/v1/containers/${containerId}`)).status, 409)
})

t.test('a token ends after an hour, and only the right key gets one', async t => {
  const amphora = randomUUID()
  const channel = channelOf(amphora)
  t.equal(await read(channel, `/v1/secrets/${randomUUID()}/payload`), 404)
  const wrong = channelOf(amphora, amphoraChannelKey(secret, randomUUID()))
  await t.rejects(read(wrong, '/v1/containers/x'), /refuses our key/)
  const tokens = createChannelTokens(secret, () => clock)
  const issued = tokens.issue(amphora)
  t.equal(tokens.read(issued), amphora)
  t.equal(tokens.read(issued.replace(amphora, randomUUID())), null, 'a token names its subject')
  clock += 3_601_000
  t.equal(tokens.read(issued), null)
  const longer = issued.replace(/\.(\d+)\./, (_, until: string) => `.${Number(until) + 9999}.`)
  t.equal(tokens.read(longer), null, 'nobody can extend it')
  t.equal(await read(channel, '/v1/containers/x'), 404, 'the client gets a new one by itself')
})

t.test('connections that say nothing keep nobody from reading', async t => {
  const idle = Array.from({ length: 200 }, () => connect(port, '127.0.0.1'))
  const left = () => idle.filter(({ destroyed }) => !destroyed).length
  for (const socket of idle) {
    socket.on('error', () => socket.destroy()).on('close', () => socket.destroy())
    t.teardown(() => socket.destroy())
  }
  await eventually('most are closed', () => left() <= 64, 4_000)
  t.equal(await read(channelOf(randomUUID()), '/v1/containers/x'), 404)
})

t.test('a client knows the channel by its certificate', async t => {
  const other = openKeyChannel({
    endpoints: [{ host: '127.0.0.1', port }],
    certificate: createChannelCertificate().certificate,
    subject: 'controller',
    privateKey: controllerChannelKey(secret),
  })
  t.teardown(other.close)
  await t.rejects(other.send({ method: 'GET', path: '/v1/bindings' }), /self-signed certificate/)
  t.equal((await controller.send({ method: 'GET', path: '/v1/bindings' })).status, 200)
})
