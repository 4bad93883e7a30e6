import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { until } from '../support/worlds/krater.js'
import { startOvnKrater } from '../support/worlds/ovn-krater.js'
import type { Place } from '../support/worlds/ovn-place.js'

type Router = {
  id: string
  external_gateway_info: { network_id: string; external_fixed_ips: { ip_address: string }[] }
}
type Listed<K extends string> = Record<K, { id: string; name: string }[]>

/** Nine networks, so that the client's is the tenth. */
const ELSEWHERE = Array.from({ length: 9 }, (_, index) => `198.51.100.${16 * index}/28`)

t.test('load balancers in OVN, without a machine', async t => {
  const world = await startOvnKrater(t)
  const { krater, lb, net, nb, sb, settled } = world
  const subnet = async (name: string) => (await net<Listed<'subnets'>>('GET', `/subnets?name=${name}`)).subnets[0]!.id
  const [v4, v6] = [await subnet('private-subnet'), await subnet('private-ipv6-subnet')]
  const one = await world.settle('private', 'one')
  const two = await world.settle('private', 'two')
  const client = await world.settle('private', 'client')
  const membersAt = (...places: Place[]) =>
    places.flatMap(place => [
      { address: place.v4, subnet_id: v4, protocol_port: 8080 },
      { address: place.v6, subnet_id: v6, protocol_port: 8080 },
    ])
  const listener = (protocol: string) => ({
    ...{ name: protocol, protocol, protocol_port: 8080 },
    default_pool: { name: protocol, protocol, lb_algorithm: 'SOURCE_IP_PORT', members: membersAt(one, two) },
  })
  const created = await lb<{ loadbalancer: { id: string; vip_address: string; vip_port_id: string } }>(
    'POST',
    '/loadbalancers',
    {
      loadbalancer: {
        ...{ name: 'web', provider: 'ovn', vip_subnet_id: v4, additional_vips: [{ subnet_id: v6 }] },
        listeners: [listener('TCP'), listener('UDP')],
      },
    },
  )
  const { id, vip_address: vip, vip_port_id: vipPort } = created.loadbalancer
  await settled(id)
  const { loadbalancer } = await lb<{ loadbalancer: { additional_vips: { ip_address: string }[] } }>(
    'GET',
    `/loadbalancers/${id}`,
  )
  const vip6 = loadbalancer.additional_vips[0]!.ip_address
  const { pools } = await lb<Listed<'pools'>>('GET', `/pools?loadbalancer_id=${id}`)
  const [tcp, udp] = ['TCP', 'UDP'].map(name => pools.find(pool => pool.name === name)!.id)
  const { members } = await lb<{ members: { id: string; address: string }[] }>('GET', `/pools/${tcp}/members`)
  const memberAt = (address: string) => members.find(member => member.address === address)!.id
  const change = async (path: string, body: object) => {
    await lb('PUT', path, body)
    await settled(id)
  }
  const listenerOf = async (name: string) =>
    (await lb<Listed<'listeners'>>('GET', `/listeners?loadbalancer_id=${id}&name=${name}`)).listeners[0]!
  /** Who answers many times, with the address that they see. */
  const answers = async (from: Place, address: string, how: { protocol?: 'tcp' | 'udp' } = {}) =>
    new Set(await Promise.all(Array.from({ length: 24 }, () => from.ask(address, how))))

  await t.test('balance TCP and UDP of both families, and members see the clients', async t => {
    for (const [address, own] of [
      [vip, client.v4],
      [vip6, client.v6],
    ] as const)
      for (const protocol of ['tcp', 'udp'] as const)
        t.same(
          await answers(client, address, { protocol }),
          new Set([`one ${own}`, `two ${own}`]),
          `${protocol} ${address}`,
        )
  })

  await t.test('are ONLINE at once, and count nothing', async t => {
    await until('ONLINE', async () => {
      const shown = await lb<{ loadbalancer: { operating_status: string } }>('GET', `/loadbalancers/${id}`)
      return shown.loadbalancer.operating_status === 'ONLINE'
    })
    const { stats } = await lb<{ stats: object }>('GET', `/loadbalancers/${id}/stats`)
    t.same(new Set(Object.values(stats)), new Set([null]))
  })

  await t.test('give a drained member nothing new, and leave its flows', async t => {
    const flows = await Promise.all(Array.from({ length: 12 }, () => client.open(vip)))
    const before = await Promise.all(flows.map(flow => client.say(flow)))
    t.equal(new Set(before).size, 2)
    await change(`/pools/${tcp}/members/${memberAt(one.v4)}`, { member: { weight: 0 } })
    t.same(await answers(client, vip), new Set([`two ${client.v4}`]))
    t.same(await Promise.all(flows.map(flow => client.say(flow))), before)
    await change(`/pools/${tcp}/members/${memberAt(one.v4)}`, { member: { weight: 1 } })
  })

  await t.test('refuse clients at once when no member is left', async t => {
    for (const place of [one, two])
      await change(`/pools/${tcp}/members/${memberAt(place.v4)}`, { member: { admin_state_up: false } })
    const started = performance.now()
    t.equal(await client.ask(vip, { waitMs: 10_000 }).then(text => text), null)
    t.ok(performance.now() - started < 5_000, 'by a reset, not by silence')
    for (const place of [one, two])
      await change(`/pools/${tcp}/members/${memberAt(place.v4)}`, { member: { admin_state_up: true } })
    t.equal((await answers(client, vip)).size, 2)
  })

  await t.test('keep a client with its member', async t => {
    await change(`/pools/${udp}`, { pool: { session_persistence: { type: 'SOURCE_IP' } } })
    const first = await client.ask(vip, { protocol: 'udp' })
    t.ok(first, 'by its address, from its first packet on')
    t.same(await answers(client, vip, { protocol: 'udp' }), new Set([first]))
    await change(`/pools/${udp}`, { pool: { session_persistence: { type: 'SOURCE_IP', persistence_timeout: 60 } } })
    // With a timeout, OVN remembers it, and drops the first packet of each client.
    for (const address of [vip, vip6]) {
      await client.ask(address, { protocol: 'udp', waitMs: 500 })
      const remembered = await client.ask(address, { protocol: 'udp' })
      t.ok(remembered)
      t.same(await answers(client, address, { protocol: 'udp' }), new Set([remembered]))
    }
  })

  await t.test('see what their probes see', async t => {
    const monitor = { type: 'TCP', delay: 1, timeout: 1, max_retries: 1, max_retries_down: 1, pool_id: tcp }
    const { healthmonitor } = await lb<{ healthmonitor: { id: string } }>('POST', '/healthmonitors', {
      healthmonitor: monitor,
    })
    await settled(id)
    const statusOf = async (member: string) =>
      (await lb<{ member: { operating_status: string } }>('GET', `/pools/${tcp}/members/${member}`)).member
        .operating_status
    await until('both are ONLINE', async () => (await statusOf(memberAt(one.v4))) === 'ONLINE')
    await change(`/pools/${tcp}/members/${memberAt(one.v4)}`, { member: { name: 'moved' } })
    const dead = await lb<{ member: { id: string } }>('POST', `/pools/${tcp}/members`, {
      member: { address: one.v4, protocol_port: 9, subnet_id: v4 },
    })
    await settled(id)
    await until('nothing listens there', async () => (await statusOf(dead.member.id)) === 'ERROR')
    t.same(await answers(client, vip), new Set([`one ${client.v4}`, `two ${client.v4}`]), 'and it gets nothing')
    const shown = await lb<{ pool: { operating_status: string } }>('GET', `/pools/${tcp}`)
    t.equal(shown.pool.operating_status, 'DEGRADED')
    await lb('DELETE', `/healthmonitors/${healthmonitor.id}`)
    await settled(id)
    await until('nobody knows any more', async () => (await statusOf(dead.member.id)) === 'NO_MONITOR')
    await until(
      'OVN probes nothing',
      async () => (await sb('--bare', '--columns=_uuid', 'list', 'Service_Monitor')).trim() === '',
    )
    await lb('DELETE', `/pools/${tcp}/members/${dead.member.id}`)
    await settled(id)
  })

  let outsider: Place
  let neighbour: Place
  await t.test('serve clients and use members behind routers, and by a floating IP', async t => {
    const { network } = await net<{ network: { id: string } }>('POST', '/networks', { network: { name: 'far' } })
    const far4 = await net<{ subnet: { id: string } }>('POST', '/subnets', {
      subnet: { network_id: network.id, ip_version: 4, cidr: '10.250.0.0/24' },
    })
    const far6 = await net<{ subnet: { id: string } }>('POST', '/subnets', {
      subnet: { network_id: network.id, ip_version: 6, cidr: 'fd00:250::/64' },
    })
    const outside = (await net<Listed<'networks'>>('GET', '/networks?name=public')).networks[0]!.id
    const { router } = await net<{ router: Router }>('POST', '/routers', {
      router: { name: 'edge', external_gateway_info: { network_id: outside } },
    })
    for (const subnet_id of [v4, v6, far4.subnet.id, far6.subnet.id])
      await net('PUT', `/routers/${router.id}/add_router_interface`, { subnet_id })
    neighbour = await world.settle('far', 'neighbour')
    for (const [address, own] of [
      [vip, neighbour.v4],
      [vip6, neighbour.v6],
    ] as const) {
      await until(`${address} answers behind the router`, async () => (await neighbour.ask(address)) !== null)
      t.same(await answers(neighbour, address), new Set([`one ${own}`, `two ${own}`]))
    }
    await lb('POST', `/pools/${tcp}/members`, {
      member: { address: neighbour.v4, protocol_port: 8080, subnet_id: far4.subnet.id },
    })
    await settled(id)
    await until('a member behind the router answers', async () =>
      [...(await answers(client, vip))].some(answer => answer?.startsWith('neighbour')),
    )
    const created = await net<{ floatingip: { id: string; floating_ip_address: string } }>('POST', '/floatingips', {
      floatingip: { floating_network_id: outside, port_id: vipPort },
    })
    const floating = created.floatingip.floating_ip_address
    outsider = await world.settle('public', 'outsider')
    await until('the floating IP answers', async () => (await outsider.ask(floating)) !== null)
    t.ok([...(await answers(outsider, floating))].every(answer => answer?.endsWith(` ${outsider.v4}`)))
    await change(`/listeners/${(await listenerOf('TCP')).id}`, {
      listener: { allowed_cidrs: [`${client.v4}/32`, ...ELSEWHERE] },
    })
    t.equal(await outsider.ask(floating, { waitMs: 1_500 }), null, 'allowed_cidrs count there')
    t.equal(await two.ask(vip, { waitMs: 1_500 }), null, 'and on its own network')
    t.ok(await client.ask(vip))
    // Nobody on the public network needs a floating IP to send something to the router.
    await outsider.route(vip, router.external_gateway_info.external_fixed_ips[0]!.ip_address)
    await outsider.route(vip6, router.external_gateway_info.external_fixed_ips[1]!.ip_address)
    for (const address of [vip, vip6])
      t.equal(await outsider.ask(address, { waitMs: 1_500 }), null, `${address} by the router`)
    const outsiders = [outsider.v4, outsider.v6].map(address => `${address}/${address.includes(':') ? 128 : 32}`)
    await change(`/listeners/${(await listenerOf('TCP')).id}`, { listener: { allowed_cidrs: outsiders } })
    for (const [address, own] of [
      [vip, outsider.v4],
      [vip6, outsider.v6],
    ] as const)
      t.match(await outsider.ask(address), new RegExp(` ${own}$`), `${address} by the router, if they allow it`)
    await change(`/listeners/${(await listenerOf('TCP')).id}`, { listener: { allowed_cidrs: [] } })
    t.ok(await outsider.ask(floating))
    await net('DELETE', `/floatingips/${created.floatingip.id}`)
  })

  await t.test('serve while the gateway of a router comes and goes', async t => {
    const edge = (await net<{ routers: Router[] }>('GET', '/routers?name=edge')).routers[0]!
    const { network_id } = edge.external_gateway_info
    const flows = await Promise.all(Array.from({ length: 6 }, () => neighbour.open(vip)))
    const before = await Promise.all(flows.map(flow => neighbour.say(flow)))
    t.notOk(before.includes(null))
    const pid = readFileSync(join(krater.directory, 'ovn', 'switch.pid'), 'utf8')
    let isOver = false
    const asking = (async () => {
      while (!isOver) t.ok(await neighbour.ask(vip), 'the router leads to the VIP')
    })()
    const leads = async (gateway: object | null) => {
      await net('PUT', `/routers/${edge.id}`, { router: { external_gateway_info: gateway } })
      await until(
        gateway === null ? 'the gateway is gone' : 'it is there',
        async () => ((await nb('--bare', '--columns=_uuid', 'list', 'gateway_chassis')) === '') === (gateway === null),
      )
      await nb('--wait=hv', 'sync')
    }
    for (let turn = 0; turn < 3; turn++) {
      // The gateway does not wait for whoever balances by it.
      process.kill(krater.pidOf('worker'), 'SIGSTOP')
      await leads(null)
      t.equal((await nb('--bare', '--columns=load_balancer', 'list', 'logical_router')).trim(), '')
      process.kill(krater.pidOf('worker'), 'SIGCONT')
      await leads({ network_id })
      const { router } = await net<{ router: Router }>('GET', `/routers/${edge.id}`)
      await outsider.route(vip, router.external_gateway_info.external_fixed_ips[0]!.ip_address)
      await until('the router balances again', async () => (await outsider.ask(vip)) !== null)
    }
    isOver = true
    await asking
    t.same(await Promise.all(flows.map(flow => neighbour.say(flow))), before, 'flows go on')
    t.equal(readFileSync(join(krater.directory, 'ovn', 'switch.pid'), 'utf8'), pid, 'Open vSwitch lives')
  })

  await t.test('come back when somebody changes or deletes their rows', async () => {
    const same = async () => (await krater.command('ovn', 'check')).status === 0
    await until('nothing differs', same)
    const vips = () => nb('--bare', '--columns=vips', 'find', 'load_balancer', `name=${tcpListener}`)
    const tcpListener = (await listenerOf('TCP')).id
    const right = await vips()
    await nb('clear', 'load_balancer', tcpListener, 'vips')
    await until('its VIPs are back', async () => (await vips()) === right)
    await nb('lb-del', tcpListener)
    await until('it is back', async () => (await vips()) === right)
    for (const table of ['ls', 'lr'] as const) {
      const list = await nb('--bare', '--columns=_uuid', 'list', table === 'ls' ? 'logical_switch' : 'logical_router')
      for (const uuid of list.split('\n').filter(Boolean)) await nb(`${table}-del`, uuid)
    }
    await until('all of an emptied database is back', same)
    await until('the VIP answers', async () => (await client.ask(vip)) !== null)
  })

  await t.test('show by `krater ovn check` what differs, and repair it by `krater ovn sync`', async t => {
    const pid = krater.pidOf('worker')
    process.kill(pid, 'SIGSTOP')
    await nb('clear', 'load_balancer', (await listenerOf('TCP')).id, 'vips')
    const found = await krater.command('ovn', 'check')
    t.match(found, { status: 1, stdout: new RegExp(`load-balancer/${id}:\\n  Load_Balancer \\S+ differs: vips`) })
    t.match(await krater.command('ovn', 'sync'), { status: 0, stdout: /Repaired 1 object: 1 difference\./ })
    t.match(await krater.command('ovn', 'check'), { status: 0, stdout: /OVN has what the tables say: \d+ objects\./ })
    await lb('PUT', `/loadbalancers/${id}`, { loadbalancer: { description: 'under way' } })
    const compared = await krater.command('ovn', 'check')
    t.match(compared, { status: 0, stdout: /^1 load balancer not compared: a change is under way\.\n/ })
    t.match(await krater.command('ovn', 'sync'), { status: 0, stdout: /Nothing to repair\./ })
    t.ok(await client.ask(vip), 'a load balancer under change keeps its rows')
    process.kill(pid, 'SIGCONT')
    await settled(id)
  })

  await t.test('are ACTIVE while their network is down, and serve once it is up', async t => {
    const { networks } = await net<Listed<'networks'>>('GET', '/networks?name=private')
    const setState = (admin_state_up: boolean) =>
      net('PUT', `/networks/${networks[0]!.id}`, { network: { admin_state_up } })
    await setState(false)
    await until('nobody answers', async () => (await client.ask(vip, { waitMs: 500 })) === null)
    await change(`/loadbalancers/${id}`, { loadbalancer: { description: 'down' } })
    await setState(true)
    await until('the VIP answers', async () => (await client.ask(vip)) !== null)
    t.match(await lb('GET', `/loadbalancers/${id}`), { loadbalancer: { provisioning_status: 'ACTIVE' } })
  })

  await t.test('serve while every part of OVN and of Krater dies, and are found again', async t => {
    for (const name of ['ovn-controller', 'ovn-northd', 'northbound', 'southbound', 'switch']) {
      const file = join(krater.directory, 'ovn', `${name}.pid`)
      const pidOf = () => (existsSync(file) ? Number(readFileSync(file, 'utf8')) : 0)
      const pid = pidOf()
      process.kill(pid, 'SIGKILL')
      // A switch pauses while it reads its database again, and a client waits before it repeats what was lost.
      t.ok(await client.ask(vip, name === 'switch' ? { waitMs: 8_000 } : {}), `without ${name}`)
      await until(`${name} is back`, () => ![0, pid].includes(pidOf()))
    }
    t.equal((await krater.command('down')).status, 0)
    t.ok(await client.ask(vip), 'after krater down')
    await krater.up()
    await change(`/pools/${tcp}/members/${memberAt(one.v4)}`, { member: { admin_state_up: false } })
    await until(
      'changes still take effect',
      async () => ![...(await answers(client, vip))].some(text => text?.startsWith('one')),
    )
  })

  await t.test('leave nothing when they are deleted', async t => {
    await world.remove(id)
    t.equal((await nb('--bare', '--columns=_uuid', 'list', 'load_balancer')).trim(), '')
    t.equal((await nb('--bare', '--columns=_uuid', 'list', 'load_balancer_health_check')).trim(), '')
    t.equal(
      (
        await nb('--bare', '--columns=_uuid', 'find', 'acl', `external_ids:"krater:owner"="load-balancer/${id}"`)
      ).trim(),
      '',
    )
    const { ports } = await net<{ ports: { device_owner: string }[] }>('GET', '/ports')
    t.same(
      ports.filter(({ device_owner }) => /^(Octavia|krater:balancer|ovn-lb-hm)/.test(device_owner)),
      [],
    )
    await until('nothing differs', async () => (await krater.command('ovn', 'check')).status === 0)
  })
})
