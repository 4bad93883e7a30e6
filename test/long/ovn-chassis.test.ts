import t, { type Test } from 'tap'
import { type Inhabitant, inhabitNamespace } from '../support/worlds/inhabitant.js'
import { until } from '../support/worlds/krater.js'
import { startOvnKrater } from '../support/worlds/ovn-krater.js'
import type { Chassis } from '../support/worlds/standing-ovn/chassis.js'
import { run } from '../support/worlds/standing-ovn/daemon.js'
import { startStandingOvn } from '../support/worlds/standing-ovn/standing-ovn.js'

type Listed<K extends string> = Record<K, { id: string; name: string }[]>
type Port = { id: string; mac_address: string; fixed_ips: { ip_address: string }[] }

const FAR = 'far-chassis'
const ip = (...words: string[]) => run('ip', words)
const inFar = ['-n', FAR]

/** A namespace that ends with the test. */
async function namespace(t: Test, name: string): Promise<void> {
  await ip('netns', 'add', name)
  t.teardown(() => ip('netns', 'delete', name))
}

/** The network between the chassis: a bridge of each, whose own interface has the address of its tunnels. */
async function underlay(chassis: Chassis, port: string, address: string, where: readonly string[]): Promise<void> {
  const bridge = ['add-br', 'br-tunnels', '--', 'set', 'bridge', 'br-tunnels', 'datapath_type=netdev']
  await chassis.vsctl(...bridge, '--', 'add-port', 'br-tunnels', port)
  await ip(...where, 'address', 'add', `${address}/24`, 'dev', 'br-tunnels')
  await ip(...where, 'link', 'set', 'br-tunnels', 'mtu', '1600', 'up')
}

/** A machine of the far chassis, plugged in as its own agent does it. */
async function farMachine(t: Test, chassis: Chassis, name: string, port: Port): Promise<Inhabitant> {
  await namespace(t, name)
  const inside = ['netns', 'exec', name]
  await ip(
    'link',
    'add',
    'eth0',
    'netns',
    name,
    'address',
    port.mac_address,
    'type',
    'veth',
    'peer',
    name,
    'netns',
    FAR,
  )
  await ip(...inFar, 'link', 'set', name, 'up')
  await ip('-n', name, 'link', 'set', 'lo', 'up')
  await ip('-n', name, 'link', 'set', 'eth0', 'up')
  for (const { ip_address } of port.fixed_ips)
    await ip(
      '-n',
      name,
      'address',
      'add',
      `${ip_address}/${ip_address.includes(':') ? '64' : '16'}`,
      'dev',
      'eth0',
      'nodad',
    )
  await ip(...inside, 'ethtool', '-K', 'eth0', 'tx', 'off')
  await chassis.vsctl('add-port', 'br-int', name, '--', 'set', 'interface', name, `external_ids:iface-id=${port.id}`)
  return inhabitNamespace(t, name, name)
}

