import t from 'tap'
import { balancersOf } from '../support/faults/crash-balancer.js'
import { createSites, type Site } from '../support/services/web-servers.js'
import { startKrater, until } from '../support/worlds/krater.js'

const SLOW_MS = 4_000

const krater = await startKrater(t, { KRATER_LOG_LEVEL: 'debug' })
const { one, two } = await createSites(t, krater, ['one', 'two'])
const [api, admin] = await Promise.all([krater.api(), krater.api('krater-admin')])
const { subnets } = (await api.request('network', 'GET', '/v2.0/subnets?name=public-subnet')) as {
  subnets: { id: string }[]
}
const balancers = balancersOf(api, subnets[0]!.id)

/** Whether the amphora has an interface on the network of a site. */
async function reaches({ networkId }: Site): Promise<boolean> {
  const { ports } = (await admin.request('network', 'GET', `/v2.0/ports?network_id=${networkId}`)) as {
    ports: { name: string }[]
  }
  return ports.some(({ name }) => name.startsWith('octavia-lb-member-'))
}

await t.test('members leave with their subnet: requests under way end, then the interface goes', async t => {
  const balancer = await balancers.create('subnets', [one, two])
  await balancers.untilServing(balancer, [one, two], 60)

  const begun = await Promise.all(Array.from({ length: 6 }, () => fetch(`${balancer.url}begun/${SLOW_MS}`)))
  const bodies = begun.map(response => response.text())
  let ended = 0
  const count = () => (ended += 1)
  for (const body of bodies) void body.then(count, count)
  await balancers.setMembers(balancer, [two])
  const took = await balancers.untilServing(balancer, [two])
  t.equal(ended, 0, `new requests go to the one that stays after ${Math.round(took)} ms, before the slow ones end`)
  t.ok(await reaches(one), 'the interface stays as long as they last')
  t.same((await Promise.all(bodies)).sort(), ['one', 'one', 'one', 'two', 'two', 'two'])
  await until('the interface goes', async () => !(await reaches(one)), 40)
  t.ok(await reaches(two))

  await balancers.remove(balancer)
  await balancers.untilGone(balancer)
})
