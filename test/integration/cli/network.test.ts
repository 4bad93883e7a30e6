import { execFile } from 'node:child_process'
import t from 'tap'
import { configurationSchema } from '../../../controller/config/schema.js'
import { startServer } from '../../../controller/http/server.js'
import { bootstrapIdentity } from '../../../controller/identity/bootstrap.js'
import { databaseTokenValidator } from '../../../controller/identity/tokens/validator.js'
import { createLog } from '../../../controller/log/log.js'
import { createNetworkApi } from '../../../controller/network/api.js'
import { bootstrapNetworks } from '../../../controller/network/bootstrap.js'
import { openstackSessionIn } from '../../support/clients/openstack-session.js'
import { createTestDatabase, testDirectory } from '../../support/database/database.js'
import { bootstrapOptions, startIdentity } from '../../support/worlds/identity.js'

const identity = await startIdentity()
t.teardown(identity.stop)
const database = await createTestDatabase()
t.teardown(database.drop)
const app = createNetworkApi({
  database: database.of('network'),
  config: configurationSchema.parse({ network: { physical_networks: { lan: 'eth9' } } }).network,
  validate: databaseTokenValidator(identity.database),
  identityUrl: `${identity.url}/v3`,
  log: createLog('network', 'error'),
})
const server = await startServer(app, { host: '127.0.0.1', port: 0 })
t.teardown(server.stop)
const endpoints = { ...bootstrapOptions.endpoints, identity: `${identity.url}/v3`, network: server.url }
const { projects } = await bootstrapIdentity(identity.database, { ...bootstrapOptions, endpoints })
await bootstrapNetworks(database.of('network'), {
  cidr: '10.66.0.0/16',
  serviceProjectId: projects.service,
  demoProjectId: projects.demo!,
})

const environmentOf = (user: string) => ({
  PATH: process.env.PATH,
  HOME: testDirectory(),
  PYTHONWARNINGS: 'ignore',
  OS_AUTH_URL: identity.url,
  OS_IDENTITY_API_VERSION: '3',
  OS_USERNAME: user,
  OS_PASSWORD: `${user}-pw`,
  OS_PROJECT_NAME: user,
  OS_USER_DOMAIN_NAME: 'Default',
  OS_PROJECT_DOMAIN_NAME: 'Default',
  OS_REGION_NAME: 'RegionOne',
})

/** Runs the command in a new process, as when the demo user types it. */
const typed = (line: string) =>
  new Promise<{ code: number; text: string; error: string }>(resolve => {
    execFile('openstack', line.split(' '), { timeout: 90_000, env: environmentOf('demo') }, (error, text, stderr) => {
      resolve({ code: error === null ? 0 : Number(error.code ?? 1), text, error: stderr })
    })
  })

const demo = openstackSessionIn(t, environmentOf('demo'))
const admin = openstackSessionIn(t, environmentOf('admin'))

