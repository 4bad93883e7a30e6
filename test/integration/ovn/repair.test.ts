import t from 'tap'
import type { Tables } from '../../../controller/cli/commands/ovn/desired-now.js'
import { repair } from '../../../controller/cli/commands/ovn/repair.js'
import { compare, notComparedLines } from '../../../controller/cli/commands/ovn/survey.js'
import { PORT_OWNER } from '../../../controller/network/driver.js'
import { createLocalDriver } from '../../../controller/network/local/driver.js'
import { createTopologyKeeper } from '../../../controller/network/ovn/topology-keeper.js'
import type { Northbound } from '../../../controller/ovn/northbound/northbound.js'
import { bootId } from '../../../controller/process/process-stat.js'
import { nameLeaseOwner } from '../../../controller/queue/lease-owner.js'
import { createTestDatabase } from '../../support/database/database.js'
import { insertLoadBalancer } from '../../support/database/load-balancer-rows.js'
import { INSTANCE, startNorthbound } from '../../support/services/northbound.js'
import { quiet } from '../../support/worlds/machines.js'
import { networkRows } from '../../support/worlds/network-rows.js'

const testDatabase = await createTestDatabase()
t.teardown(() => testDatabase.drop())
const [networkDatabase, database] = [testDatabase.of('network'), testDatabase.of('load_balancer')]
const rows = networkRows(networkDatabase)
const place = { instance: INSTANCE, hostLegOf: () => null, isPhysicalByNetwork: true, gateways: () => [] }
const network = createLocalDriver(networkDatabase, { reserve: 0, project_share: 100 })
const tables: Tables = { database, networkDatabase, network, instance: INSTANCE, place }

const subnet = await rows.subnet(await rows.network(), '10.1.0.0/24', null)
const { networkId } = subnet
await rows.port([[subnet, '10.1.0.2']], {
  ...{ device_id: `ovn-balancer-${networkId}`, device_owner: PORT_OWNER.balancer, ensured_name: 'balancer' },
})
const group = await rows.group()
await rows.rule(group, { remote_group_id: group })
let last = 10
/** A machine in the group. */
const joins = () => rows.port([[subnet, `10.1.0.${last++}`]], { groups: [group] })
const vip = await rows.port([[subnet, '10.1.0.3']], { device_owner: PORT_OWNER.vip, ensured_name: 'vip' })
const balancer = (columns: object = {}) =>
  insertLoadBalancer(database, {
    ...{ provider: 'ovn', vip_address: '10.1.0.3', vip_subnet_id: subnet.id, vip_network_id: networkId },
    ...{ vip_port_id: vip.id, generation: 1, applied_generation: 1, ...columns },
  })
const id = await balancer()
const owner = `load-balancer/${id}`
await joins()

const open = await startNorthbound(t)
const [northbound, workers] = [await open(), await open()]
const worker = createTopologyKeeper(workers, place, { log: quiet })
t.teardown(worker.stop)
const found = (tried: Tables = tables) => compare(northbound, tried).then(({ findings }) => findings)
const addresses = () =>
  [...northbound.client.rows('Address_Set').values()].flatMap(set => set.addresses).filter(one => !one.includes(':'))
const inGroup = () => Array.from({ length: last - 10 }, (_, index) => `10.1.0.${10 + index}`)
/** A machine joins the group, and the network worker writes that. */
const joinsInOvn = async () => {
  await joins()
  await worker.keep(networkDatabase)
  await northbound.client.until(() => addresses().length === last - 10, 10_000)
}

t.test('all rows of an emptied database are made, those of load balancers too', async t => {
  const owners = (await found()).map(one => one.owner)
  t.ok(owners.includes(`network/${networkId}`))
  t.ok(owners.includes(owner))
  const { late } = await repair(northbound, tables, owners)
  t.same(late, [])
  t.same(await found(), [])
  t.same(addresses(), inGroup())
  await worker.keep(networkDatabase)
})

t.test('a change during the comparison is no difference', async t => {
  let isFirst = true
  const changing: Tables['network'] = {
    ...network,
    // Read for load balancers, after the topology.
    port: async portId => {
      if (isFirst) await joinsInOvn()
      isFirst = false
      return network.port(portId)
    },
  }
  t.same(await found({ ...tables, network: changing }), [])
  t.same(addresses(), inGroup())
})

t.test('a repair leaves what others change at the same time', async t => {
  const [set] = northbound.client.rows('Address_Set').keys()
  await northbound.client.transact([
    { op: 'update', table: 'Address_Set', uuid: set!, row: { addresses: ['10.9.9.9'] } },
  ])
  const findings = await found()
  t.match(findings, [{ differences: [{ kind: 'different', table: 'Address_Set', columns: ['addresses'] }] }])
  await joinsInOvn()
  const hasty = interrupted(northbound, joinsInOvn)
  const { late } = await repair(
    hasty,
    tables,
    findings.map(one => one.owner),
  )
  t.same(late, [])
  t.same(addresses(), inGroup())
  t.same(await found(), [])
})

t.test('the load balancer of a worker that has died is repaired', async t => {
  const leave = async (lease_owner: string, seconds: number) => {
    await workers.ensure([{ owner, generation: 0, rows: [] }])
    const lease_until = database.raw(`now() + ? * interval '1 second'`, [seconds])
    await database('load_balancer').where({ id }).update({ lease_owner, lease_until })
    return (await found()).map(one => one.owner)
  }
  const [, , , namespace] = nameLeaseOwner().split(' ')
  for (const [where, dead, seconds] of [
    ['on this host, whose lease is not waited for', `host 1 1 ${namespace} ff`, 3_600],
    ['elsewhere, once its lease is over', `host 1 1 ${bootId()}0/other ff`, 3],
  ] as const)
    await t.test(where, async t => {
      const owners = await leave(dead, seconds)
      t.same(owners, [owner])
      t.match(await repair(northbound, tables, owners), { late: [] })
      t.same(await found(), [])
      const left = await database('load_balancer').where({ id }).first<{ lease_until: Date | null }>('lease_until')
      t.equal(left.lease_until, null, 'and released')
    })
})

t.test('load balancers that are not compared are said, with the reason', async t => {
  const rowsOf = async (columns: object) => `load-balancer/${await balancer(columns)}`
  const changing = await rowsOf({ generation: 2 })
  const failed = await rowsOf({ generation: 2, fault_generation: 2 })
  const portless = await rowsOf({ vip_port_id: null })
  const { findings, notCompared } = await compare(northbound, tables)
  t.same(findings, [])
  t.same(notCompared, [
    { owner: changing, reason: 'changing' },
    { owner: failed, reason: 'failed' },
    { owner: portless, reason: 'portless' },
  ])
  t.same(notComparedLines(notCompared), [
    '1 load balancer not compared: a change is under way.',
    `1 load balancer not compared: ERROR: the last change has failed, and Krater tries it again (${failed}).`,
    `1 load balancer not compared: a port that they need is missing (${portless}).`,
  ])
})

/** Lets something happen between the first reading of the tables and its writing. */
function interrupted(northbound: Northbound, act: () => Promise<void>): Northbound {
  let isFirst = true
  return new Proxy(northbound, {
    get: (target, name) => {
      if (name !== 'ensure') {
        const value: unknown = Reflect.get(target, name, target)
        return typeof value === 'function' ? value.bind(target) : value
      }
      return async (...words: Parameters<Northbound['ensure']>) => {
        if (isFirst) {
          isFirst = false
          await act()
        }
        return target.ensure(...words)
      }
    },
  })
}