t.test('load balancers over two chassis with a tunnel between them', async t => {
  await namespace(t, FAR)
  await ip('link', 'add', 'near', 'mtu', '1600', 'type', 'veth', 'peer', 'far', 'mtu', '1600', 'netns', FAR)
  t.teardown(() => ip('link', 'delete', 'near').catch(() => undefined))
  await ip('link', 'set', 'near', 'up')
  await ip(...inFar, 'link', 'set', 'far', 'up')
  await ip(...inFar, 'link', 'set', 'lo', 'up')
  const ovn = await startStandingOvn(t, { address: '172.31.255.1' })
  const far = await ovn.addChassis('two', FAR, '172.31.255.2')
  await underlay(ovn.chassis, 'near', '172.31.255.1', [])
  await underlay(far, 'far', '172.31.255.2', inFar)

  const world = await startOvnKrater(t, {}, ovn)
  const { lb, net, settled } = world
  const subnet = async (name: string) => (await net<Listed<'subnets'>>('GET', `/subnets?name=${name}`)).subnets[0]!.id
  const [v4, v6] = [await subnet('private-subnet'), await subnet('private-ipv6-subnet')]
  const network = (await net<Listed<'networks'>>('GET', '/networks?name=private')).networks[0]!.id
  const client = await world.settle('private', 'client')
  const ports: Port[] = []
  for (const name of ['one', 'two']) {
    const { port } = await net<{ port: Port }>('POST', '/ports', {
      port: { name, network_id: network, port_security_enabled: false },
    })
    ports.push(port)
    await farMachine(t, far, name, port)
  }
  const members = ports.flatMap(({ fixed_ips }) =>
    fixed_ips.map(({ ip_address }) => ({
      ...{ address: ip_address, protocol_port: 8080 },
      subnet_id: ip_address.includes(':') ? v6 : v4,
    })),
  )
  const listener = (protocol: string) => ({
    ...{ name: protocol, protocol, protocol_port: 8080 },
    default_pool: { name: protocol, protocol, lb_algorithm: 'SOURCE_IP_PORT', members },
  })
  type Shown = {
    loadbalancer: {
      id: string
      vip_address: string
      additional_vips: { ip_address: string }[]
      provisioning_status: string
    }
  }
  const { id } = (
    await lb<Shown>('POST', '/loadbalancers', {
      loadbalancer: {
        ...{ name: 'web', provider: 'ovn', vip_subnet_id: v4, additional_vips: [{ subnet_id: v6 }] },
        listeners: [listener('TCP'), listener('UDP')],
      },
    })
  ).loadbalancer
  await settled(id)
  const show = async () => (await lb<Shown>('GET', `/loadbalancers/${id}`)).loadbalancer
  const { vip_address, additional_vips } = await show()
  const { pools } = await lb<Listed<'pools'>>('GET', `/pools?loadbalancer_id=${id}`)
  const tcp = pools.find(({ name }) => name === 'TCP')!.id
  type Member = { id: string; address: string; operating_status: string }
  const membersOf = async () => (await lb<{ members: Member[] }>('GET', `/pools/${tcp}/members`)).members
  const idOf = async (address: string) => (await membersOf()).find(member => member.address === address)!.id
  const answering = async (address: string, protocol: 'tcp' | 'udp' = 'tcp') =>
    new Set(
      (await Promise.all(Array.from({ length: 16 }, () => client.ask(address, { protocol })))).map(
        text => text?.split(' ')[0],
      ),
    )
  const weigh = async (port: Port, weight: number) => {
    const address = port.fixed_ips.find(({ ip_address }) => !ip_address.includes(':'))!.ip_address
    await lb('PUT', `/pools/${tcp}/members/${await idOf(address)}`, { member: { weight } })
  }

  for (const address of [vip_address, additional_vips[0]!.ip_address])
    for (const protocol of ['tcp', 'udp'] as const)
      await t.test(
        `carry ${protocol} to members of the other chassis: ${address.includes(':') ? 'IPv6' : 'IPv4'}`,
        async t => {
          await until('it answers', async () => (await client.ask(address, { protocol })) !== null, 30)
          t.same(await answering(address, protocol), new Set(['one', 'two']))
        },
      )

  await t.test('see members of the other chassis through their probes', async t => {
    const monitor = { type: 'TCP', delay: 1, timeout: 1, max_retries: 1, max_retries_down: 1, pool_id: tcp }
    await lb('POST', '/healthmonitors', { healthmonitor: monitor })
    await settled(id)
    await until('all are ONLINE', async () =>
      (await membersOf()).every(({ operating_status }) => operating_status === 'ONLINE'),
    )
    await far.vsctl('set', 'interface', 'one', 'external_ids:iface-id=nothing')
    await until('one is unplugged', async () =>
      (await membersOf()).some(({ operating_status }) => operating_status === 'ERROR'),
    )
    t.same(await answering(vip_address), new Set(['two']))
    await far.vsctl('set', 'interface', 'one', `external_ids:iface-id=${ports[0]!.id}`)
    await until('all are ONLINE again', async () =>
      (await membersOf()).every(({ operating_status }) => operating_status === 'ONLINE'),
    )
  })

  await t.test('are ACTIVE only once both chassis have the change', async t => {
    far.controller.signal('SIGSTOP')
    await weigh(ports[0]!, 0)
    await until('the other chassis has it', async () => {
      const wanted = (await ovn.nb('--bare', '--columns=nb_cfg', 'list', 'nb_global')).trim()
      return (await ovn.sb('--bare', '--columns=nb_cfg', 'find', 'chassis_private', 'name=one')).trim() === wanted
    })
    t.equal((await show()).provisioning_status, 'PENDING_UPDATE')
    far.controller.signal('SIGCONT')
    await settled(id)
    t.same(await answering(vip_address), new Set(['two']))
  })

  await t.test('do not wait for ever for a chassis that is away, which catches up', async t => {
    await far.controller.end('SIGKILL')
    const started = performance.now()
    await weigh(ports[0]!, 1)
    await settled(id)
    t.comment(`ACTIVE without a chassis after ${Math.round(performance.now() - started)} ms`)
    const again = performance.now()
    await weigh(ports[1]!, 0)
    await settled(id)
    t.ok(performance.now() - again < 10_000, 'the next change does not wait for it at all')
    await far.controller.start()
    await until('it has caught up', async () => {
      const there = await answering(vip_address)
      return there.size === 1 && there.has('one')
    })
  })
})
