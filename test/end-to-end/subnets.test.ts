import t from 'tap'
import { balancersOf } from '../support/faults/crash-balancer.js'
import { createDualSites, createSites, type Site } from '../support/services/web-servers.js'
import { startKrater, until } from '../support/worlds/krater.js'

/** Longer than a change takes on a busy machine, and shorter than members may take to leave. */
const SLOW_MS = 15_000

const krater = await startKrater(t, { KRATER_LOG_LEVEL: 'debug' })
const { one, two } = await createSites(t, krater, ['one', 'two'])
const { four, six } = await createDualSites(t, krater)
const [api, admin] = await Promise.all([krater.api(), krater.api('krater-admin')])
const { subnets } = (await api.request('network', 'GET', '/v2.0/subnets?name=public-subnet')) as {
  subnets: { id: string }[]
}
const balancers = balancersOf(api, subnets[0]!.id)

/** Whether the amphora has an address on a site's subnet. */
async function reaches({ networkId, subnetId }: Site): Promise<boolean> {
  const { ports } = (await admin.request('network', 'GET', `/v2.0/ports?network_id=${networkId}`)) as {
    ports: { name: string; fixed_ips: { subnet_id: string }[] }[]
  }
  const own = ports.filter(({ name }) => name.startsWith('octavia-lb-member-'))
  return own.some(port => port.fixed_ips.some(({ subnet_id }) => subnet_id === subnetId))
}

/** Requests whose headers have arrived and whose bodies follow SLOW_MS later. */
async function begin(url: string) {
  const begun = await Promise.all(Array.from({ length: 6 }, () => fetch(`${url}begun/${SLOW_MS}`)))
  let ended = 0
  const bodies = Promise.all(begun.map(response => response.text().finally(() => (ended += 1))))
  return { bodies, ended: () => ended }
}

await t.test('members leave with their subnet: requests in progress finish, then the interface is removed', async t => {
  const balancer = await balancers.create('subnets', [one, two])
  await balancers.untilServing(balancer, [one, two])

  const { bodies, ended } = await begin(balancer.url)
  await balancers.setMembers(balancer, [two])
  const took = await balancers.untilServing(balancer, [two])
  t.equal(ended(), 0, `new requests reach the remaining member after ${Math.round(took)} ms, before the slow ones end`)
  t.ok(await reaches(one), 'the interface stays until they end')
  t.same((await bodies).sort(), ['one', 'one', 'one', 'two', 'two', 'two'])
  await until('the interface is removed', async () => !(await reaches(one)))
  t.ok(await reaches(two))

  await balancers.remove(balancer)
  await balancers.untilGone(balancer)
})

await t.test('members move to another subnet of the network: requests in progress continue', async t => {
  const balancer = await balancers.create('dual', [four])
  await balancers.untilServing(balancer, [four])

  const { bodies, ended } = await begin(balancer.url)
  await balancers.setMembers(balancer, [four, six])
  const took = await balancers.untilServing(balancer, [four, six])
  t.equal(ended(), 0, `both members serve after ${Math.round(took)} ms`)
  t.same(await bodies, Array(6).fill('four'))

  const later = await begin(balancer.url)
  await balancers.setMembers(balancer, [six])
  await balancers.untilServing(balancer, [six])
  t.equal(later.ended(), 0)
  t.same((await later.bodies).sort(), ['four', 'four', 'four', 'six', 'six', 'six'])
  await until('the address on the first subnet is removed', async () => !(await reaches(four)))
  t.ok(await reaches(six))
  await balancers.untilServing(balancer, [six])

  await balancers.remove(balancer)
  await balancers.untilGone(balancer)
})
