import { existsSync } from 'node:fs'
import t from 'tap'
import { type OpenstackSession, openstackSession } from '../support/clients/openstack-session.js'
import { until } from '../support/worlds/krater.js'
import { startOvnKrater } from '../support/worlds/ovn-krater.js'

const NO_SCTP =
  'Open vSwitch runs without its kernel module here, and tracks no SCTP connections; load the module openvswitch, or use the provider amphora for it'
const NOTHING = {
  active_connections: null,
  bytes_in: null,
  bytes_out: null,
  request_errors: null,
  total_connections: null,
}

t.test('load balancers in OVN by the `openstack` command', async t => {
  t.setTimeout(1_100_000)
  const world = await startOvnKrater(t)
  const { krater, lb } = world
  const user = openstackSession(t, krater, 'krater')
  const admin = openstackSession(t, krater, 'krater-admin')
  const shown = async (line: string) => (await user.show(`loadbalancer ${line}`)) as Record<string, string>
  const done = (line: string) => user.done(`loadbalancer ${line}`)
  const one = await world.settle('private', 'one')
  const two = await world.settle('private', 'two')

  await t.test('the provider is offered, and has no capabilities for flavors and zones', async t => {
    const names = (await user.list('loadbalancer provider list')).map(({ name }) => name)
    t.same(names.sort(), ['amphora', 'noop_driver', 'octavia', 'ovn'])
    for (const kind of ['flavor', 'availability-zone'])
      t.match(await admin.refused(`loadbalancer provider capability list --${kind} ovn`), {
        status: 1,
        stderr: new RegExp(
          `Provider 'ovn' does not support a requested action: ${kind.replace('-', '_')}_capabilities.*HTTP 501`,
        ),
      })
  })

  await t.test('create, with additional VIPs, listeners, pools, members and monitors', async t => {
    const made = await shown(
      'create --name web --provider ovn --vip-subnet-id private-subnet --additional-vip subnet-id=private-ipv6-subnet --wait',
    )
    t.match(made, { provider: 'ovn', provisioning_status: 'ACTIVE', vip_address: /^\d+\./ })
    const pool = '--lb-algorithm SOURCE_IP_PORT --wait'
    for (const [name, protocol] of [
      ['tcp', 'TCP'],
      ['udp', 'UDP'],
    ] as const) {
      await done(`listener create --name ${name} --protocol ${protocol} --protocol-port 8080 --wait web`)
      t.match(
        await shown(`pool create --name ${name} --protocol ${protocol} --listener ${name} ${pool}`),
        { provisioning_status: 'ACTIVE', lb_algorithm: 'SOURCE_IP_PORT' },
        name,
      )
      for (const place of [one, two])
        for (const [address, subnet] of [
          [place.v4, 'private-subnet'],
          [place.v6, 'private-ipv6-subnet'],
        ])
          await done(`member create --address ${address} --protocol-port 8080 --subnet-id ${subnet} --wait ${name}`)
    }
    await done('healthmonitor create --name ping --type TCP --delay 1 --timeout 1 --max-retries 1 --wait tcp')
    await done('healthmonitor create --name pong --type UDP-CONNECT --delay 3 --timeout 2 --max-retries 1 --wait udp')
    await until('all of it is ONLINE', async () => {
      const members = await user.list('loadbalancer member list tcp')
      return members.length === 4 && members.every(({ operating_status: status }) => status === 'ONLINE')
    })
    const { vip_address: vip, additional_vips: more } = await shown('show web')
    t.match(await two.ask(vip!), /^(one|two) /)
    t.match(await two.ask(String(more).match(/fd[0-9a-f:]+/)?.[0] ?? ''), /^(one|two) /)
  })

  await t.test('show statuses, and statistics that nobody counts as null', async t => {
    const tree = await statuses(user)
    t.notMatch(JSON.stringify(tree), /amphora/i)
    t.match(tree, {
      ...{ name: 'web', provisioning_status: 'ACTIVE' },
      listeners: [{ pools: [{ members: [{ provisioning_status: 'ACTIVE' }], health_monitor: { type: /./ } }] }],
    })
    t.same(await shown('stats show web'), NOTHING)
    t.same(await shown('listener stats show tcp'), NOTHING)
    const table = await user.run('loadbalancer stats show web')
    t.match(table, { status: 0, stdout: /total_connections +\| None/ }, 'also as a table')
    t.match(await user.run('loadbalancer listener stats show tcp'), { status: 0, stdout: /bytes_in +\| None/ })
    t.same(await admin.list('loadbalancer amphora list --loadbalancer web'), [])
  })

  await t.test('change what OVN can change', async t => {
    const persistence = '--session-persistence type=SOURCE_IP'
    await done(`pool set ${persistence} --wait tcp`)
    t.match(await shown('pool show tcp'), { session_persistence: /SOURCE_IP/ })
    await done('pool set --lb-algorithm SOURCE_IP --wait tcp')
    await done('pool unset --session-persistence --wait tcp')
    await done(`pool set ${persistence} --wait udp`)
    await done('listener set --allowed-cidr 198.51.100.0/24 --wait tcp')
    const { vip_address: vip } = await shown('show web')
    t.equal(await two.ask(vip!, { waitMs: 1_500 }), null, 'only these clients come')
    await done('listener unset --allowed-cidrs --wait tcp')
    t.ok(await two.ask(vip!))
    for (const [kind, name] of [
      ['listener', 'tcp'],
      ['pool', 'tcp'],
    ]) {
      await done(`${kind} set --disable --wait ${name}`)
      t.equal(await two.ask(vip!, { waitMs: 1_500 }), null, `a disabled ${kind} serves nobody`)
      await done(`${kind} set --enable --wait ${name}`)
      t.ok(await two.ask(vip!))
    }
    const members = await user.list('loadbalancer member list tcp')
    const firsts = members.filter(({ address }) => address === one.v4 || address === one.v6)
    for (const { id } of firsts) await done(`member set --weight 0 --wait tcp ${id}`)
    for (let i = 0; i < 8; i++) t.match(await two.ask(vip!), /^two /, 'a member of weight 0 gets nothing new')
    for (const { id } of firsts) await done(`member set --weight 1 --wait tcp ${id}`)
    await done('set --disable --wait web')
    t.equal(await two.ask(vip!, { waitMs: 1_500 }), null, 'nor does a disabled load balancer')
    await done('set --enable --wait web')
    t.ok(await two.ask(vip!))
  })

  await t.test('a VIP on a network, and on a port without security groups', async t => {
    t.match(await shown('create --name net --provider ovn --vip-network-id private --disable --wait'), {
      ...{ provisioning_status: 'ACTIVE', admin_state_up: false, vip_address: /^\d+\./ },
    })
    await done('pool create --name far --loadbalancer net --protocol TCP --lb-algorithm SOURCE_IP --wait')
    t.match(
      await user.refused(`loadbalancer member create --address ${one.v6} --protocol-port 80 far`),
      {
        status: 1,
        stderr: `requested option: Mixing IPv4 and IPv6: member ${one.v6}; give the load balancer an additional VIP of its IP version (HTTP 501)`,
      },
      'without a VIP of theirs, members are out of reach',
    )
    await done('delete --cascade --wait net')
    await user.done('port create --network private --no-security-group plain')
    t.match(
      await shown('create --name port --provider ovn --vip-port-id plain --vip-subnet-id private-subnet --wait'),
      {
        provisioning_status: 'ACTIVE',
      },
    )
    await user.done('port create --network private guarded')
    t.match(
      await user.refused('loadbalancer create --provider ovn --vip-port-id guarded --vip-subnet-id private-subnet'),
      {
        status: 1,
        stderr:
          /requested option: a VIP port with security groups: OVN balances before it looks at them; use a port without security groups, and allowed_cidrs of listeners \(HTTP 501\)/,
      },
    )
    await user.done('port delete guarded')
    await done('delete --wait port')
    t.match(await user.show('port show plain'), { device_id: '' }, 'which its owner keeps')
    await user.done('port delete plain')
  })

  await t.test('the VIP’s floating IP', async t => {
    await user.done('router create edge')
    await user.done('router set --external-gateway public edge')
    await admin.done('router add subnet edge private-subnet')
    const { vip_port_id: port } = await shown('show web')
    const { floating_ip_address: address } = await user.show(`floating ip create --port ${port} public`)
    const outsider = await world.settle('public', 'outsider')
    await until('it answers', async () => (await outsider.ask(String(address))) !== null)
    t.match(await user.refused(`port delete ${port}`), { status: 1, stderr: /Octavia/ }, 'the VIP’s port stays')
    await user.done(`floating ip delete ${address}`)
    await until('it is gone', async () => (await outsider.ask(String(address), { waitMs: 500 })) === null)
    await admin.done('router remove subnet edge private-subnet')
    await user.done('router delete edge')
  })

  await t.test('what OVN cannot do is refused with a reason that people can read, and changes nothing', async t => {
    const before = await statuses(user)
    await refusals(t, user)
    t.same(await statuses(user), before)
    t.match(await admin.refused('loadbalancer failover web'), {
      status: 1,
      stderr: /requested action: failover: no machine serves the load balancer, every hypervisor does.*HTTP 501/,
    })
    const profile = 'loadbalancer flavorprofile create --name none --provider ovn --flavor-data {}'
    t.match(await admin.refused(profile), { status: 1, stderr: /Provider 'ovn' .*HTTP 501/ })
    await admin.done('loadbalancer flavorprofile create --name pair --provider amphora --flavor-data {}')
    await admin.done('loadbalancer flavor create --name pair --flavorprofile pair --enable')
    t.match(
      await user.refused('loadbalancer create --provider ovn --flavor pair --vip-subnet-id private-subnet'),
      { status: 1, stderr: /Flavor 'pair' is not compatible with provider 'ovn'.*HTTP 400/ },
      'a flavor is of its provider',
    )
    await admin.done(
      'loadbalancer availabilityzoneprofile create --name here --provider amphora --availability-zone-data {}',
    )
    await admin.done('loadbalancer availabilityzone create --name here --availabilityzoneprofile here --enable')
    t.match(
      await user.refused('loadbalancer create --provider ovn --availability-zone here --vip-subnet-id private-subnet'),
      { status: 1, stderr: /Provider 'ovn' does not support a requested action: Availability Zone data.*HTTP 501/ },
    )
    t.same(
      (await user.list('loadbalancer list')).map(({ name }) => name),
      ['web'],
    )
  })

  await t.test('names mean nothing to OVN, whatever they are', async t => {
    const name = '"; drop } || 1 == 1 && ip4.src == {0.0.0.0/0} \n$(id)'
    for (const words of [
      ...['listener', 'pool'].map(kind => ['loadbalancer', kind, 'set', '--name', name, '--wait', 'udp']),
      ['loadbalancer', 'set', '--description', name, '--wait', 'web'],
      ['network', 'create', name],
      ['security', 'group', 'create', '--description', name, name],
    ])
      t.match(await user.call(words), { status: 0 }, words.slice(0, 3).join(' '))
    await until('nothing differs', async () => (await krater.command('ovn', 'check')).status === 0)
    for (const table of ['load_balancer', 'acl', 'logical_switch', 'logical_switch_port', 'address_set', 'port_group'])
      t.notMatch(await world.nb('list', table), /drop \}|1 == 1/, table)
    t.match(await user.call(['network', 'delete', name]), { status: 0 })
    t.match(await user.call(['security', 'group', 'delete', name]), { status: 0 })
  })

  await t.test('a whole tree, refused as its parts are, and deleted at once', async t => {
    const { id: vip_subnet_id } = await user.show('subnet show private-subnet')
    const member = { address: one.v4, protocol_port: 8080 }
    const tree = (pool: object) =>
      lb<{ loadbalancer: { id: string; vip_address: string } }>('POST', '/loadbalancers', {
        loadbalancer: {
          ...{ name: 'tree', provider: 'ovn', vip_subnet_id },
          listeners: [
            {
              ...{ name: 'tree', protocol: 'TCP', protocol_port: 8080 },
              default_pool: { name: 'tree', protocol: 'TCP', lb_algorithm: 'SOURCE_IP_PORT', ...pool },
            },
          ],
        },
      })
    await t.rejects(tree({ members: [{ ...member, weight: 7 }] }), /weight 7: OVN knows no shares/)
    t.same(await user.list('loadbalancer list --name tree'), [])
    const { loadbalancer } = await tree({ members: [member] })
    await world.settled(loadbalancer.id)
    t.match(await two.ask(loadbalancer.vip_address), /^one /)
    t.match(await user.refused('loadbalancer delete tree'), { status: 1, stderr: /has children/ })
    for (const name of ['tree', 'web']) await done(`delete --cascade --wait ${name}`)
    t.same(await user.list('loadbalancer list'), [])
    t.equal((await world.nb('--bare', '--columns=_uuid', 'list', 'load_balancer')).trim(), '')
    t.notMatch(JSON.stringify(await admin.list('port list --long')), /Octavia|ovn-balancer|ovn-lb-hm/)
  })
})

