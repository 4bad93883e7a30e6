import t from 'tap'
import { networksConcerned, surroundingOf } from '../../../controller/provider/ovn/surroundings.js'
import { listenForWakeUps } from '../../../controller/queue/wake-up.js'
import { createTestDatabase } from '../../support/database/database.js'
import { recordLog } from '../../support/recorded-log.js'
import { networkRows, type SubnetRow } from '../../support/worlds/network-rows.js'

t.test('what changes around load balancers', async t => {
  const testDatabase = await createTestDatabase()
  t.teardown(() => testDatabase.drop())
  const database = testDatabase.of('network')
  const rows = networkRows(database)
  const network = async (cidr: string, columns: object = {}): Promise<SubnetRow> =>
    rows.subnet(await rows.network(columns), cidr, null)
  let heard = new Set<string>()
  let told = (): void => undefined
  const wakeUps = await listenForWakeUps({
    ...{ databaseUrl: testDatabase.urlOf('network'), channel: 'krater_surroundings', log: recordLog().log },
    onWake: payload => {
      if (payload !== null) heard.add(payload)
      told()
    },
  })
  t.teardown(() => wakeUps.stop())
  /** What the channel says of an operation. A last word of our own has arrived after it. */
  const toldBy = async (act: () => Promise<unknown>): Promise<Set<string>> => {
    await act()
    const end = new Promise<void>(resolve => {
      told = () => heard.has('end') && resolve()
    })
    await database.raw(`SELECT pg_notify('krater_surroundings', 'end')`)
    await end
    const said = heard
    heard = new Set()
    said.delete('end')
    return said
  }
  const networks = (...subnets: SubnetRow[]) => subnets.map(({ networkId }) => `network ${networkId}`)
  const [home, near] = [await network('10.1.0.0/24'), await network('10.2.0.0/24')]
  const router = await rows.router()

  await t.test('is told: legs of routers, their state, floating IPs, addresses, subnets', async t => {
    await toldBy(() => rows.leg(router, [[home, '10.1.0.1']]))
    let leg = ''
    t.same(
      await toldBy(async () => {
        leg = (await rows.leg(router, [[near, '10.2.0.1']])).id
      }),
      new Set([...networks(home, near), 'address 10.2.0.1']),
    )
    const setState = (admin_state_up: boolean) => database('router').where({ id: router }).update({ admin_state_up })
    t.same(await toldBy(() => setState(false)), new Set(networks(home, near)))
    t.same(await toldBy(() => setState(false)), new Set(), 'once')
    t.same(
      await toldBy(() => rows.removeLeg(leg)),
      new Set([...networks(home, near), 'address 10.2.0.1']),
      'also of the network that leaves',
    )
    const outside = await network('203.0.113.0/24')
    const machine = await rows.port([[home, '10.1.0.7']])
    await toldBy(() => rows.leg(router, [[outside, '203.0.113.1']], true))
    const setNetwork = (admin_state_up: boolean) =>
      database('network').where({ id: outside.networkId }).update({ admin_state_up })
    t.same(await toldBy(() => setNetwork(false)), new Set(networks(outside, home)), 'what is behind a gateway')
    t.same(await toldBy(() => setNetwork(true)), new Set(networks(outside, home)))
    const floating = await rows.floatingIp(outside, '203.0.113.9')
    await toldBy(async () => undefined)
    const place = { router, subnet: home, address: '10.1.0.7' }
    t.same(await toldBy(() => rows.associate(floating, place)), new Set(networks(home)))
    t.same(await toldBy(() => rows.associate(floating, null)), new Set(networks(home)))
    t.same(await toldBy(() => database('port').where({ id: machine.id }).delete()), new Set(['address 10.1.0.7']))
    t.same(await toldBy(() => database('network').where({ id: near.networkId }).update({ name: 'other' })), new Set())
  })

  await t.test('concerns the networks of the project around it, and nobody else on a shared network', async t => {
    const [one, two, three] = [await network('10.3.0.0/24'), await network('10.4.0.0/24'), await network('10.5.0.0/24')]
    const shared = await network('10.6.0.0/24', { project_id: 'admin', shared: true })
    const guest = await network('10.7.0.0/24', { project_id: 'guest' })
    const join = async (...places: [SubnetRow, string][]) => {
      const made = await rows.router()
      for (const place of places) await rows.leg(made, [place])
    }
    await join([one, '10.3.0.1'], [two, '10.4.0.1'])
    await join([two, '10.4.0.2'], [three, '10.5.0.2'], [shared, '10.6.0.2'])
    await join([shared, '10.6.0.3'], [guest, '10.7.0.3'])
    const concerned = async (...changed: SubnetRow[]) =>
      new Set(
        await networksConcerned(
          database,
          changed.map(({ networkId }) => networkId),
        ),
      )
    const ids = (...subnets: SubnetRow[]) => new Set(subnets.map(({ networkId }) => networkId))
    t.same(await concerned(one), ids(one, two, three, shared))
    t.same(await concerned(guest), ids(guest, shared))
    t.same(await concerned(shared), ids(shared))
    t.same(await concerned(guest, shared), ids(guest, shared), 'as when a guest joins it')
  })

  await t.test('is anything, when the words are lost or unknown', t => {
    for (const payload of [null, '', 'network', 'network x', 'address', 'something else'])
      t.equal(surroundingOf(payload), null, String(payload))
    t.same(surroundingOf('address fd00::1'), { kind: 'address', address: 'fd00::1' })
    t.end()
  })
})
