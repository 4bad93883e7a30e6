import t from 'tap'
import { dueLoadBalancers } from '../../../controller/bindings/barbican-keeper.js'
import { createBindings, type Keeper, KeyManagerAway } from '../../../controller/bindings/bindings.js'
import { storeFound } from '../../../controller/bindings/store.js'
import { readTree } from '../../../controller/load-balancer/tree/read-tree.js'
import { createLog } from '../../../controller/log/log.js'
import { createTestDatabase } from '../../support/database/database.js'
import { insertChildren, insertLoadBalancer } from '../../support/database/load-balancer-rows.js'

/** When the key manager is told of what load balancers use, though it may be away or a worker may die. */

const testDatabase = await createTestDatabase()
t.teardown(testDatabase.drop)
const database = testDatabase.of('load_balancer')
const OTHER_REF = 'http://key-manager.test/v1/secrets/1c9d7ad9-2e4c-4a7f-9f5f-1b3f6a4f8f10'
const REF = 'http://key-manager.test/v1/secrets/0c9d7ad9-2e4c-4a7f-9f5f-1b3f6a4f8f10'

/** A key manager that can be away, and what it was told last. */
const keyManager = { isAway: false, told: new Map<string, readonly string[]>(), due: [] as string[] }
const answer = async <T>(act: () => T): Promise<T> => {
  if (keyManager.isAway) throw new KeyManagerAway('it is away')
  return act()
}
const keeper: Keeper = {
  knowsAmphorae: true,
  bind: (tree, references) =>
    answer(() => {
      keyManager.told.set(
        tree.id,
        references.map(({ ref }) => ref),
      )
      return references.map(({ ref, kind }) => ({ ref, kind, digest: 'a'.repeat(64) }))
    }),
  lend: async () => null,
  release: id => answer(() => void keyManager.told.delete(id)),
  due: () => answer(() => keyManager.due),
}
const bindings = createBindings({ keeper, database, log: createLog('test', 'silent') })

/** A load balancer whose listener with a certificate was removed, before the worker looks at it. */
async function removedListener(): Promise<string> {
  const id = await insertLoadBalancer(database)
  await storeFound(database, id, [{ ref: REF, kind: 'certificate', digest: 'a'.repeat(64) }], 'before')
  keyManager.told.set(id, [REF])
  return id
}

/** What a worker does, apart from the deployment between the two. */
async function converge(id: string): Promise<void> {
  const tree = await readTree(database, id)
  if (tree === null) throw new Error('it exists')
  const { binding } = await bindings.bind(tree, [])
  await bindings.settle({ ...tree, ...binding }, [])
}
const rowOf = (id: string) => database('load_balancer').where({ id }).first()

t.test('what is not served any more is released, also if the key manager is away at that moment', async t => {
  const id = await removedListener()
  keyManager.isAway = true
  await converge(id)
  t.same(keyManager.told.get(id), [REF])
  await t.rejects(bindings.tend(), /it is away/)
  t.equal((await rowOf(id)).recheck_at, null, 'while it is away, nobody tries')

  keyManager.isAway = false
  t.equal(await bindings.tend(), 1)
  t.not((await rowOf(id)).recheck_at, null, 'the load balancer is due')
  t.equal(await bindings.tend(), 0, 'once')
  await converge(id)
  t.same(keyManager.told.get(id), [])
  await database('load_balancer').where({ id }).update({ recheck_at: null })
  t.equal(await bindings.tend(), 0)
})

t.test('a worker that dies between telling the key manager and noting that leaves it to the next one', async t => {
  const id = await removedListener()
  const dying = createBindings({
    keeper: {
      ...keeper,
      bind: async (...told) => Promise.reject(new Error(`dead after ${await keeper.bind(...told)}`)),
    },
    ...{ database, log: createLog('test', 'silent') },
  })
  const tree = await readTree(database, id)
  if (tree === null) throw new Error('it exists')
  await t.rejects(dying.settle(tree, []), /dead/)
  await converge(id)
  t.same(keyManager.told.get(id), [])
  t.same((await readTree(database, id))?.material, [])
})

t.test('the key manager may ask again and again: only news ends the pause between attempts', async t => {
  const id = await insertLoadBalancer(database)
  const far = new Date(Date.now() + 3_600_000)
  const pauseLeft = async () => (await rowOf(id)).retry_at > new Date()
  keyManager.due = [id]
  t.teardown(() => {
    keyManager.due = []
  })
  await database('load_balancer').where({ id }).update({ bound_sha256: 'told', retry_at: far })
  await bindings.tend()
  t.notOk(await pauseLeft(), 'a renewed certificate is deployed at once')
  await database('load_balancer').where({ id }).update({ recheck_at: null, retry_at: far })
  t.equal(await bindings.tend(), 1)
  t.ok(await pauseLeft(), 'an attempt in vain is repeated after its pause')
})