/** What `status show` prints: JSON, without being asked for it. */
async function statuses(user: OpenstackSession): Promise<unknown> {
  const { status, stdout, stderr } = await user.run('loadbalancer status show web')
  if (status !== 0) throw new Error(stderr)
  return JSON.parse(stdout).loadbalancer
}

/** Every option that OVN cannot do, with the text that the command prints. */
async function refusals(
  t: { match: (found: unknown, wanted: unknown, title: string) => boolean },
  user: OpenstackSession,
) {
  const amphora = 'use the provider amphora for it'
  const layer4 = `OVN looks at addresses and ports only; ${amphora}`
  const noLayer7 = `OVN balances TCP, UDP, SCTP; ${amphora}`
  const noTime = `OVN opens no connections of its own, so it has no time limits for them; ${amphora}`
  const noCount = `OVN counts no connections; ${amphora}`
  const hashes = 'OVN chooses by a hash of addresses and ports; use SOURCE_IP_PORT or SOURCE_IP'
  const inPlace = `OVN probes members where they serve; ${amphora}`
  const shares = 'OVN knows no shares; use 1, or 0 for a member that gets nothing new'
  const ref = 'http://127.0.0.1:9311/v1/secrets/6f0c7d52-9f5e-4a0c-8d4e-0d5b8c1f7a11'
  const pool = 'pool create --loadbalancer web'
  const hash = '--lb-algorithm SOURCE_IP_PORT'
  const monitor = 'healthmonitor create --delay 5 --timeout 4 --max-retries 3 --type'
  const [member] = (await user.list('loadbalancer member list tcp')) as [{ id: string; address: string }]
  for (const [name, protocol] of [
    ['bare', 'TCP'],
    ['datagrams', 'UDP'],
  ])
    await user.done(`loadbalancer ${pool} --name ${name} --protocol ${protocol} ${hash} --wait`)

  type Refusal = [line: string, reason: string]
  /** The same option of a new object and of one that is there. */
  const both = (create: string, set: string, option: string, reason: string): Refusal[] => [
    [`${create} ${option}`, reason],
    [`${set} ${option}`, reason],
  ]
  const ofListeners = (option: string, reason: string): Refusal[] =>
    both('listener create --protocol TCP --protocol-port 81 web', 'listener set tcp', option, `Listener ${reason}`)
  const ofPools = (option: string, reason: string): Refusal[] =>
    both(`${pool} --protocol TCP ${hash}`, 'pool set tcp', option, `Pool ${reason}`)
  const ofMembers = (option: string, reason: string): Refusal[] => [
    [`member create --address ${member.address} --protocol-port 81 tcp ${option}`, `Member ${reason}`],
    [`member set tcp ${member.id} ${option}`, `Member ${reason}`],
  ]
  const hasKernelModule = existsSync('/sys/module/openvswitch')
  const lines: Refusal[] = [
    ...['HTTP', 'HTTPS', 'PROMETHEUS', `TERMINATED_HTTPS --default-tls-container-ref ${ref}`].map(
      (protocol): Refusal => [
        `listener create --protocol-port 81 web --protocol ${protocol}`,
        `Listener protocol '${protocol.split(' ')[0]}': ${noLayer7}`,
      ],
    ),
    ...(hasKernelModule ? [] : [`listener create --protocol-port 81 web`, `${pool} ${hash}`]).map(
      (line): Refusal => [
        `${line} --protocol SCTP`,
        `${line.startsWith('pool') ? 'Pool' : 'Listener'} protocol 'SCTP': ${NO_SCTP}`,
      ],
    ),
    ...ofListeners('--connection-limit 5', `connection_limit 5: ${noCount}`),
    ...['client-data', 'member-connect', 'member-data', 'tcp-inspect'].flatMap(name =>
      ofListeners(`--timeout-${name} 1234`, `timeout_${name.replace('-', '_')} 1234: ${noTime}`),
    ),
    ...ofListeners(
      Array.from({ length: 33 }, (_, index) => `--allowed-cidr 198.51.${index * 2}.0/24`).join(' '),
      `allowed_cidrs 33 CIDRs: OVN takes up to 32 for a listener; join neighbours, or ${amphora}`,
    ),
    ...['HTTP', 'HTTPS', 'PROXY', 'PROXYV2'].map(
      (protocol): Refusal => [`${pool} ${hash} --protocol ${protocol}`, `Pool protocol '${protocol}': ${noLayer7}`],
    ),
    ...['ROUND_ROBIN', 'LEAST_CONNECTIONS'].flatMap(name =>
      both(
        `${pool} --protocol TCP`,
        'pool set tcp',
        `--lb-algorithm ${name}`,
        `Pool lb_algorithm '${name}': ${hashes}`,
      ),
    ),
    ...[
      [
        'persistence_granularity=255.255.255.0',
        `granularity '255.255.255.0': OVN keeps each address with its member; ${amphora}`,
      ],
      ['persistence_timeout=70000', 'timeout 70000: OVN takes up to 65535 s'],
    ].flatMap(([option, reason]) =>
      both(
        `${pool} --protocol UDP ${hash}`,
        'pool set udp',
        `--session-persistence type=SOURCE_IP,${option}`,
        `Pool session_persistence persistence_${reason}`,
      ),
    ),
    ...ofPools('--enable-tls', `tls_enabled true: ${layer4}`),
    ...['ca-tls', 'tls'].flatMap(name =>
      ofPools(`--${name}-container-ref ${ref}`, `${name.replace('-', '_')}_container_ref "${ref}": ${layer4}`),
    ),
    ...ofMembers('--weight 5', `weight 5: ${shares}`),
    ...ofMembers('--enable-backup', `backup true: OVN knows no backup members; ${amphora}`),
    ...ofMembers('--monitor-port 9', `monitor_port 9: ${inPlace}`),
    ...ofMembers(`--monitor-address ${member.address}`, `monitor_address "${member.address}": ${inPlace}`),
    [
      'member create --address 10.99.0.9 --protocol-port 80 tcp',
      "Member subnet_id null: 10.99.0.9 is not on the VIP's network, so name its subnet",
    ],
    ...['HTTP', 'HTTPS', 'PING', 'TLS-HELLO'].map(
      (type): Refusal => [
        `${monitor} ${type} bare`,
        `Health Monitor type '${type}': OVN probes with TCP and UDP-CONNECT; use one of these, or ${amphora}`,
      ],
    ),
    [
      `${monitor} TCP datagrams`,
      `Health Monitor type 'TCP': OVN probes the members of UDP pools by UDP-CONNECT only; use that, or ${amphora}`,
    ],
    ...both(
      `${monitor} UDP-CONNECT datagrams`,
      'healthmonitor set pong',
      '--url-path /ping?pong',
      `Health Monitor url_path "/ping?pong": OVN looks at no answers; ${amphora}`,
    ),
    ...both(
      `${monitor} UDP-CONNECT datagrams`,
      'healthmonitor set pong',
      '--http-version 1.1',
      `Health Monitor http_version 1.1: ${layer4}`,
    ),
    ['l7policy create --action REJECT tcp', `L7 Policy action "REJECT": ${layer4}`],
  ]
  for (const [line, reason] of lines) {
    const { status, stderr } = await user.refused(`loadbalancer ${line}`)
    const text = stderr.replace(/\s+/g, ' ')
    const begin = "Provider 'ovn' does not support a requested option: "
    t.match([status, text], [1, `${begin}${reason} (HTTP 501)`], line)
  }
  for (const name of ['bare', 'datagrams']) await user.done(`loadbalancer pool delete --wait ${name}`)
}
