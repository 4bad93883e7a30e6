import { randomBytes, randomUUID } from 'node:crypto'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { openKeyChannel } from '../../amphora-agent/key-channel/client.js'
import { createBindings } from '../../controller/bindings/bindings.js'
import { createKraterKeeper } from '../../controller/bindings/krater-keeper.js'
import type { Database } from '../../controller/database/connection.js'
import { createChecks, INSPECTION_MILLISECONDS } from '../../controller/inspection/checks.js'
import { controllerChannelKey, createChannelCertificate } from '../../controller/key-channel/keys.js'
import { startChannelServer } from '../../controller/key-manager/channel/server.js'
import { createKeyring } from '../../controller/key-manager/crypto/keyring.js'
import { requireMasterKeys } from '../../controller/key-manager/crypto/master-key.js'
import { createSimpleCrypto } from '../../controller/key-manager/crypto/simple/backend.js'
import { createLog } from '../../controller/log/log.js'
import { OWN, tokenOf } from '../support/clients/callers.js'
import { startTestKeyManager } from '../support/clients/key-manager-api.js'
import { createTestDatabase } from '../support/database/database.js'
import { insertLoadBalancer } from '../support/database/load-balancer-rows.js'
import { createCrashScene, type Running } from '../support/faults/crash-scene.js'
import { buildInspectorThread, makeBundle, makePair } from '../support/inputs/certificates.js'

/**
 * Killing the key manager at any statement of a binding leaves consumers that the same request, or housekeeping, makes
 * exact.
 */

const programs = mkdtempSync(join(tmpdir(), 'krater-inspector-'))
t.teardown(() => rmSync(programs, { recursive: true, force: true }))
const inspector = await buildInspectorThread(programs)
const checks = createChecks({ inspectionMilliseconds: INSPECTION_MILLISECONDS, program: inspector })
const masterKey = randomBytes(32)
const manager = await startTestKeyManager(
  {},
  undefined,
  async (database: Database) => {
    const backend = createSimpleCrypto({ origin: 'the test', remedy: '', keys: [masterKey], reread: null })
    await requireMasterKeys(database, backend)
    return createKeyring(database, [backend])
  },
  checks,
)
const { database, ask } = manager
const secret = randomBytes(32)
const certificate = createChannelCertificate()
const channel = { certificate, secret: secret.toString('hex'), inspector }
const { start, killAfter } = await createCrashScene(t, manager.databaseUrl, masterKey, {}, channel)
const log = createLog('test', 'silent')
const server = startChannelServer({
  service: { ...manager, checks, recordRefusal: async () => undefined },
  address: { host: '127.0.0.1', port: 0 },
  ...{ certificate, secret, log },
})
const { port } = await server.listening
const loadBalancers = await createTestDatabase()
t.teardown(async () => {
  await server.stop()
  await manager.stop()
  await loadBalancers.drop()
})

const urlOf = (id: string) => `http://load-balancer.test/v2/lbaas/loadbalancers/${id}`
function controllerAt(channelPort: number) {
  const opened = openKeyChannel({
    endpoints: [{ host: '127.0.0.1', port: channelPort }],
    certificate: certificate.certificate,
    subject: 'controller',
    privateKey: controllerChannelKey(secret),
    timeoutMs: 60_000,
  })
  t.teardown(opened.close)
  return opened
}
const own = controllerAt(port)
const rows = loadBalancers.of('load_balancer')
const { tend } = createBindings({ keeper: createKraterKeeper(own, urlOf), database: rows, log })

const pair = makePair({})
const bundle = makeBundle(pair).toString('base64')
const storeBundle = () =>
  manager.store({
    payload: bundle,
    payload_content_type: 'application/octet-stream',
    payload_content_encoding: 'base64',
  })
async function storeContainer(): Promise<string> {
  const parts = [
    ['certificate', pair.certificate],
    ['private_key', pair.privateKey],
  ] as const
  const secret_refs = await Promise.all(
    parts.map(async ([name, payload]) => ({
      name,
      secret_ref: `${manager.url}/v1/secrets/${await manager.store({ payload, payload_content_type: 'text/plain' })}`,
    })),
  )
  const { body } = await ask('POST', '/v1/containers', { type: 'certificate', secret_refs })
  return String(body.container_ref).slice(-36)
}

