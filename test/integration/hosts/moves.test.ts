import { randomUUID } from 'node:crypto'
import t from 'tap'
import { removeHost } from '../../../controller/cli/commands/controller/remove.js'
import { placementRules } from '../../../controller/compute/placement.js'
import { configurationSchema } from '../../../controller/config/schema.js'
import {
  adoptMachines,
  declareGone,
  goneSince,
  isProcessAlive,
  lostOf,
  sightOthers,
} from '../../../controller/hosts/move.js'
import { hostState, readHosts } from '../../../controller/hosts/read-hosts.js'
import {
  forgetPredecessors,
  forgetProcess,
  forgetRemovedHosts,
  markRemoved,
  recordSignOfLife,
  registerHost,
  reserveHost,
} from '../../../controller/hosts/registry.js'
import { hasSpanningRouters } from '../../../controller/hosts/router-host.js'
import { returnHost, watchHosts } from '../../../controller/housekeeping/host-watch.js'
import { createVipLook } from '../../../controller/housekeeping/vip-look.js'
import { createLog } from '../../../controller/log/log.js'
import type { Answer } from '../../../controller/network/driver.js'
import { allocateAmphora } from '../../../controller/provider/amphora/act/allocate.js'
import { type Claim, claimDue, renewClaim } from '../../../controller/queue/claim.js'
import { loadBalancerClaims, secondsUntilDue } from '../../../controller/worker/due.js'
import { createTestDatabase } from '../../support/database/database.js'
import { insertLoadBalancer } from '../../support/database/load-balancer-rows.js'

const log = createLog('test', 'silent')
const testDatabase = await createTestDatabase()
t.teardown(testDatabase.drop)
const db = testDatabase.of('load_balancer')

const hostOf = (name: string) => ({
  id: randomUUID(),
  name,
  address: null,
  instance: 'abcde',
  version: '1',
})
const [here, there, third] = [hostOf('here'), hostOf('there'), hostOf('third')]
const worker = (owner: string) => ({ name: 'worker', pid: 7, version: '1', owner })

const claimsOf = (host: string | null): Promise<Claim[]> =>
  claimDue(db, { ...loadBalancerClaims('w', 12, host), limit: 12 })
const due = async (columns: Record<string, unknown> = {}) =>
  insertLoadBalancer(db, { project_id: randomUUID(), generation: 1, applied_generation: 0, ...columns })
const release = () => db('load_balancer').update({ lease_owner: null, lease_until: null })
/** The machines of a host. */
function computeWith(amphoraIds: readonly string[]) {
  const deleted: string[] = []
  let fault: Error | null = null
  const list = async ({ isComplete } = { isComplete: false }) => {
    if (fault !== null && isComplete) throw fault
    return amphoraIds
      .filter(id => fault === null && !deleted.includes(id))
      .map(amphoraId => ({
        ...{ amphoraId, computeId: amphoraId, name: amphoraId, driver: 'namespace', state: 'running' as const },
      }))
  }
  return {
    compute: { list, delete: async (id: string) => void deleted.push(id) },
    deleted,
    /** As after a restart: without a list from before. */
    breakLists: (isBroken: boolean) => {
      fault = isBroken ? new Error('the socket is busy') : null
    },
  }
}
const idsOf = (claims: readonly Claim[]) => claims.map(({ id }) => id).sort()

t.test('hosts make themselves known once, under names of their own', async t => {
  for (const host of [here, there, third]) await registerHost(db, host, true)
  await registerHost(db, { ...here, address: '192.0.2.1', version: '2' }, true)
  await t.rejects(registerHost(db, hostOf('there'), true), /Another controller host has the name there/)
  await t.rejects(registerHost(db, hostOf('restored'), false), /does not know the controller host restored/)
  const copy = { ...there, instance: 'fghij', address: '192.0.2.2' }
  for (const isNew of [true, false])
    await t.rejects(registerHost(db, copy, isNew), { name: 'Error', message: /started from another state directory/ })
  const [first] = await readHosts(db)
  t.match(first, { name: 'here', address: '192.0.2.1', version: '2', silent_seconds: null, processes: [] })
})