t.test('a key manager that is back ends a long pause before a recheck, and lets a short one end by itself', async t => {
  const id = await insertLoadBalancer(database)
  const paused = async (attempts: number, left: string) => {
    const pause = { recheck_at: database.raw(`now() + interval '${left}'`), attempts }
    await database('load_balancer')
      .where({ id })
      .update({ bound_sha256: 'due', ...pause })
    await bindings.tend()
    return (await rowOf(id)).recheck_at > new Date()
  }
  t.ok(await paused(9, '255 seconds'), 'the attempt of a second ago is not repeated')
  t.ok(await paused(3, '4 seconds'))
  t.ok(await paused(0, '20 seconds'), 'a recheck that is due in a moment is not made earlier')
  t.notOk(await paused(0, '200 seconds'))
  t.notOk(await paused(9, '200 seconds'), 'that of a minute ago is')
  keyManager.due = [id]
  t.teardown(() => {
    keyManager.due = []
  })
  t.ok(await paused(9, '255 seconds'), 'also if the key manager asks for it again')
  await database('load_balancer').where({ id }).update({ bound_sha256: 'told' })
  await bindings.tend()
  t.notOk((await rowOf(id)).recheck_at > new Date(), 'but news ends any pause')
})

t.test('Barbican is asked again about a reference that could not be used, however long the fault lasts', async t => {
  const id = await insertLoadBalancer(database)
  await storeFound(database, id, [{ ref: REF, kind: 'certificate', reason: 'it may not be read' }], 'told')
  const dueAfter = async (changes: object) => {
    await database('load_balancer').where({ id }).update(changes)
    return (await dueLoadBalancers(database)).includes(id)
  }
  const later = database.raw(`now() + interval '4 minutes'`)
  t.notOk(await dueAfter({ recheck_at: later }), 'it was looked up a moment ago')
  await database('tls_material')
    .where({ load_balancer_id: id })
    .update({ checked_at: database.raw(`now() - interval '16 minutes'`) })
  t.ok(await dueAfter({ recheck_at: later }))
  t.notOk(await dueAfter({ lease_until: later }), 'a worker is at it')
  t.notOk(await dueAfter({ lease_until: null, recheck_at: database.raw('now()') }), 'a worker soon will be')
})

/** A load balancer with a listener that uses these certificates. */
async function site(refs: readonly string[]) {
  const id = await insertLoadBalancer(database)
  const { listenerId } = await insertChildren(database, id, 1)
  const use = ([first, ...others]: readonly string[]) =>
    database('listener')
      .where({ id: listenerId })
      .update({ default_tls_container_ref: first ?? null, sni_container_refs: others })
  await use(refs)
  return { id, use }
}
/** Dies, or fails, after the key manager has heard of a change. */
const interrupted = (error: Error) =>
  createBindings({
    keeper: {
      ...keeper,
      bind: async (...told) => {
        await keeper.bind(...told)
        throw error
      },
    },
    ...{ database, log: createLog('test', 'silent') },
  })
const treeOf = async (id: string) => {
  const tree = await readTree(database, id)
  if (tree === null) throw new Error('it exists')
  return tree
}

t.test('a reference of which only the key manager has heard is released, though it is gone by then', async t => {
  for (const error of [new Error('dead'), new KeyManagerAway('it did not take the second one')]) {
    const { id, use } = await site([REF])
    await converge(id)
    await use([REF, OTHER_REF])
    const result = interrupted(error).bind(await treeOf(id), [])
    if (error instanceof KeyManagerAway) await result
    else await t.rejects(result, /dead/)
    t.same(keyManager.told.get(id), [REF, OTHER_REF])
    await use([REF])
    await converge(id)
    t.same(keyManager.told.get(id), [REF], error.message)
    t.same(
      (await treeOf(id)).material.map(({ ref }) => ref),
      [REF],
    )
  }
})

t.test('so is a new load balancer of which only the key manager has heard', async t => {
  const { id, use } = await site([REF])
  await t.rejects(interrupted(new Error('dead')).bind(await treeOf(id), []), /dead/)
  await use([])
  await bindings.release({ ...(await treeOf(id)), change: 'delete' })
  t.notOk(keyManager.told.has(id))
})

t.test('a load balancer that a worker is just binding does not become due', async t => {
  const { id } = await site([REF])
  await interrupted(new KeyManagerAway('it is away')).bind(await treeOf(id), [])
  const lease = (lease_until: Date | null) => database('load_balancer').where({ id }).update({ lease_until })
  await lease(new Date(Date.now() + 60_000))
  await bindings.tend()
  t.equal((await rowOf(id)).recheck_at, null)
  await lease(null)
  await bindings.tend()
  t.not((await rowOf(id)).recheck_at, null)
})
