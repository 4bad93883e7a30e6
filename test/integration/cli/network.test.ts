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
  config: configurationSchema.parse({}).network,
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

  await t.test('quotas', async t => {
    // `quota show` and `quota set` of this version need a compute service; the list does not.
    const rows = await admin.list('quota list --network --detail --project demo')
    const limits = rows.map(row => [row.Resource, row.Limit])
    t.match(Object.fromEntries(limits), { networks: 100, subnets: 100, ports: 500 }, JSON.stringify(rows))
  })

  await t.test('resources that Krater does not have are listed as empty', async t => {
    const lines = ['router list', 'floating ip list', 'security group list', 'subnet pool list', 'network agent list']
    for (const line of lines) t.strictSame(await demo.list(line), [], line)
    const aliases = (await demo.list('extension list --network')).map(extension => extension.Alias)
    t.ok(aliases.includes('external-net') && !aliases.includes('router'), String(aliases))
    t.match(await admin.list('network list'), { length: 3 }, 'the administrator sees all networks')
  })
})
