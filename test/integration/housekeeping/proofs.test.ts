import { randomBytes, randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { type AddressInfo, connect } from 'node:net'
import { Duplex } from 'node:stream'
import { createServer } from 'node:tls'
import t from 'tap'
import { createProver } from '../../../controller/housekeeping/proof/prove.js'
import { createLog } from '../../../controller/log/log.js'
import type { AgentConnections } from '../../../controller/provider/amphora/agent/connection.js'
import { digestOfPem } from '../../../x509/material/digest.js'
import { createTestDatabase } from '../../support/database/database.js'
import { insertChildren, insertLoadBalancer } from '../../support/database/load-balancer-rows.js'
import { eventually } from '../../support/eventually.js'
import { makePair } from '../../support/inputs/certificates.js'

/** What is concluded from handshakes, also from those that show nothing. TLS is real, the amphora is not. */

const testDatabase = await createTestDatabase()
t.teardown(testDatabase.drop)
const database = testDatabase.of('load_balancer')

const right = makePair({ subject: '/CN=a.example' })
const wrong = makePair({ subject: '/CN=a.example' })
const rightDigest = digestOfPem(right.certificate)

/** How a listener behaves. */
type Behaviour = 'right' | 'wrong' | 'silent' | 'unreachable'

const behaviours = new Map<string, Behaviour>()
const relayed: string[] = []
/** Done while a handshake is under way. */
const meanwhile = { act: async (): Promise<unknown> => undefined }
const told = new Map<string, number>()
const portOf = new Map<Behaviour, number>()
for (const [behaviour, pair] of Object.entries({ right, wrong })) {
  const server = createServer({ cert: pair.certificate, key: pair.privateKey }).listen(0, '127.0.0.1')
  server.on('tlsClientError', () => undefined)
  server.on('secureConnection', socket => socket.on('error', () => undefined))
  await once(server, 'listening')
  portOf.set(behaviour as Behaviour, (server.address() as AddressInfo).port)
  t.teardown(() => server.close())
}
const silent = () => new Duplex({ read: () => undefined, write: (_piece, _encoding, done) => done() })
const agents: AgentConnections = {
  relay: async (_, { listenerId }) => {
    relayed.push(listenerId)
    await meanwhile.act()
    const behaviour = behaviours.get(listenerId) ?? 'right'
    if (behaviour === 'unreachable') throw new Error('the amphora cannot be reached')
    const port = portOf.get(behaviour)
    return port === undefined ? silent() : connect(port, '127.0.0.1')
  },
  request: async (target, body: object) => {
    if ('mismatches' in body) told.set(target.amphoraId, Number(body.mismatches))
    return {} as never
  },
  close: () => undefined,
  stop: async () => undefined,
}
const prover = createProver({
  ...{ database, agents, masterKey: randomBytes(32), intervalSeconds: 180, log: createLog('test', 'silent') },
  signal: new AbortController().signal,
})

/** A load balancer in effect, whose listener serves a certificate with these names. */
async function site(names: readonly string[] = ['a.example']) {
  const id = await insertLoadBalancer(database, { generation: 1, applied_generation: 1, bound_sha256: 'bound' })
  const { listenerId } = await insertChildren(database, id, 1)
  const ref = `http://key-manager.test/v1/secrets/${randomUUID()}`
  await database('listener')
    .where({ id: listenerId })
    .update({ protocol: 'TERMINATED_HTTPS', default_tls_container_ref: ref })
  const facts = { names, keyType: 'ec' }
  const known = { load_balancer_id: id, ref, kind: 'certificate', digest: rightDigest, facts }
  await database('tls_material').insert(known)
  const amphora = randomUUID()
  const lent = { status: 'ALLOCATED', lb_network_ip: '192.0.2.1' }
  await database('amphora').insert({ id: amphora, load_balancer_id: id, ...lent })
  return { id, listenerId, amphora }
}
type Site = Awaited<ReturnType<typeof site>>

/** Proves what the listener serves while it behaves like this. @returns whether the load balancer was rechecked */
async function prove({ id, listenerId }: Site, behaviour: Behaviour): Promise<boolean> {
  behaviours.set(listenerId, behaviour)
  await database('load_balancer').update({ proof_at: null })
  await database('load_balancer')
    .where({ id })
    .update({ proof_at: new Date(0), recheck_at: null })
  await prover.proveDue()
  await prover.settled()
  return (await rowOf(id)).recheck_at !== null
}
const rowOf = (id: string) => database('load_balancer').where({ id }).first()
const notices = async ({ id }: Site): Promise<string[]> => {
  const rows = await database('load_balancer_event')
    .where({ load_balancer_id: id, kind: 'certificate' })
    .orderBy(['created_at', 'id'])
  return rows.map(({ detail }) => detail.certificate.notice)
}
const problems = ({ id }: Site): Promise<string[]> =>
  database('certificate_proof').where({ load_balancer_id: id }).whereNotNull('problem').pluck('problem')

t.test('a handshake that shows nothing ends no alarm, and gives no second one', async t => {
  const one = await site()
  t.notOk(await prove(one, 'right'))
  t.ok(await prove(one, 'wrong'))
  t.same(await notices(one), ['mismatch'])
  t.equal(told.get(one.amphora), 2)

  for (const behaviour of ['unreachable', 'silent'] as const) {
    t.notOk(await prove(one, behaviour))
    t.equal((await problems(one)).length, 2, behaviour)
    t.equal(told.get(one.amphora), 2)
    t.notOk(await prove(one, 'wrong'))
    t.same(await notices(one), ['mismatch'])
  }
  t.ok(await prove(one, 'right'))
  t.same(await notices(one), ['mismatch', 'served'])
  t.equal(told.get(one.amphora), 0)
})

t.test('a problem of an amphora that does not serve any more goes, and the load balancer is rechecked', async t => {
  const one = await site()
  await prove(one, 'wrong')
  await database('amphora').where({ id: one.amphora }).update({ status: 'PENDING_DELETE' })
  t.ok(await prove(one, 'right'))
  t.same(await problems(one), [])
})

t.test('a problem ends with the last listener that could have it', async t => {
  for (const change of [{ admin_state_up: false }, { connection_limit: 0 }, { change: 'delete' }]) {
    const one = await site()
    await prove(one, 'wrong')
    t.equal(told.get(one.amphora), 2)
    await database('listener').where({ id: one.listenerId }).update(change)
    t.ok(await prove(one, 'wrong'), JSON.stringify(change))
    t.same(await problems(one), [])
    t.equal(told.get(one.amphora), 0)
    t.equal((await rowOf(one.id)).proof_at, null)
    t.notOk(await prove(one, 'wrong'), 'once')
  }
})

t.test('while a certificate changes in its place, handshakes say nothing', async t => {
  const one = await site()
  const change = (columns: object) => database('load_balancer').where({ id: one.id }).update(columns)
  const isLater = async () => (await rowOf(one.id)).proof_at.getTime() - Date.now() < 10_000
  const CHANGES: Record<string, () => Promise<unknown>> = {
    'a worker has been at it': () => change({ fence: database.raw('fence + 1') }),
    'a worker is at it': () => change({ lease_until: new Date(Date.now() + 60_000) }),
    'a worker will be at it': () => change({ bound_sha256: 'due', recheck_at: new Date() }),
    'another one is expected': () =>
      database('tls_material')
        .where({ load_balancer_id: one.id })
        .update({ digest: 'b'.repeat(64) }),
  }
  const restore = async () => {
    await change({ lease_until: null, bound_sha256: 'bound', recheck_at: null })
    await database('tls_material').where({ load_balancer_id: one.id }).update({ digest: rightDigest })
  }
  for (const [what, make] of Object.entries(CHANGES)) {
    meanwhile.act = make
    await prove(one, 'wrong')
    t.same(await notices(one), [], `${what} meanwhile`)
    t.ok(await isLater(), 'proven again soon')
    await restore()
  }
  meanwhile.act = async () => undefined
  await change({ lease_until: new Date(Date.now() + 60_000) })
  await prove(one, 'wrong')
  t.same(await notices(one), [])
  t.ok(await isLater(), 'a worker is at it all the time')
  await restore()
  await prove(one, 'wrong')
  t.same(await notices(one), ['mismatch'], 'afterwards they do')
})

t.test('what is served is proven while the key manager is away', async t => {
  const one = await site()
  await database('load_balancer').where({ id: one.id }).update({ bound_sha256: 'due' })
  await prove(one, 'wrong')
  t.same(await notices(one), ['mismatch'], 'no recheck is asked for')
  meanwhile.act = () =>
    database('load_balancer')
      .where({ id: one.id })
      .update({ recheck_at: new Date(Date.now() + 60_000) })
  await prove(one, 'right')
  meanwhile.act = async () => undefined
  t.same(await notices(one), ['mismatch', 'served'], 'it is, for later')
})

t.test('load balancers that do not answer hold up nobody else', async t => {
  const names = Array.from({ length: 50 }, (_, at) => `a${at}.example`)
  const mute = await Promise.all(Array.from({ length: 7 }, () => site(names)))
  const other = await site()
  for (const { listenerId } of mute) behaviours.set(listenerId, 'silent')
  const ids = mute.map(({ id }) => id)
  const makeDue = (...some: string[]) =>
    database('load_balancer')
      .whereIn('id', some)
      .update({ proof_at: new Date(0) })
  await database('load_balancer').update({ proof_at: null })
  const from = relayed.length
  const tries = () => mute.map(({ listenerId }) => relayed.slice(from).filter(one => one === listenerId).length)

  await makeDue(...ids)
  await prover.proveDue()
  await makeDue(other.id, ...ids)
  await prover.proveDue()
  const proven = () => database('certificate_proof').where({ load_balancer_id: other.id })
  await eventually('a proof while the others are tried', async () => (await proven()).length === 2, 2_000)
  t.same(tries(), Array(7).fill(1), 'nothing is proven twice at once')

  await prover.settled()
  t.same(tries(), Array(7).fill(1), 'each is left after the first handshake without an answer')
  await prover.proveDue()
  await prover.settled()
  t.same(tries(), Array(7).fill(2), 'until the next proof')
})
