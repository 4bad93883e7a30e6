import { randomUUID } from 'node:crypto'
import t from 'tap'
import { guardHostLeg, unguardHostLeg } from '../../../controller/network/local/host/host-guard.js'
import { closeOutside, forwards, guardOutside } from '../../../controller/network/local/host/outside.js'
import { ip } from '../../../controller/network/local/ip-command.js'
import { createWorld, giveAddresses, nic } from '../../support/worlds/fabric-world.js'
import { inhabit } from '../../support/worlds/inhabitant.js'
import { createLan } from '../../support/worlds/lan.js'

const soon = { waitMs: 1_000 }

t.test('machines on the public network reach what the host reaches, if the operator says so', async t => {
  const { fabric, machine, start, instance } = await createWorld(t)
  const lan = await createLan(t)
  const interfaceName = `kt${instance}-pub`
  const addresses = ['198.18.79.1', 'fd79::1']
  const outside = { interfaceName, cidrs: ['198.18.79.0/24', 'fd79::/64'], denied: [lan.address.v4(12)] }
  t.teardown(() => Promise.all([closeOutside(interfaceName), unguardHostLeg(interfaceName)]))
  const before = [await forwards('ipv4'), await forwards('ipv6')]
  await guardOutside({ ...outside, enabled: false })
  await guardHostLeg(interfaceName, { addresses, open: [{ protocol: 'tcp', port: 8081 }], isolated: false })
  const networkId = randomUUID()
  const legs = addresses.map((address, at) => `${address}/${at === 0 ? 24 : 64}`)
  await fabric.attachHost({ networkId, mtu: 1450, interfaceName, addresses: legs })
  const vip = await machine('vip')
  await fabric.attach(nic(vip, networkId, '198.18.79.9', 'fd79::9'))
  await giveAddresses(vip, '198.18.79.9/24', 'fd79::9/64')
  await ip(['-n', vip, 'route', 'add', 'default', 'via', '198.18.79.1'])
  await ip(['-n', vip, '-6', 'route', 'add', 'default', 'via', 'fd79::1'])

  // A container behind a bridge of the host, as Docker and Podman have it.
  const container = await machine('container')
  const bridge = `kc${instance}`
  await ip(['link', 'add', 'name', bridge, 'type', 'bridge', 'forward_delay', '0'])
  t.teardown(async () => {
    await ip(['link', 'delete', 'dev', `kv${instance}`])
    await ip(['link', 'delete', 'dev', bridge])
  })
  await ip(['link', 'add', 'name', `kv${instance}`, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', container])
  await ip(['link', 'set', 'dev', `kv${instance}`, 'master', bridge, 'up'])
  await ip(['address', 'add', '198.18.88.1/24', 'dev', bridge])
  await ip(['address', 'add', 'fd88::1/64', 'dev', bridge, 'nodad'])
  await ip(['link', 'set', 'dev', bridge, 'up'])
  await giveAddresses(container, '198.18.88.2/24', 'fd88::2/64', '169.254.169.254/32')
  await ip(['-n', container, 'route', 'add', 'default', 'via', '198.18.88.1'])
  await ip(['-n', container, '-6', 'route', 'add', 'default', 'via', 'fd88::1'])
  await ip(['route', 'add', '169.254.169.254/32', 'dev', bridge])
  const [elsewhere, denied] = [await lan.machine(11), await lan.machine(12)]

  const settle = (name: string, namespace: string | null) =>
    inhabit(name, (program, args) => start(namespace, program, args), [8080, 8081])
  const [inside, box, far] = [await settle('vip', vip), await settle('box', container), await settle('far', elsewhere)]
  await settle('denied', denied)
  await settle('host', null)
  const ask = (address: string, port = 8080) => inside.ask(address, { ...soon, port })
  const reached = () =>
    Promise.all(['198.18.88.2', 'fd88::2', lan.address.v4(11), lan.address.v6(11)].map(to => ask(to)))

  t.same(await reached(), [null, null, null, null], 'by default they reach nothing')
  await guardOutside({ ...outside, enabled: true })
  t.ok((await forwards('ipv4')) && (await forwards('ipv6')), 'the host forwards')
  const byHost = ['box 198.18.88.1', 'box fd88::1', `far ${lan.address.v4(1)}`, `far ${lan.address.v6(1)}`]
  t.same(await reached(), byHost, 'by the host’s addresses, over IPv4 and IPv6')
  await guardOutside({ ...outside, enabled: true })
  t.same(await reached(), byHost, 'a second time too')
  t.same(
    await Promise.all([ask(lan.address.v4(12)), ask('169.254.169.254')]),
    [null, null],
    'but no denied address and no metadata service',
  )
  t.same(
    await Promise.all([...addresses, '198.18.88.1', lan.address.v4(1), lan.address.v6(1)].map(address => ask(address))),
    [null, null, null, null, null],
    'nor the host itself',
  )
  t.same(
    await Promise.all([...addresses, '198.18.88.1'].map(address => ask(address, 8081))),
    ['host 198.18.79.9', 'host fd79::9', null],
    'except the open port, at the leg’s own addresses',
  )
  await ip(['-n', elsewhere, 'route', 'add', '198.18.79.0/24', 'via', lan.address.v4(1)])
  await ip(['-n', elsewhere, '-6', 'route', 'add', 'fd79::/64', 'via', lan.address.v6(1)])
  t.same(
    [await far.ask('198.18.79.9', soon), await far.ask('fd79::9', soon), await box.ask('198.18.79.9', soon)],
    [`vip ${lan.address.v4(11)}`, `vip ${lan.address.v6(11)}`, 'vip 198.18.88.2'],
    'who has a route reaches a VIP, which sees the client’s own address',
  )
  await guardOutside({ ...outside, enabled: false })
  t.same(await reached(), [null, null, null, null], 'and it ends when the operator says so')
  await closeOutside(interfaceName)
  await closeOutside(interfaceName)
  t.same([await forwards('ipv4'), await forwards('ipv6')], before, 'the host forwards as before')
})
