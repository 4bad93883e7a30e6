import t, { type Test } from 'tap'
import { createLog } from '../../controller/log/log.js'
import { parseOvsdbAddresses } from '../../controller/ovsdb/address.js'
import { OvsdbClient } from '../../controller/ovsdb/client.js'
import { until } from '../support/worlds/krater.js'
import { startOvnKrater } from '../support/worlds/ovn-krater.js'
import { startStandingOvn } from '../support/worlds/standing-ovn/standing-ovn.js'

type Listed<K extends string> = Record<K, { id: string; name: string }[]>
type Created = { loadbalancer: { id: string; vip_address: string } }

const KILLS = Number(process.env['KRATER_TEST_KILLS'] ?? 20)
const SOUTHBOUND_KILLS = 4

t.test('clusters of OVN that lose their leaders under changes', async t => {
  const ovn = await startStandingOvn(t)
  const theirs = await ovn.foreignRows()
  const world = await startOvnKrater(t, {}, ovn)
  const { krater, lb, net, nb } = world
  const subnet = (await net<Listed<'subnets'>>('GET', '/subnets?name=private-subnet')).subnets[0]!.id
  const one = await world.settle('private', 'one')
  const two = await world.settle('private', 'two')
  const client = await world.settle('private', 'client')
  const members = [one, two].map(({ v4 }) => ({ address: v4, subnet_id: subnet, protocol_port: 8080 }))
  const create = async (name: string): Promise<string> => {
    const { loadbalancer } = await lb<Created>('POST', '/loadbalancers', {
      loadbalancer: {
        ...{ name, provider: 'ovn', vip_subnet_id: subnet },
        listeners: [
          {
            ...{ name, protocol: 'TCP', protocol_port: 8080 },
            default_pool: { name, protocol: 'TCP', lb_algorithm: 'SOURCE_IP_PORT', members },
          },
        ],
      },
    })
    return loadbalancer.id
  }
  const listed = async (): Promise<Map<string, string>> => {
    const { loadbalancers } = await lb<{ loadbalancers: { id: string; provisioning_status: string }[] }>(
      'GET',
      '/loadbalancers',
    )
    return new Map(loadbalancers.map(({ id, provisioning_status }) => [id, provisioning_status]))
  }
  let errors = 0
  const become = (id: string, status: string | undefined) =>
    until(`${id} is ${status ?? 'gone'}`, async () => {
      const now = (await listed()).get(id)
      if (now === 'ERROR') errors += 1
      return now === status
    })

  const lasting = await create('lasting')
  await become(lasting, 'ACTIVE')
  const { pools } = await lb<Listed<'pools'>>('GET', `/pools?loadbalancer_id=${lasting}`)
  const shown = await lb<{ members: { id: string; address: string }[] }>('GET', `/pools/${pools[0]!.id}/members`)
  const member = shown.members.find(({ address }) => address === two.v4)!.id
  const vip = (await lb<Created>('GET', `/loadbalancers/${lasting}`)).loadbalancer.vip_address
  const answering = async () =>
    new Set((await Promise.all(Array.from({ length: 16 }, () => client.ask(vip)))).map(text => text?.split(' ')[0]))
  let previous = await create('first')
  await become(previous, 'ACTIVE')

  const tables = { NB_Global: { nb_cfg: 'integer' } } as const
  const follower = new OvsdbClient({
    ...{ addresses: parseOvsdbAddresses(ovn.northbound.addresses)!, database: 'OVN_Northbound', tables },
    ...{ tls: ovn.tls, log: createLog('test', 'silent') },
  })
  t.teardown(() => follower.stop())
  await follower.ready(10_000)
  const lastChange = () => [...follower.rows('NB_Global').values()][0]?.nb_cfg ?? 0

  /** @returns milliseconds from the kill to the first change in the database, and to the end of the change */
  const changesWithout = async (
    t: Test,
    which: 'northbound' | 'southbound',
    turn: number,
  ): Promise<{ written: number; active: number }> => {
    const killed = await ovn[which].killLeader()
    const started = performance.now()
    const since = () => Math.round(performance.now() - started)
    const before = lastChange()
    const written = follower.until(() => lastChange() > before, 60_000).then(since)
    await lb('PUT', `/pools/${pools[0]!.id}/members/${member}`, { member: { weight: turn % 2 } })
    const next = await create(`turn-${which}-${turn}`)
    await lb('DELETE', `/loadbalancers/${previous}?cascade=true`)
    await become(lasting, 'ACTIVE')
    const times = { written: await written, active: since() }
    await Promise.all([become(next, 'ACTIVE'), become(previous, undefined)])
    previous = next
    t.same(await answering(), new Set(turn % 2 === 0 ? ['one'] : ['one', 'two']), `the change ${turn} is in effect`)
    await killed.start()
    return times
  }
  const report = (t: Test, what: string, times: readonly number[]) => {
    const sorted = [...times].sort((a, b) => a - b)
    t.comment(`${what}: p50 ${sorted[Math.floor(sorted.length / 2)]}, max ${sorted.at(-1)}: ${sorted.join(' ')}`)
  }

  for (const [which, kills] of [
    ['northbound', KILLS],
    ['southbound', SOUTHBOUND_KILLS],
  ] as const)
    await t.test(`apply every change when the ${which} leader is killed ${kills} times`, async t => {
      const times: { written: number; active: number }[] = []
      for (let turn = 0; turn < kills; turn++) times.push(await changesWithout(t, which, turn))
      report(
        t,
        'ms from the kill to the change in the database',
        times.map(({ written }) => written),
      )
      report(
        t,
        'ms from the kill to ACTIVE',
        times.map(({ active }) => active),
      )
      t.equal(errors, 0, 'nothing became ERROR')
    })

  await t.test('lose and double nothing', async t => {
    t.match(await krater.command('ovn', 'check'), { status: 0, stdout: /OVN has what the tables say/ })
    const names = (await nb('--bare', '--columns=name', 'list', 'load_balancer')).split('\n').filter(Boolean)
    const { listeners } = await lb<Listed<'listeners'>>('GET', '/listeners')
    t.same(names.sort(), ['their-lb', ...listeners.map(({ id }) => id)].sort())
    t.same([...(await listed()).keys()].sort(), [lasting, previous].sort())
    t.equal(await ovn.foreignRows(), theirs)
  })
})
