import t from 'tap'
import { desiredPorts, desiredSubnetIds } from '../../../controller/provider/amphora/plan/desired-ports.js'
import { renderInterfaces } from '../../../controller/provider/amphora/rendering/keepalived/interfaces.js'
import {
  aDualStackVipInterface,
  aMember,
  aMemberInterface,
  aPool,
  aTree,
  someFacts,
  uuid,
} from '../../golden/models.js'

const [main, second] = aDualStackVipInterface().subnets
const [elsewhere] = aMemberInterface().subnets
if (!main || !second || !elsewhere) throw new Error('there are no three subnets')
const tree = aTree({
  additionalVips: [{ address: '2001:db8:1::10', subnetId: second.id }],
  pools: [aPool(1, { members: [aMember(1, { subnetId: second.id }), aMember(2, { subnetId: elsewhere.id })] })],
})

t.test('the base port has an address on the subnet of every VIP, the primary one first', async t => {
  t.same(desiredSubnetIds(tree), [main.id, second.id, elsewhere.id])
  const ports = desiredPorts(tree, [elsewhere, second, main], uuid(6, 1))
  t.same(
    ports.map(({ purpose, request }) => [purpose, request.networkId, request.fixedIps.map(({ subnetId }) => subnetId)]),
    [
      ['vip', main.networkId, [main.id, second.id]],
      ['member', elsewhere.networkId, [elsewhere.id]],
    ],
    'a member on a VIP’s subnet needs no separate interface',
  )
  t.throws(() => desiredPorts(tree, [main, elsewhere], uuid(6, 1)), { code: 'subnet-missing' })
  const overlapping = { ...elsewhere, overlapsManagement: true }
  t.throws(() => desiredPorts(tree, [main, second, overlapping], uuid(6, 1)), {
    code: 'subnet-overlaps-management',
    message: /overlaps the management network/,
  })
})

t.test('each VIP has its own subnet and gateway; default routes use the primary VIP’s', async t => {
  const other = {
    ...second,
    id: uuid(7, 0),
    ipVersion: 4 as const,
    cidr: '198.51.100.0/24',
    gatewayIp: '198.51.100.1',
    hostRoutes: [],
    overlapsManagement: false,
  }
  const nic = aDualStackVipInterface()
  const fixedIps = [...nic.port.fixedIps, { subnetId: other.id, address: '198.51.100.21' }]
  const interfaces = [{ ...nic, port: { ...nic.port, fixedIps }, subnets: [other, ...nic.subnets] }]
  const vips = [...tree.additionalVips, { address: '198.51.100.10', subnetId: other.id }]
  const [rendered] = renderInterfaces({ ...tree, additionalVips: vips }, someFacts({ interfaces }))
  t.same(rendered?.vips, [
    { address: '203.0.113.10', subnet: '203.0.113.0/24', gateway: '203.0.113.1' },
    { address: '2001:db8:1::10', subnet: '2001:db8:1::/64', gateway: '2001:db8:1::1' },
    { address: '198.51.100.10', subnet: '198.51.100.0/24', gateway: '198.51.100.1' },
  ])
  t.same(
    rendered?.routes.filter(({ destination }) => destination.endsWith('/0')),
    [
      { destination: '0.0.0.0/0', gateway: '203.0.113.1' },
      { destination: '::/0', gateway: '2001:db8:1::1' },
    ],
  )
})
