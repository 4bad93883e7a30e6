import { randomUUID } from 'node:crypto'
import t from 'tap'
import { createLender } from '../../../controller/bindings/lender.js'
import type { Credentials } from '../../../controller/certificates/barbican/credentials.js'

/** Credentials of load balancers, lent by workers that do not know of each other. */

const REF = `http://keys.test/v1/secrets/${randomUUID()}`
const OTHER = `http://keys.test/v1/secrets/${randomUUID()}`
const service = { url: 'http://keys.test', ca: null, insecure: false }
const services = { gateway: { host: '127.0.0.1', port: 1 }, identity: service, keyManager: service }

/** Keystone, and workers that lend from it. */
function scene() {
  const standing = new Map<string, { owner: string; paths: readonly string[] }>()
  const keystone = { endsFail: false }
  const credentials: Credentials = {
    create: async (owner, paths) => {
      const id = randomUUID()
      standing.set(id, { owner, paths })
      return { id, secret: 'secret', rules: [] }
    },
    end: async ({ id }) => {
      if (keystone.endsFail) throw new Error('Keystone is away')
      standing.delete(id)
    },
    list: async owner =>
      [...standing]
        .filter(([, one]) => owner === undefined || one.owner === owner)
        .map(([id]) => ({ id, rules: [], isExpired: false })),
  }
  const worker = () => createLender({ credentials, parts: async () => [], services })
  return { standing, keystone, worker }
}

t.test('what another worker has ended is not lent again', async t => {
  const { standing, worker } = scene()
  const [one, two] = [worker(), worker()]
  const first = await one.lend('lb', [REF])
  t.equal((await one.lend('lb', [REF])).id, first.id, 'it is lent as long as it stands')
  const second = await two.lend('lb', [REF])
  t.same([...standing.keys()], [second.id])
  const third = await one.lend('lb', [REF])
  t.not(third.id, first.id)
  t.same([...standing.keys()], [third.id])
})

t.test('one that could not be ended is ended the next time', async t => {
  const { standing, keystone, worker } = scene()
  const lender = worker()
  await lender.lend('lb', [REF, OTHER])
  keystone.endsFail = true
  await t.rejects(lender.lend('lb', [REF]))
  keystone.endsFail = false
  const { id } = await lender.lend('lb', [REF])
  t.same([...standing.keys()], [id])
  t.ok(standing.get(id)?.paths.every(path => !path.includes(OTHER.slice(-36))))
})

t.test('those of other load balancers stay', async t => {
  const { standing, worker } = scene()
  const lender = worker()
  await lender.lend('one', [REF])
  await lender.lend('two', [REF])
  await lender.end('one')
  t.same(
    [...standing.values()].map(({ owner }) => owner),
    ['two'],
  )
})