/** A load balancer that goes from one certificate, a secret, to another, a container, and from one amphora to another. */
type Scene = { id: string; former: string; next: string; amphorae: { former: string; next: string } }

type Endpoint = { url: string; send: typeof own.send }
const undisturbed: Endpoint = { url: manager.url, send: own.send }

const refOf = (path: string) => `${manager.url}/v1/${path}`

const bind = (used: (scene: Scene) => string[]) => async (scene: Scene, endpoint: Endpoint) => {
  const answer = await fetch(`${endpoint.url}/v1/bindings/${scene.id}`, {
    method: 'POST',
    headers: { 'X-Auth-Token': tokenOf('member'), 'Content-Type': 'application/json' },
    body: JSON.stringify({ url: urlOf(scene.id), certificates: used(scene).map(refOf) }),
    signal: AbortSignal.timeout(30_000),
  })
  await answer.arrayBuffer()
  return answer.status
}

const tell = (used: (scene: Scene) => string[], amphora: 'former' | 'next') => async (scene: Scene, to: Endpoint) => {
  const references = used(scene).map(path => ({ ref: refOf(path), kind: 'certificate' }))
  const body = { project_id: OWN, url: urlOf(scene.id), amphorae: [scene.amphorae[amphora]], references }
  return (await to.send({ method: 'PUT', path: `/v1/bindings/${scene.id}`, body })).status
}

const release = async ({ id }: Scene, to: Endpoint) =>
  (await to.send({ method: 'DELETE', path: `/v1/bindings/${id}` })).status

const none = () => []
const former = ({ former }: Scene) => [former]
const next = ({ next }: Scene) => [next]
const both = ({ former, next }: Scene) => [former, next]

type Request = ReturnType<typeof bind>
type Change = {
  name: string
  /** What a load balancer has done before. */
  before: readonly Request[]
  request: Request
  status: number
  /** What it uses before and after the request. */
  used: { before: (scene: Scene) => string[]; after: (scene: Scene) => string[] }
  /** The amphora that may read after the request; null if there is none, or if the request says nothing of it. */
  reader: keyof Scene['amphorae'] | null
}

const served: readonly Request[] = [bind(former), tell(former, 'former')]
const CHANGES: readonly Change[] = [
  {
    name: 'the API binds the first certificate of a load balancer',
    ...{ before: [], request: bind(next), status: 200, used: { before: none, after: next }, reader: null },
  },
  {
    name: 'the API binds the next certificate',
    ...{ before: served, request: bind(next), status: 200, used: { before: former, after: both }, reader: 'former' },
  },
  {
    name: 'a worker confirms both before it deploys the next one',
    ...{ before: [...served, bind(next)], request: tell(both, 'next'), status: 200 },
    ...{ used: { before: both, after: both }, reader: 'next' },
  },
  {
    name: 'a worker names what nobody has bound',
    ...{ before: served, request: tell(both, 'next'), status: 200 },
    ...{ used: { before: former, after: both }, reader: 'next' },
  },
  {
    name: 'a worker releases the former one',
    ...{ before: [...served, bind(next), tell(both, 'next')], request: tell(next, 'next'), status: 200 },
    ...{ used: { before: both, after: next }, reader: 'next' },
  },
  {
    name: 'a worker releases all of a load balancer that is gone',
    ...{ before: [...served, bind(next)], request: release, status: 204 },
    ...{ used: { before: both, after: none }, reader: null },
  },
]

/** More than the statements of any of these requests. */
const MOST_STATEMENTS = 40

/** A user repeats it or not; a worker repeats what it tells. */
const isRequest = ({ before, reader }: Change) => before.length === 0 || reader === 'former'

async function createScene({ before }: Change): Promise<Scene> {
  const scene: Scene = {
    ...{ id: randomUUID(), former: `secrets/${await storeBundle()}`, next: `containers/${await storeContainer()}` },
    amphorae: { former: randomUUID(), next: randomUUID() },
  }
  for (const request of before) await request(scene, undisturbed)
  return scene
}