t.test('a process gives signs of life with what it holds, and replaces a dead one of its name', async t => {
  const id = await due()
  await claimDue(db, { ...loadBalancerClaims('vm 7 1 ns abcd', 12, null), limit: 1 })
  await recordSignOfLife(db, here.id, { ...worker('vm 6 1 ns'), pid: 6 })
  await db('controller_process').update({ last_seen_at: db.raw(`now() - interval '11 seconds'`) })
  await forgetPredecessors(db, here.id, 'worker')
  await recordSignOfLife(db, here.id, worker('vm 7 1 ns'))
  await recordSignOfLife(db, here.id, worker('vm 7 1 ns'))
  const [row] = await readHosts(db)
  t.match(row?.processes, [{ name: 'worker', pid: 7, leases: 1 }])
  t.ok(Number(row?.silent_seconds) < 5)
  t.equal(row && hostState(row), 'alive')
  t.equal(await isProcessAlive(db, here.id, 'worker'), true)
  await forgetProcess(db, here.id, { name: 'worker', pid: 7 })
  t.equal(await isProcessAlive(db, here.id, 'worker'), false)
  await t.rejects(recordSignOfLife(db, randomUUID(), worker('w')), /was removed/)
  await db('load_balancer').where({ id }).delete()
})

t.test('a worker claims what is bound to its host, to none, or to one that is gone', async t => {
  const [free, ours, theirs] = [await due(), await due({ host_id: here.id }), await due({ host_id: there.id })]
  const busy = { ...worker('elsewhere'), pid: 9 }
  await recordSignOfLife(db, there.id, busy)
  t.same(idsOf(await claimsOf(here.id)), [free, ours].sort())
  await release()
  t.same(idsOf(await claimsOf(null)), [free], 'without machines of its own, it takes what is bound to none')
  await release()
  await db('load_balancer').whereIn('id', [free, ours]).delete()
  t.equal(await secondsUntilDue(db, here.id), null, 'what others do wakes nobody here')
  await forgetProcess(db, there.id, busy)
  t.same(idsOf(await claimsOf(here.id)), [theirs], 'no worker runs there, and there is no machine yet')
  await release()
  await db('load_balancer').where({ id: theirs }).update({ applied_generation: 1, generation: 2 })
  t.same(await claimsOf(here.id), [])
  await db('controller_host').where({ id: there.id }).update({ last_seen_at: null })
  t.ok(await declareGone(db, there.id, null))
  t.same(idsOf(await claimsOf(here.id)), [theirs])
  await release()
  t.same(await claimsOf(there.id), [], 'the host itself must tidy up first')
  await db('controller_host').update({ gone_at: null })
  await db('load_balancer').delete()
})

t.test('a load balancer belongs to the host that makes its first amphora', async t => {
  const id = await due()
  const [claim] = await claimsOf(here.id)
  if (claim === undefined) throw new Error('Nothing was claimed.')
  const readyOn = (host_id: string) => ({
    ...{ id: randomUUID(), status: 'READY', compute_driver: 'namespace', compute_flavor: 'namespace', host_id },
  })
  const allocate = () =>
    allocateAmphora(
      {
        database: db,
        placement: placementRules(configurationSchema.parse({}).compute),
        images: () => new Map(),
        hostId: here.id,
      },
      claim,
      { id, projectId: randomUUID(), appliedGeneration: 1 },
      'STANDALONE',
    )
  const elsewhere = readyOn(there.id)
  await db('amphora').insert(elsewhere)
  await allocate()
  t.match(await db('amphora').where({ id: elsewhere.id }).first(), { load_balancer_id: null }, 'not for it')
  t.match(await db('load_balancer').where({ id }).first(), { host_id: here.id })
  t.match(await db('amphora').where({ load_balancer_id: id }).first(), { host_id: here.id })
  await db('amphora').where({ load_balancer_id: id }).delete()
  const warm = readyOn(here.id)
  await db('amphora').insert(warm)
  await allocate()
  t.match(await db('amphora').where({ id: warm.id }).first(), { load_balancer_id: id })
  await db('amphora').delete()
  await db('load_balancer').delete()
})

