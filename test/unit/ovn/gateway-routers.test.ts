import fc from 'fast-check'
import t from 'tap'
import type { RouterGateway } from '../../../controller/network/local/routers/router.js'
import { routerRows } from '../../../controller/network/ovn/rows/router-rows.js'
import { networkRows } from '../../../controller/network/ovn/rows/switch-rows.js'
import type { Desired } from '../../../controller/ovn/northbound/desired.js'
import type { RowsPlan } from '../../../controller/ovn/northbound/plan-rows.js'
import { loadBalancerRows } from '../../../controller/provider/ovn/rows/load-balancer-rows.js'
import { aListener, aTree, uuid } from '../../golden/models.js'
import { MemoryNorthbound } from '../../support/database/northbound.js'

const INSTANCE = 'abcdef'
const [INSIDE, OUTSIDE, ROUTER] = [uuid(8, 1), uuid(8, 2), uuid(6, 1)]

const networks = [INSIDE, OUTSIDE].map(id =>
  networkRows({ id, mtu: 1442, physical: null, subnets: [], hostLeg: null, isolated: false }, INSTANCE),
)
const gatewayOf = (number: number): RouterGateway => ({
  ...{ portId: uuid(9, number), networkId: OUTSIDE, mtu: 1442, macAddress: `fa:16:3e:00:00:0${number}` },
  ...{ addresses: [`198.51.100.${number}/24`], nextHops: ['198.51.100.1'], subnets: ['198.51.100.0/24'] },
  snatAddress: `198.51.100.${number}`,
})
const leg = {
  ...{ portId: uuid(9, 1), networkId: INSIDE, mtu: 1442, macAddress: 'fa:16:3e:00:00:01' },
  addresses: ['192.0.2.1/24'],
}
const router = (gateway: RouterGateway | null, chassis: readonly string[] = ['one']): Desired =>
  routerRows(
    { id: ROUTER, interfaces: [leg], gateway, floatingIps: [], routes: [] },
    INSTANCE,
    chassis.map(name => ({ name, priority: 1 })),
  )
const balancer = (gatewayRouters: string[]): Desired =>
  loadBalancerRows(aTree({ provider: 'ovn', listeners: [aListener(1, { protocol: 'TCP', protocolPort: 80 })] }), {
    ...{ instance: INSTANCE, floatingIps: [], clientNetworks: [INSIDE], gatewayRouters, entrances: [] },
    vips: [{ address: '192.0.2.10', networkId: INSIDE }],
    probes: new Map(),
  })

const started = () => {
  const database = new MemoryNorthbound(INSTANCE)
  for (const { owner, rows } of networks) database.carryOut(database.plan(owner, rows))
  return {
    database,
    plan: ({ owner, rows }: Desired) => database.plan(owner, rows),
    /** As the server does with a plan that others have overtaken: it changes no row that is gone, and inserts none twice. */
    carryOut: ({ operations, ...plan }: RowsPlan) => {
      const there = new Set(database.all.map(([id]) => id))
      const inserted = operations.flatMap(({ op, uuid: id }) => (op === 'insert' ? [id] : []))
      if (inserted.some(id => there.has(id))) return
      for (const id of inserted) there.add(id)
      database.carryOut({ ...plan, operations: operations.filter(operation => there.has(operation.uuid)) })
    },
    /** The logical routers, and whether each balances, and has a gateway that is somewhere. */
    routers: () => {
      const rows = new Map(database.all.map(([id, , row]) => [id, row]))
      const listed = (value: unknown) => value as readonly string[]
      return database.all
        .filter(([, table]) => table === 'Logical_Router')
        .map(([, , row]) => ({
          balances: listed(row['load_balancer']).length > 0,
          hasGateway: listed(row['ports']).some(id => listed(rows.get(id)?.['gateway_chassis']).length > 0),
        }))
    },
  }
}

t.test('a router balances no more in the moment in which its gateway goes', async t => {
  for (const without of [router(null), router(gatewayOf(2), [])]) {
    const { plan, carryOut, routers } = started()
    carryOut(plan(router(gatewayOf(2))))
    carryOut(plan(balancer([ROUTER])))
    t.same(routers(), [{ balances: true, hasGateway: true }])
    carryOut(plan(without))
    t.same(routers(), [{ balances: false, hasGateway: false }])
    const waiting = plan(balancer([ROUTER])).missingHolders.filter(({ column }) => column === 'load_balancer')
    t.match(waiting, [{ table: 'Logical_Router' }], 'its load balancers wait')
    carryOut(plan(router(gatewayOf(2))))
    carryOut(plan(balancer([ROUTER])))
    t.same(routers(), [{ balances: true, hasGateway: true }])
  }
})

t.test('a router that gets another gateway goes on', async t => {
  const { plan, carryOut, routers } = started()
  carryOut(plan(router(gatewayOf(2))))
  carryOut(plan(balancer([ROUTER])))
  carryOut(plan(router(gatewayOf(3))))
  t.same(routers(), [{ balances: true, hasGateway: true }])
  t.same(plan(balancer([ROUTER])).operations, [])
})

t.test('whoever comes first, and whatever each knows, no router without a gateway balances', async t => {
  const wanted = {
    network: fc.constantFrom(router(null), router(gatewayOf(2)), router(gatewayOf(3)), router(gatewayOf(2), [])),
    balancers: fc.constantFrom(balancer([]), balancer([ROUTER])),
  }
  const isPlan = fc.boolean()
  const steps = fc.array(
    fc.oneof(
      fc.record({ who: fc.constant('network'), desired: wanted.network, isPlan }),
      fc.record({ who: fc.constant('balancers'), desired: wanted.balancers, isPlan }),
    ),
    { minLength: 4, maxLength: 30 },
  )
  let balancing = 0
  fc.assert(
    fc.property(steps, all => {
      const { plan, carryOut, routers } = started()
      const plans = new Map<string, RowsPlan>()
      for (const { who, desired, isPlan: isPlanned } of all) {
        if (isPlanned) plans.set(who, plan(desired))
        else {
          carryOut(plans.get(who) ?? plan(desired))
          plans.delete(who)
        }
        for (const { balances, hasGateway } of routers()) {
          if (balances) balancing += 1
          if (balances && !hasGateway) return false
        }
      }
      return true
    }),
    { numRuns: 300 },
  )
  t.ok(balancing > 100, `${balancing} times one balances`)
})
