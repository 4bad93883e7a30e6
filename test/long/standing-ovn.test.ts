import t, { type Test } from 'tap'
import { type Inhabitant, inhabitNamespace } from '../support/worlds/inhabitant.js'
import { until } from '../support/worlds/krater.js'
import { startOvnKrater } from '../support/worlds/ovn-krater.js'
import type { Place } from '../support/worlds/ovn-place.js'
import type { Chassis } from '../support/worlds/standing-ovn/chassis.js'
import { run } from '../support/worlds/standing-ovn/daemon.js'
import { startStandingOvn } from '../support/worlds/standing-ovn/standing-ovn.js'

type Listed<K extends string> = Record<K, { id: string; name: string }[]>

const LAN = '10.99.0.0/24'
const OUTSIDE = '10.99.0.250'

/** A machine on a physical network, which the chassis maps to a bridge. */
async function lanMachine(t: Test, { vsctl }: Chassis): Promise<Inhabitant> {
  const inside = ['netns', 'exec', 'outside']
  await run('ip', ['netns', 'add', 'outside'])
  t.teardown(() => run('ip', ['netns', 'delete', 'outside']))
  await run('ip', ['link', 'add', 'eth0', 'netns', 'outside', 'type', 'veth', 'peer', 'lan-end'])
  await run('ip', ['link', 'set', 'lan-end', 'up'])
  await run('ip', ['-n', 'outside', 'link', 'set', 'lo', 'up'])
  await run('ip', ['-n', 'outside', 'link', 'set', 'eth0', 'up'])
  await run('ip', ['-n', 'outside', 'address', 'add', `${OUTSIDE}/24`, 'dev', 'eth0'])
  await run('ip', [...inside, 'ethtool', '-K', 'eth0', 'tx', 'off'])
  const bridge = ['set', 'bridge', 'br-lan', 'datapath_type=netdev', 'fail_mode=standalone']
  const mapping = ['set', 'open_vswitch', '.', 'external-ids:ovn-bridge-mappings=lan:br-lan']
  await vsctl('add-br', 'br-lan', '--', ...bridge, '--', 'add-port', 'br-lan', 'lan-end', '--', ...mapping)
  return inhabitNamespace(t, 'outside', 'outside')
}

t.test('an OVN that stands, with clusters over TLS', async t => {
  const ovn = await startStandingOvn(t)
  const theirs = await ovn.foreignRows()
  await ovn.chassis.vsctl('add-port', 'br-int', 'theirs0', '--', 'set', 'interface', 'theirs0', 'type=internal')
  const plugged = async () => (await ovn.chassis.vsctl('list-ports', 'br-int')).split('\n').filter(Boolean)
  const pluggedBefore = await plugged()
  const outside = await lanMachine(t, ovn.chassis)
  // Whoever keeps OVN maps it; nothing here has the interface.
  const world = await startOvnKrater(t, { KRATER_NETWORK_PHYSICAL_NETWORKS: 'lan:unused' }, ovn)
  const { krater, lb, net, settled } = world
  const subnet = (await net<Listed<'subnets'>>('GET', '/subnets?name=private-subnet')).subnets[0]!.id
  const one = await world.settle('private', 'one')
  const two = await world.settle('private', 'two')
  const client = await world.settle('private', 'client')
  const members = [one, two].map(({ v4 }) => ({ address: v4, subnet_id: subnet, protocol_port: 8080 }))
  const create = async (provider: 'ovn' | 'amphora'): Promise<{ id: string; vip_address: string }> => {
    const { loadbalancer } = await lb<{ loadbalancer: { id: string; vip_address: string } }>('POST', '/loadbalancers', {
      loadbalancer: {
        ...{ name: provider, provider, vip_subnet_id: subnet },
        listeners: [
          {
            ...{ name: 'web', protocol: 'TCP', protocol_port: 8080 },
            default_pool: {
              name: 'web',
              protocol: 'TCP',
              lb_algorithm: provider === 'ovn' ? 'SOURCE_IP_PORT' : 'ROUND_ROBIN',
              members,
            },
          },
        ],
      },
    })
    await settled(loadbalancer.id)
    return loadbalancer
  }
  const answering = async (from: Place, address: string) =>
    new Set((await Promise.all(Array.from({ length: 16 }, () => from.ask(address)))).map(text => text?.split(' ')[0]))

  for (const provider of ['ovn', 'amphora'] as const)
    await t.test(`carries load balancers of the provider ${provider}`, async t => {
      const { vip_address } = await create(provider)
      await until('it answers', async () => (await client.ask(vip_address)) !== null)
      t.same(await answering(client, vip_address), new Set(['one', 'two']))
    })

  await t.test('leads to physical networks by its mappings', async t => {
    const admin = await krater.api('krater-admin')
    const { network } = (await admin.request('network', 'POST', '/v2.0/networks', {
      network: { name: 'lan', shared: true, 'provider:network_type': 'flat', 'provider:physical_network': 'lan' },
    })) as { network: { id: string } }
    await admin.request('network', 'POST', '/v2.0/subnets', {
      subnet: { network_id: network.id, ip_version: 4, cidr: LAN },
    })
    const inside = await world.settle('lan', 'inside')
    await until('it answers', async () => (await outside.ask(inside.v4)) !== null)
    t.equal(await inside.ask(OUTSIDE), `outside ${inside.v4}`)
  })

  await t.test('has what the tables say', async t => {
    t.match(await krater.command('ovn', 'check'), { status: 0, stdout: /OVN has what the tables say/ })
    t.equal(await ovn.foreignRows(), theirs)
  })

  await t.test('keeps what it had when Krater is removed, and nothing of Krater', async t => {
    t.ok((await ovn.kraterRows()) > 0)
    t.match(await krater.command('down', '--all', '--yes'), { status: 0 })
    t.equal(await ovn.kraterRows(), 0)
    t.equal(await ovn.foreignRows(), theirs)
    const isLeft = (port: string) => !pluggedBefore.includes(port) && !port.startsWith('patch-')
    await until('nothing of Krater is plugged in', async () => !(await plugged()).some(isLeft))
    t.ok((await plugged()).includes('theirs0'))
  })
})