t.test(
  'what a gone host had is fenced off, to be replaced, and forgotten; a newer sign of life prevents it',
  async t => {
    const lb = await due({ host_id: there.id, applied_generation: 1 })
    const [serving, warm] = [randomUUID(), randomUUID()]
    await db('amphora').insert({ id: serving, status: 'ALLOCATED', host_id: there.id, load_balancer_id: lb })
    await db('amphora').insert({ id: warm, status: 'READY', host_id: there.id, load_balancer_id: null })
    await db('load_balancer').update({ recheck_at: db.fn.now() })
    const [held] = await claimsOf(there.id)
    if (held === undefined) throw new Error('Nothing was claimed.')
    await recordSignOfLife(db, there.id, worker('w'))
    const [seen] = (await sightOthers(db, here.id)).filter(({ id }) => id === there.id)
    t.equal(await declareGone(db, there.id, null), false)
    t.equal(await declareGone(db, there.id, seen?.sign ?? null), true)
    t.equal(await declareGone(db, there.id, seen?.sign ?? null), false, 'only one host declares it')
    t.equal(await renewClaim(db, held), false)
    t.match(await db('amphora').where({ id: serving }).first(), { replace_generation: 1 })
    t.equal(await db('amphora').where({ id: warm }).first(), undefined)
    t.same(idsOf(await claimsOf(third.id)), [lb])

    const lostMachine = randomUUID()
    const machines = computeWith([serving, lostMachine])
    const returning = { database: db, compute: machines.compute, hostId: there.id, log }
    machines.breakLists(true)
    await t.rejects(returnHost(returning), /the socket is busy/)
    t.not(await goneSince(db, there.id), null, 'it may have lost what it cannot list')
    machines.breakLists(false)
    t.equal(await returnHost(returning), 1)
    t.same(machines.deleted, [lostMachine], 'it keeps the machine that nobody has replaced yet')
    t.not(await goneSince(db, there.id), null, 'another host is about to replace it')
    await release()
    t.equal(await returnHost(returning), 0)
    t.equal(await goneSince(db, there.id), null)
    t.equal(await returnHost(returning), 0)
    await db('amphora').update({ host_id: third.id })
    t.same(await lostOf(db, there.id, [serving]), [serving], 'a machine whose amphora is elsewhere now is lost')
    await db('amphora').delete()
    await db('load_balancer').delete()
  },
)

t.test('a host that comes back while its load balancers move keeps none of their machines', async t => {
  await db('controller_host').where({ id: there.id }).update({ gone_at: db.fn.now() })
  const [moving, staying] = [
    await due({ host_id: third.id, applied_generation: 1 }),
    await due({ host_id: there.id, applied_generation: 1 }),
  ]
  const [left, kept, warm, enrolled] = [randomUUID(), randomUUID(), randomUUID(), randomUUID()]
  await db('amphora').insert([
    { id: left, status: 'ALLOCATED', host_id: there.id, load_balancer_id: moving },
    { id: kept, status: 'ALLOCATED', host_id: there.id, load_balancer_id: staying },
    { id: warm, status: 'READY', host_id: there.id, load_balancer_id: null },
    { id: enrolled, status: 'ALLOCATED', host_id: null, load_balancer_id: moving },
  ])
  const { compute, deleted } = computeWith([left, kept, warm, enrolled])
  // While it deletes the one, another host takes over the other.
  const slow = {
    ...compute,
    delete: async (id: string) => {
      await db('load_balancer').where({ id: staying, host_id: there.id }).update({ host_id: third.id })
      await compute.delete(id)
    },
  }
  const returning = { database: db, compute: slow, hostId: there.id, log }
  t.equal(await returnHost(returning), 1)
  t.same(deleted, [left], 'its successor does not serve yet')
  t.not(await goneSince(db, there.id), null)
  t.equal(await returnHost(returning), 1)
  t.same(deleted, [left, kept])
  t.equal(await goneSince(db, there.id), null)
  await db('amphora').delete()
  await db('load_balancer').delete()
})