t.test('the openstack command line', async t => {
  await t.test('networks', async t => {
    const created = await typed('network create --description first --mtu 1400 --tag blue web -f json')
    t.equal(created.code, 0, created.error)
    const made = JSON.parse(created.text)
    t.match(made, { name: 'web', description: 'first', mtu: 1400, project_id: projects.demo, status: 'ACTIVE' })
    const names = (await demo.list('network list')).map(network => network.Name)
    t.strictSame(names.sort(), ['private', 'public', 'web'])
    t.match(await demo.list('network list --external'), [{ Name: 'public' }])
    t.match(await demo.list('network list --long --tags blue'), [{ Name: 'web', State: true, 'Router Type': false }])
    await demo.done('network set --name shop --disable web')
    t.match(await demo.show('network show shop'), { id: made.id, admin_state_up: false, tags: ['blue'] })
    await demo.done('network set --enable shop')
    t.match(await demo.refused('network create --share mine'), {
      status: 1,
      stderr: /rule:create_network:shared is disallowed by policy/,
    })
    t.match(await typed('network show nothing'), { code: 1, error: /No Network found for nothing/ })
  })

  await t.test('subnets', async t => {
    const made = await demo.show(
      'subnet create --network shop --subnet-range 10.1.0.0/24 --gateway 10.1.0.254 --dns-nameserver 9.9.9.9 --allocation-pool start=10.1.0.10,end=10.1.0.99 shop-v4',
    )
    t.match(made, {
      cidr: '10.1.0.0/24',
      gateway_ip: '10.1.0.254',
      allocation_pools: [{ start: '10.1.0.10', end: '10.1.0.99' }],
      dns_nameservers: ['9.9.9.9'],
      ip_version: 4,
    })
    await demo.done('subnet create --network shop --ip-version 6 --subnet-range fd00:1::/64 --gateway none shop-v6')
    await demo.done('subnet set --host-route destination=10.2.0.0/16,gateway=10.1.0.3 --name shop-four shop-v4')
    t.match(await demo.show('subnet show shop-four'), {
      id: made.id,
      host_routes: [{ destination: '10.2.0.0/16', nexthop: '10.1.0.3' }],
    })
    const rows = await demo.list('subnet list --network shop')
    t.strictSame(rows.map(row => row.Name).sort(), ['shop-four', 'shop-v6'])
    t.match(await demo.list('subnet list --subnet-range 10.1.0.0/24 --ip-version 4'), [{ Name: 'shop-four' }])
  })

  await t.test('ports', async t => {
    const made = await demo.show(
      'port create --network shop --fixed-ip subnet=shop-four,ip-address=10.1.0.50 --device vm till',
    )
    t.match(made, {
      name: 'till',
      device_id: 'vm',
      status: 'ACTIVE',
      fixed_ips: [{ ip_address: '10.1.0.50' }],
      mac_address: /^fa:16:3e:/,
    })
    t.match(await demo.list('port list --fixed-ip ip-address=10.1.0.50 --network shop'), [
      { Name: 'till', Status: 'ACTIVE' },
    ])
    await demo.done('port set --fixed-ip subnet=shop-v6,ip-address=fd00:1::9 --description cash till')
    t.match(await demo.show('port show till'), {
      description: 'cash',
      fixed_ips: [{ ip_address: '10.1.0.50' }, { ip_address: 'fd00:1::9' }],
    })
    t.match(await demo.refused('port create --network shop --fixed-ip ip-address=10.1.0.50 double'), {
      status: 1,
      stderr: /IP address 10.1.0.50 already allocated in subnet/,
    })
    t.match(await demo.refused('network delete shop'), { status: 1 })
    await demo.done('port delete till')
  })

  await t.test('deletion', async t => {
    await demo.done('subnet delete shop-four shop-v6')
    await demo.done('network delete shop')
    t.equal((await demo.list('network list --name shop')).length, 0)
  })

  await t.test('routers', async t => {
    const made = await demo.show('router create --description out --external-gateway public --tag blue edge')
    t.match(made, {
      name: 'edge',
      status: 'ACTIVE',
      external_gateway_info: { enable_snat: true, external_fixed_ips: [{ ip_address: /^10\.66\./ }] },
    })
    await demo.done('router add subnet edge private-subnet')
    t.match(await demo.show('router show edge'), { interfaces_info: [{ ip_address: '10.66.32.1' }] })
    const rows = await demo.list('port list --router edge')
    t.equal(rows.length, 1, 'the gateway’s port is not the project’s')
    await demo.done('router set --route destination=10.5.0.0/16,gateway=10.66.32.77 edge')
    await demo.done('router add route edge --route destination=10.6.0.0/16,gateway=10.66.32.78')
    await demo.done('router unset --route destination=10.5.0.0/16,gateway=10.66.32.77 edge')
    t.match(await demo.show('router show edge'), { routes: [{ destination: '10.6.0.0/16', nexthop: '10.66.32.78' }] })
    await demo.done('router remove route edge --route destination=10.6.0.0/16,gateway=10.66.32.78')
    await demo.done('router set --name gate --disable edge')
    t.match(await demo.list('router list --name gate'), [{ Name: 'gate', State: false }])
    await demo.done('router set --enable gate')
    const refusals: readonly (readonly [string, RegExp])[] = [
      ['router add subnet gate private-subnet', /Router already has a port on subnet/],
      ['router delete gate', /still has ports/],
      ['router set --disable-snat --external-gateway public gate', /enable_snat is disallowed by policy/],
      ['router set --external-gateway private gate', /is not an external network/],
      ['router set --route destination=10.5.0.0/16,gateway=10.9.9.9 gate', /not connected with router/],
      [`port delete ${rows[0]?.ID}`, /cannot be deleted directly/],
      ['subnet delete private-subnet', /have an IP allocation/],
    ]
    for (const [line, stderr] of refusals) t.match(await demo.refused(line), { status: 1, stderr }, line)
  })

  await t.test('floating IPs', async t => {
    const port = await demo.show('port create --network private shop')
    const made = await demo.show(`floating ip create --port ${port.id} --description door public`)
    const [inside] = port.fixed_ips as { ip_address: string }[]
    t.match(made, { status: 'ACTIVE', fixed_ip_address: inside?.ip_address, description: 'door', port_id: port.id })
    t.match(await demo.list('floating ip list'), [{ 'Floating IP Address': made.floating_ip_address, Port: port.id }])
    const address = String(made.floating_ip_address)
    const more = await demo.show('floating ip create public')
    const refusals: readonly (readonly [string, RegExp])[] = [
      [`floating ip set --port ${port.id} ${more.id}`, /already has a floating IP on external network/],
      ['floating ip create private', /is not a valid external network/],
      ['floating ip create --floating-ip-address 10.66.16.200 public', /floating_ip_address is disallowed by policy/],
      ['router unset --external-gateway gate', /is required by one or more floating IPs/],
      ['router remove subnet gate private-subnet', /required by one or more floating IPs/],
    ]
    for (const [line, stderr] of refusals) t.match(await demo.refused(line), { status: 1, stderr }, line)
    await demo.done(`floating ip unset --port ${address}`)
    t.match(await demo.show(`floating ip show ${address}`), { status: 'DOWN', port_id: null, router_id: null })
    await demo.done(`floating ip set --port ${port.id} --description again ${address}`)
    t.match(await demo.show(`floating ip show ${address}`), { status: 'ACTIVE', description: 'again' })
    await demo.done(`port delete ${port.id}`)
    t.match(await demo.show(`floating ip show ${address}`), { status: 'DOWN', port_id: null, fixed_ip_address: null })
    await demo.done(`floating ip delete ${address} ${more.id}`)
    t.strictSame(await demo.list('floating ip list'), [])
    await demo.done('router remove subnet gate private-subnet')
    await demo.done('router unset --external-gateway gate')
    await demo.done('router delete gate')
  })

  await t.test('security groups', async t => {
    t.match(await demo.list('security group list'), [{ Name: 'default' }])
    const made = await demo.show('security group create --description HTTP --tag blue web')
    t.match(made, { name: 'web', stateful: true, rules: { length: 2 } })
    const rule = await demo.show(
      'security group rule create --protocol tcp --dst-port 80:81 --remote-ip 192.0.2.0/24 web',
    )
    t.match(rule, { direction: 'ingress', ether_type: 'IPv4', protocol: 'tcp', port_range_min: 80, port_range_max: 81 })
    await demo.done('security group rule create --protocol ipv6-icmp --ethertype IPv6 --icmp-type 128 web')
    await demo.done('security group rule create --protocol 132 --remote-group web --egress web')
    t.equal((await demo.list('security group rule list web')).length, 5)
    const refusals: readonly (readonly [string, RegExp])[] = [
      [
        'security group rule create --protocol tcp --dst-port 80:81 --remote-ip 192.0.2.0/24 web',
        /Security group rule already exists\. Rule id is/,
      ],
      ['security group rule create --protocol nonsense web', /protocol nonsense not supported/],
      ['security group delete default', /Insufficient rights for removing default security group/],
      ['security group create default', /Default security group already exists/],
    ]
    for (const [line, stderr] of refusals) t.match(await demo.refused(line), { status: 1, stderr }, line)
    const port = await demo.show('port create --network private --security-group web till')
    t.strictSame(port.security_group_ids, [made.id])
    t.match(await demo.refused('security group delete web'), { status: 1, stderr: /in use/ })
    await demo.done('port set --no-security-group --disable-port-security till')
    t.match(await demo.show('port show till'), { security_group_ids: [], port_security_enabled: false })
    await demo.done('port set --enable-port-security --security-group default till')
    await demo.done('port set --allowed-address ip-address=10.66.40.0/24 till')
    t.match(await demo.show('port show till'), { allowed_address_pairs: [{ ip_address: '10.66.40.0/24' }] })
    t.match(await demo.refused('port set --allowed-address ip-address=10.66.0.7 till'), {
      status: 1,
      stderr: /addresses of the management network/,
    })
    await demo.done('port delete till')
    await demo.done(`security group rule delete ${rule.id}`)
    await demo.done('security group set --name site web')
    await demo.done('security group delete site')
  })

  await t.test('provider attributes', async t => {
    const made = await admin.show(
      'network create --external --provider-network-type vlan --provider-physical-network lan --provider-segment 7 hall',
    )
    t.match(made, {
      'provider:network_type': 'vlan',
      'provider:physical_network': 'lan',
      'provider:segmentation_id': 7,
    })
    const hidden = await demo.show('network show hall')
    t.match(hidden, { 'provider:network_type': null, 'provider:segmentation_id': null })
    const refusals: readonly (readonly [string, RegExp])[] = [
      [
        'network create --provider-network-type vlan --provider-physical-network lan --provider-segment 7 again',
        /VLAN 7 on physical network lan is in use/,
      ],
      [
        'network create --provider-network-type flat --provider-physical-network wan away',
        /physical_network 'wan' unknown for flat provider network/,
      ],
      ['network create --provider-network-type vlan --provider-physical-network lan bare', /segmentation_id required/],
      ['network set --provider-segment 8 hall', /does not support updating provider attributes/],
    ]
    for (const [line, stderr] of refusals) t.match(await admin.refused(line), { status: 1, stderr }, line)
    t.match(await demo.refused('network create --provider-network-type local mine'), {
      status: 1,
      stderr: /create_network:provider:network_type is disallowed by policy/,
    })
    await admin.done('network delete hall')
  })

  await t.test('quotas', async t => {
    // `quota show` and `quota set` of this version need a compute service; the list does not.
    const rows = await admin.list('quota list --network --detail --project demo')
    const limits = rows.map(row => [row.Resource, row.Limit])
    t.match(Object.fromEntries(limits), { networks: 100, subnets: 100, ports: 500, routers: 10 }, JSON.stringify(rows))
  })

  await t.test('resources that Krater does not have are listed as empty', async t => {
    for (const line of ['subnet pool list', 'network agent list']) t.strictSame(await demo.list(line), [], line)
    const aliases = (await demo.list('extension list --network')).map(extension => extension.Alias)
    t.ok(aliases.includes('router') && !aliases.includes('trunk'), String(aliases))
    t.match(await admin.list('network list'), { length: 3 }, 'the administrator sees all networks')
  })
})
