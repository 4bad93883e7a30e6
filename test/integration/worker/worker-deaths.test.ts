import { spawnSync } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import t from 'tap'
import { connect } from '../../../controller/database/connection.js'
import { ClaimLost } from '../../../controller/provider/provider.js'
import { claimDue } from '../../../controller/queue/claim.js'
import { nameLeaseOwner, releaseDeadClaims } from '../../../controller/queue/lease-owner.js'
import { loadBalancerClaims } from '../../../controller/worker/due.js'
import {
  changeLoadBalancer,
  findLoadBalancer,
  insertLoadBalancer,
  notify,
} from '../../support/database/load-balancer-rows.js'
import { eventually } from '../../support/eventually.js'
import { startDatabaseProxy } from '../../support/faults/database-proxy.js'
import { createGate, createWorkerScene } from '../../support/worlds/worker-scene.js'

const { db, url, recorder, start, settledAt, stop } = await createWorkerScene()
t.teardown(stop)

// A dead worker holds this claim; it is not renewed.
const orphaned = await insertLoadBalancer(db)
const takenAt = performance.now()
await claimDue(db, { ...loadBalancerClaims('dead', 1, null), limit: 1 })

t.test('a worker that stops aborts its work and releases its claim at once', async t => {
  const stopping = await start('stopping')
  const id = await insertLoadBalancer(db)
  recorder.behave(
    id,
    ({ signal }) => new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(new ClaimLost()))),
  )
  await notify(db, id)
  await eventually('the attempt began', () => recorder.callsFor(id).length === 1)
  const asked = performance.now()
  await stopping.stop()
  t.ok(performance.now() - asked < 4_000)
  t.match(await findLoadBalancer(db, id), { lease_owner: null, fault: null, applied_generation: 0 })
  recorder.behave(id, () => Promise.resolve())
})

t.test('a worker finishes its work and listens again after a database outage', async t => {
  const proxy = await startDatabaseProxy(url)
  const own = connect({ url: proxy.url, applicationName: 'worker', poolSize: 4 })
  const persistent = await start('persistent', 1, own, proxy.url)
  t.teardown(async () => {
    await persistent.stop()
    await own.destroy()
    await proxy.stop()
  })
  const id = await insertLoadBalancer(db)
  const gate = createGate()
  recorder.behave(id, ({ tree }) => (tree.generation === 1 ? gate.pass() : Promise.resolve()))
  await notify(db, id)
  await gate.arrived
  await proxy.disconnect()
  gate.open()
  await new Promise(resolve => setTimeout(resolve, 600))
  t.match(await findLoadBalancer(db, id), { applied_generation: 0, lease_owner: 'persistent' })
  await proxy.reconnect()
  const row = await settledAt(id, 1)
  t.match(row, { fault: null, attempts: 0, fence: 1 }, 'the work is finished under the same claim')
  await changeLoadBalancer(db, id)
  await settledAt(id, 2)
  await eventually('it listens again', async () => {
    const asked = performance.now()
    const generation = await changeLoadBalancer(db, id)
    await settledAt(id, generation)
    return performance.now() - asked < 2_000
  })
})

t.test('a dead worker’s load balancer passes to another worker within ten seconds', async t => {
  const heir = await start('heir', 2)
  t.teardown(heir.stop)
  const row = await eventually(
    'the other worker takes over',
    async () => {
      const found = await findLoadBalancer(db, orphaned)
      return found?.applied_generation === 1 && found
    },
    Math.max(100, 10_000 - (performance.now() - takenAt)),
  )
  t.equal(row.fence, 2)
  t.equal(recorder.callsFor(orphaned).length, 1)
})

t.test('claims of a dead process on this machine are released at once', async t => {
  const [host, pid, startTicks, where, random] = nameLeaseOwner().split(' ')
  const gone = spawnSync('true').pid
  const [boot, namespace] = where!.split('/')
  const owners = {
    ended: [host, gone, startTicks, where, random],
    'its PID belongs to another process': [host, pid, Number(startTicks) - 1, where, random],
    lives: [host, pid, startTicks, where, random],
    elsewhere: [host, gone, startTicks, `${randomUUID()}/${namespace}`, random],
    'in another process namespace': [host, gone, startTicks, `${boot}/pid:[1]`, random],
    'of another form': ['dead'],
  }
  const ids = new Map<string, string>()
  for (const [name, owner] of Object.entries(owners)) {
    const lease_until = new Date(Date.now() + 60_000)
    ids.set(name, await insertLoadBalancer(db, { applied_generation: 1, lease_owner: owner.join(' '), lease_until }))
  }
  const freed = await releaseDeadClaims(db, 'load_balancer')
  t.same(freed.sort(), [ids.get('ended'), ids.get('its PID belongs to another process')].sort())
  for (const [name, id] of ids) {
    t.equal((await findLoadBalancer(db, id))?.lease_until === null, freed.includes(id), name)
  }
  t.same(await releaseDeadClaims(db, 'load_balancer'), [])
})