async function usedBy({ id }: Scene): Promise<string[]> {
  const of = (owner: string) =>
    database(`${owner}_consumer`).where({ load_balancer_id: id }).pluck<string[]>(`${owner}_id`)
  const [secrets, containers] = await Promise.all([of('secret'), of('container')])
  return [...secrets.map(one => `secrets/${one}`), ...containers.map(one => `containers/${one}`)]
}

const readersOf = ({ id }: Scene) =>
  database('amphora_reader').where({ load_balancer_id: id }).pluck<string[]>('amphora_id')

/** What is in use cannot be deleted, and everything else can. */
async function requireExact(t: Test, scene: Scene, used: readonly string[], what: string): Promise<void> {
  t.same((await usedBy(scene)).sort(), [...used].sort(), `${what}: the consumers`)
  const statuses = await Promise.all(both(scene).map(async path => (await ask('DELETE', `/v1/${path}`)).status))
  const expected = both(scene).map(path => (used.includes(path) ? 409 : 204))
  t.same(statuses, expected, `${what}: deleting what is in use, and what is not`)
}

/**
 * Nobody repeats a request that bound something. Housekeeping sees that much later, and the worker tells again what is
 * really in use.
 */
async function abandon(scene: Scene, served: readonly string[]): Promise<void> {
  for (const table of ['secret_consumer', 'container_consumer'])
    await database(table)
      .where({ load_balancer_id: scene.id })
      .update({ bound_at: database.raw("bound_at - interval '1 hour'") })
  if (served.length > 0) await insertLoadBalancer(rows, { id: scene.id, bound_sha256: 'before' })
  await tend()
  const row = await rows('load_balancer').where({ id: scene.id }).first()
  if (row?.bound_sha256 === 'due') await tell(former, 'former')(scene, undisturbed)
}

async function killed(change: Change, scene: Scene, { firstLine, kill }: Running, statements: number) {
  const [url = '', channelPort] = firstLine.split(' ')
  let isOver = false
  const killing = killAfter({ firstLine, kill }, statements, () => isOver)
  const { send, close } = controllerAt(Number(channelPort))
  const status = await change.request(scene, { url, send }).catch(() => null)
  isOver = true
  const step = await killing
  close()
  return { status, step }
}

for (const change of CHANGES) {
  t.test(`${change.name}: the key manager dies at any statement`, async t => {
    const { request, used, reader } = change
    const steps: string[] = []
    let next = start('bindings')
    for (let statements = 0; statements < MOST_STATEMENTS; statements++) {
      const victim = await next
      next = start('bindings')
      const scene = await createScene(change)
      const { status, step } = await killed(change, scene, victim, statements)
      const what = step === null ? 'undisturbed' : `after ${statements} statements, ${step}`
      t.equal(status, step === null ? change.status : null, `${what}: the answer`)
      const found = (await usedBy(scene)).sort()
      const possible = [used.before(scene).sort(), used.after(scene).sort()].map(String)
      t.ok(possible.includes(String(found)), `${what}: ${found.length} are bound`)
      const records = await database('audit_record').where({ target_id: scene.next.slice(-36), outcome: 'success' })
      const isBound = found.includes(scene.next)
      if (isRequest(change)) t.equal(records.length, isBound ? 1 : 0, `${what}: a record of the binding, if it exists`)

      if (status === null && isRequest(change)) {
        await abandon(scene, used.before(scene))
        t.same(await usedBy(scene), used.before(scene), `${what}: what is left if nobody repeats it`)
      }
      if (step !== null) t.equal(await request(scene, undisturbed), change.status, `${what}: repeated`)
      await requireExact(t, scene, used.after(scene), what)
      const readers = change.request === release || reader === null ? [] : [scene.amphorae[reader]]
      t.same(await readersOf(scene), readers, `${what}: the readers`)
      if (step === null) break
      steps.push(step)
    }
    await (await next).kill()
    t.ok(steps.length < MOST_STATEMENTS - 1, 'the request came to its end')
    t.comment(`it died at ${steps.length} places: ${steps.join(', ')}`)
  })
}