t.test('a silent host whose amphorae never served is declared gone, after half a minute of looking', async t => {
  await recordSignOfLife(db, third.id, worker('w'))
  const [booting, warm, serving] = [randomUUID(), randomUUID(), randomUUID()]
  const lb = await due({ host_id: third.id })
  await db('amphora').insert([
    { id: booting, status: 'BOOTING', host_id: third.id, load_balancer_id: lb },
    { id: warm, status: 'READY', host_id: third.id, load_balancer_id: null },
    { id: serving, status: 'ALLOCATED', host_id: third.id, load_balancer_id: lb },
  ])
  const beat = {
    boot_id: 'b',
    last_seq: 1,
    sent_ms: 1,
    generation: 1,
    config_hash: '',
    needs_apply: false,
    vrrp_master: false,
    haproxy_running: true,
  }
  for (const amphora_id of [warm, serving]) await db('amphora_health').insert({ amphora_id, ...beat })
  const amphoraeOf = async (id: string) => (await sightOthers(db, here.id)).find(host => host.id === id)?.amphorae
  t.equal(await amphoraeOf(third.id), 1, 'one that has been heard may serve')
  await db('amphora').delete().where({ id: serving })
  t.equal(await amphoraeOf(third.id), 0)
  await db('load_balancer').where({ id: lb }).update({ applied_generation: 1, vip_subnet_id: randomUUID() })
  const asked: string[] = []
  let answer: Answer | 'fails' = 'answers'
  const lookAround = async (_subnet: string, addresses: readonly string[]) => {
    asked.push(...addresses)
    if (answer === 'fails') throw new Error('The subnet has no address left.')
    const said = answer
    return new Map(addresses.map(address => [address, said]))
  }
  let now = 0
  const lookAtVips = createVipLook({ database: db, lookAround, log }, () => now)
  const watching = { database: db, hostId: here.id, lookAtVips, log }
  let watch = await watchHosts(watching, null, 0)
  for (let second = 2; second < 30; second += 2) watch = await watchHosts(watching, watch, second * 1000)
  t.equal(await goneSince(db, third.id), null)
  t.same(asked, [], 'the VIPs are left alone until then')
  for (now = 30_000; now < 40_000; now += 2_000) watch = await watchHosts(watching, watch, now)
  t.same(asked, ['203.0.113.10'], 'a VIP that answers is not asked again at once')
  t.equal(await goneSince(db, third.id), null, 'what serves is not gone')
  for (const unsure of ['unknown', 'fails'] as const) {
    answer = unsure
    asked.length = 0
    for (const end = now + 20_000; now < end; now += 2_000) watch = await watchHosts(watching, watch, now)
    t.equal(asked.length, 1)
    t.equal(await goneSince(db, third.id), null, `${unsure}: they may serve`)
  }
  const absent = createVipLook({ database: db, lookAround: async () => null, log })
  t.equal(await absent(third.id), 'silent', 'a host that is not on the networks sees nothing')
  answer = 'silent'
  for (const end = now + 20_000; now < end; now += 2_000) watch = await watchHosts(watching, watch, now)
  t.equal(asked.length, 2)
  t.not(await goneSince(db, third.id), null)
  t.match(await db('amphora').where({ id: booting }).first(), { replace_generation: 1 })
  t.equal(await db('amphora').where({ id: warm }).first(), undefined)
  await db('amphora').delete()
  await db('load_balancer').delete()
})

t.test('amphorae that had been silent before their host are no evidence', async t => {
  await db('controller_host').update({ gone_at: null })
  const heardOn = async (id: string) => (await sightOthers(db, here.id)).find(host => host.id === id)?.heard
  const heardBefore = (seconds: number) =>
    db('controller_host')
      .where({ id: there.id })
      .update({
        last_seen_at: db.raw(`now() - interval '1 hour'`),
        amphorae_heard_at: db.raw(`now() - interval '1 hour' - ? * interval '1 second'`, [seconds]),
      })
  await heardBefore(5)
  t.not(await heardOn(there.id), null)
  await heardBefore(-600)
  t.not(await heardOn(there.id), null, 'they were heard for longer')
  await heardBefore(60)
  t.equal(await heardOn(there.id), null)
})

t.test('a removed host that was only cut off removes what it has lost, and works no more', async t => {
  const cut = hostOf('cut')
  await registerHost(db, cut, true)
  await recordSignOfLife(db, cut.id, worker('w'))
  const [sign] = (await sightOthers(db, here.id)).filter(({ id }) => id === cut.id)
  const lb = await due({ host_id: cut.id, applied_generation: 1 })
  t.equal(await markRemoved(db, cut.id), false, 'it is not gone')
  t.match(await db('controller_host').where({ id: cut.id }).first(), { removed_at: null })
  t.ok(await declareGone(db, cut.id, sign?.sign ?? null))
  t.ok(await markRemoved(db, cut.id))
  await forgetRemovedHosts(db)
  t.ok(
    (await readHosts(db)).some(({ id }) => id === cut.id),
    'it is shown while it has load balancers',
  )
  await db('load_balancer').where({ id: lb }).delete()
  t.notOk((await readHosts(db)).some(({ id }) => id === cut.id))
  t.not(await reserveHost(db, { name: 'cut', address: '192.0.2.9' }), cut.id, 'its name is free')

  const { compute, deleted } = computeWith([randomUUID(), randomUUID(), randomUUID(), randomUUID()])
  t.equal(await returnHost({ database: db, compute, hostId: cut.id, log }), 4)
  t.equal(deleted.length, 4, 'however many these are')
  t.not(await goneSince(db, cut.id), null, 'its workers claim nothing')
  await t.rejects(recordSignOfLife(db, cut.id, worker('w')), /was removed/)
  await t.rejects(registerHost(db, cut, false), /does not know/)
  await db('controller_host')
    .where({ id: cut.id })
    .update({ removed_at: db.raw(`now() - interval '91 days'`) })
  await forgetRemovedHosts(db)
  t.equal(await db('controller_host').where({ id: cut.id }).first(), undefined, 'after a while it is forgotten')
  await db('controller_host').where({ name: 'cut' }).delete()
})

