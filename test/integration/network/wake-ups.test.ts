import t from 'tap'
import { A, ADMIN, startNetworkApi } from '../../support/clients/network-api.js'

const api = await startNetworkApi()
t.teardown(api.stop)
const { db, call, create } = api

t.test('a router and its floating IPs wake the network worker, and a change of names does not', async t => {
  const outside = await create('network', { 'router:external': true }, ADMIN)
  await create('subnet', { network_id: outside.id, cidr: '203.0.113.0/24' }, ADMIN)
  const network = await create('network', {})
  const subnet = await create('subnet', { network_id: network.id, cidr: '10.9.0.0/24' })
  const port = await create('port', { network_id: network.id })
  const heard: string[] = []
  const connection = (await db.client.acquireConnection()) as {
    on: (event: string, listen: (message: { payload: string }) => void) => void
    off: (event: string, listen: (message: { payload: string }) => void) => void
    query: (text: string) => Promise<unknown>
  }
  const listen = ({ payload }: { payload: string }) => void heard.push(payload)
  connection.on('notification', listen)
  await connection.query('LISTEN krater_network')
  t.teardown(async () => {
    connection.off('notification', listen)
    await connection.query('UNLISTEN krater_network')
    await db.client.releaseConnection(connection)
  })
  /**
   * What the channel says of an operation. What was said before a query in the listening connection has arrived with
   * its answer.
   */
  const toldBy = async (act: () => Promise<unknown>) => {
    await connection.query('SELECT 1')
    heard.length = 0
    await act()
    await connection.query('SELECT 1')
    return [...new Set(heard)].sort()
  }
  const router = await create('router', { external_gateway_info: { network_id: outside.id } })
  t.match(
    await toldBy(() => call(`PUT /v2.0/routers/${router.id}/add_router_interface`, A, { subnet_id: subnet.id })),
    ['fixed_ip', 'port', 'router_port'],
  )
  const told = await toldBy(() => create('floatingip', { floating_network_id: outside.id, port_id: port.id }))
  t.ok(told.includes('floating_ip'), String(told))
  t.match(await toldBy(() => call(`PUT /v2.0/routers/${router.id}`, A, { router: { admin_state_up: false } })), [
    'router',
  ])
  t.strictSame(await toldBy(() => call(`PUT /v2.0/ports/${port.id}/tags/x`, A)), [])
  for (const change of [{ enable_dhcp: false }, { dns_nameservers: ['192.0.2.1'] }])
    t.match(await toldBy(() => call(`PUT /v2.0/subnets/${subnet.id}`, A, { subnet: change })), ['subnet'])
})