t.test('an operator removes a host that is gone, but neither one that lives nor the own one', async t => {
  const [former, lost] = [hostOf('lost'), hostOf('lost')]
  const remove = (name: string, isOff = false) => removeHost(db, { name, isOff, self: here.id })
  const silence = () => db('controller_host').update({ last_seen_at: db.raw(`now() - interval '1 minute'`) })
  const seen = async (id: string) => (await readHosts(db)).find(host => host.id === id)
  await registerHost(db, former, true)
  await silence()
  const lb = await due({ host_id: former.id, applied_generation: 1 })
  await t.rejects(remove('lost'), { message: /has 1 load balancers.* remove --gone lost/ })
  t.match(await remove('lost', true), /is being removed/)
  t.match(await remove('lost', true), /is being removed/, 'again')

  await registerHost(db, lost, true)
  await recordSignOfLife(db, lost.id, worker('w'))
  await t.rejects(remove('lost', true), { message: /are running/ }, 'the one that has the name now')
  await silence()
  const sign = (await seen(lost.id))?.sign ?? null
  await recordSignOfLife(db, lost.id, worker('w'))
  t.equal(await declareGone(db, lost.id, sign), false, 'it lives, whatever the list said')
  await silence()
  t.equal(await remove('lost'), 'Removed lost.')
  t.ok(await seen(former.id))
  t.notOk(await seen(lost.id))

  await silence()
  for (const isOff of [false, true]) await t.rejects(remove('here', isOff), { message: /is this host.* down --all/ })
  t.match(await seen(here.id), { gone_at: null, removed_at: null })
  await db('load_balancer').where({ id: lb }).delete()
  await db('controller_host').where({ name: 'lost' }).delete()
})

t.test('routers on networks that span hosts are on one host, until it is gone', async t => {
  await db('controller_host').update({ gone_at: null })
  const ask = () => Promise.all([here, there].map(({ id }) => hasSpanningRouters(db, id)))
  t.same(await ask(), [true, false])
  await forgetProcess(db, here.id, { name: 'worker', pid: 7 })
  t.same(await ask(), [true, false], 'that its processes end is no reason')
  await db('controller_host').where({ id: here.id }).update({ gone_at: db.fn.now() })
  t.same(await ask(), [false, true])
  await db('controller_host').where({ id: here.id }).update({ gone_at: null })
  t.same(await ask(), [false, true], 'one that comes back does not take them away')
})

t.test('the first start of this version adopts the machines that it finds', async t => {
  const lb = await due()
  const [found, warm, elsewhere] = [randomUUID(), randomUUID(), randomUUID()]
  await db('amphora').insert({ id: found, status: 'ALLOCATED', load_balancer_id: lb })
  await db('amphora').insert({ id: warm, status: 'READY' })
  await db('amphora').insert({ id: elsewhere, status: 'ALLOCATED', load_balancer_id: lb, host_id: there.id })
  const enrolled = randomUUID()
  await db('amphora').insert({ id: enrolled, status: 'READY', compute_driver: 'enrolled' })
  await adoptMachines(db, here.id, { amphoraIds: [found, elsewhere], unbound: ['enrolled'] })
  t.match(await db('amphora').where({ id: enrolled }).first(), { host_id: null }, 'not what is bound to no host')
  const hosts = await db('amphora').whereIn('id', [found, warm, elsewhere]).pluck('host_id')
  t.same(hosts.sort(), [here.id, here.id, there.id].sort())
  t.match(await db('load_balancer').where({ id: lb }).first(), { host_id: here.id })
})
