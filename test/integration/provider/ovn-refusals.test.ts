import t from 'tap'
import { createNoopNetworkDriver, noopPort, noopSubnet } from '../../../controller/network/noop/driver.js'
import { tokenOf } from '../../support/clients/callers.js'
import { idIn, type Json } from '../../support/clients/json-answers.js'
import { SUBNET, startTestApi } from '../../support/clients/load-balancer-api.js'

const noop = createNoopNetworkDriver()
const [FILTERED, LAN] = ['22222222-2222-4222-8222-222222222222', '33333333-3333-4333-8333-333333333333']
const api = await startTestApi({
  providers: ['amphora', 'ovn'],
  network: {
    ...noop,
    subnets: async ids => ids.map(id => ({ ...noopSubnet(id, 'any'), cidr: '203.0.113.0/24' })),
    findPort: async (_caller, id) => ({ ...noopPort(id, 'any'), securityGroups: id === FILTERED ? ['group'] : [] }),
    network: async id => {
      const found = await noop.network(id)
      return found === null ? null : { ...found, isPhysical: id === LAN }
    },
  },
})
t.teardown(api.stop)
const { ask, apply } = api

const base = '/v2/lbaas'
const OPTION = "Provider 'ovn' does not support a requested option: "
const LISTENER = { protocol: 'TCP', protocol_port: 80 }
const POOL = { protocol: 'TCP', lb_algorithm: 'SOURCE_IP_PORT' }
const DATAGRAMS = { protocol: 'UDP', lb_algorithm: 'SOURCE_IP_PORT' }
const MEMBER = { address: '203.0.113.20', protocol_port: 80 }
const MONITOR = { type: 'TCP', delay: 5, timeout: 3, max_retries: 2 }
const UDP_MONITOR = { ...MONITOR, type: 'UDP-CONNECT' }
const AMPHORA = 'use the provider amphora for it'
const TIME_LIMITS = `OVN opens no connections of its own, so it has no time limits for them; ${AMPHORA}`
const LAYER_4 = `OVN looks at addresses and ports only; ${AMPHORA}`
const NO_TLS = `OVN balances TCP, UDP, SCTP; ${AMPHORA}`
const WHERE_THEY_SERVE = `OVN probes members where they serve; ${AMPHORA}`
const REF = 'http://127.0.0.1:9311/v1/secrets/2f0c7d52-9f5e-4a0c-8d4e-0d5b8c1f7a11'

type Case = [attributes: Json, reason: string]

const LISTENERS: Case[] = [
  ...['HTTP', 'HTTPS', 'PROMETHEUS'].map((protocol): Case => [{ protocol }, `protocol '${protocol}': ${NO_TLS}`]),
  [{ protocol: 'TERMINATED_HTTPS', default_tls_container_ref: REF }, `protocol 'TERMINATED_HTTPS': ${NO_TLS}`],
  [
    { protocol: 'SCTP' },
    `protocol 'SCTP': Open vSwitch runs without its kernel module here, and tracks no SCTP connections; load the module openvswitch, or ${AMPHORA}`,
  ],
  [{ connection_limit: 100 }, `connection_limit 100: OVN counts no connections; ${AMPHORA}`],
  [{ timeout_client_data: 1_000 }, `timeout_client_data 1000: ${TIME_LIMITS}`],
  [{ timeout_member_connect: 1_000 }, `timeout_member_connect 1000: ${TIME_LIMITS}`],
  [{ timeout_member_data: 1_000 }, `timeout_member_data 1000: ${TIME_LIMITS}`],
  [{ timeout_tcp_inspect: 1_000 }, `timeout_tcp_inspect 1000: ${TIME_LIMITS}`],
  [
    { allowed_cidrs: Array.from({ length: 33 }, (_, index) => `198.51.${index * 2}.0/24`) },
    `allowed_cidrs 33 CIDRs: OVN takes up to 32 for a listener; join neighbours, or ${AMPHORA}`,
  ],
]
const POOLS: Case[] = [
  [{ protocol: 'HTTP' }, `protocol 'HTTP': ${NO_TLS}`],
  [{ protocol: 'PROXY' }, `protocol 'PROXY': ${NO_TLS}`],
  [{ protocol: 'PROXYV2' }, `protocol 'PROXYV2': ${NO_TLS}`],
  ...['ROUND_ROBIN', 'LEAST_CONNECTIONS'].map(
    (lb_algorithm): Case => [
      { lb_algorithm },
      `lb_algorithm '${lb_algorithm}': OVN chooses by a hash of addresses and ports; use SOURCE_IP_PORT or SOURCE_IP`,
    ],
  ),
  [
    { ...DATAGRAMS, session_persistence: { type: 'SOURCE_IP', persistence_granularity: '255.255.255.0' } },
    `session_persistence persistence_granularity '255.255.255.0': OVN keeps each address with its member; ${AMPHORA}`,
  ],
  [
    { ...DATAGRAMS, session_persistence: { type: 'SOURCE_IP', persistence_timeout: 70_000 } },
    'session_persistence persistence_timeout 70000: OVN takes up to 65535 s',
  ],
  [{ deregistration_delay: 0 }, 'deregistration_delay 0: OVN lets connections end by themselves; leave it at 30'],
  [{ tls_enabled: true }, `tls_enabled true: ${LAYER_4}`],
  [{ ca_tls_container_ref: REF }, `ca_tls_container_ref "${REF}": ${LAYER_4}`],
]
const MEMBERS: Case[] = [
  [{ weight: 2 }, 'weight 2: OVN knows no shares; use 1, or 0 for a member that gets nothing new'],
  [{ backup: true }, `backup true: OVN knows no backup members; ${AMPHORA}`],
  [{ monitor_address: '203.0.113.21' }, `monitor_address "203.0.113.21": ${WHERE_THEY_SERVE}`],
  [{ monitor_port: 81 }, `monitor_port 81: ${WHERE_THEY_SERVE}`],
]
const NEW_MEMBERS: Case[] = [
  ...MEMBERS,
  [{ request_sriov: true }, 'request_sriov true: OVN plugs in no interfaces for load balancers'],
  [{ address: '198.51.100.20' }, "subnet_id null: 198.51.100.20 is not on the VIP's network, so name its subnet"],
]
const MONITORS: Case[] = [
  ...['HTTP', 'HTTPS', 'PING', 'TLS-HELLO'].map(
    (type): Case => [{ type }, `type '${type}': OVN probes with TCP and UDP-CONNECT; use one of these, or ${AMPHORA}`],
  ),
  [{ http_version: 1.1 }, `http_version 1.1: ${LAYER_4}`],
]
const UDP_MONITORS: Case[] = [
  [{ type: 'TCP' }, `type 'TCP': OVN probes the members of UDP pools by UDP-CONNECT only; use that, or ${AMPHORA}`],
  [{ url_path: '/ping?pong' }, `url_path "/ping?pong": OVN looks at no answers; ${AMPHORA}`],
]

const without = (values: Json, name: string): Json =>
  Object.fromEntries(Object.entries(values).filter(([key]) => key !== name))

const refusalOf = (label: string, reason: string) => ({
  status: 501,
  body: { faultcode: 'Server', faultstring: `${OPTION}${label} ${reason}` },
})

t.test('what OVN cannot do is refused with the reason, and nothing changes', async t => {
  const made = await ask('POST', `${base}/loadbalancers`, {
    loadbalancer: {
      ...{ name: 'lb', provider: 'ovn', vip_subnet_id: SUBNET, vip_address: '203.0.113.10' },
      listeners: [{ ...LISTENER, default_pool: { ...POOL, name: 'tcp', members: [MEMBER] } }],
      pools: [{ ...DATAGRAMS, name: 'udp', healthmonitor: UDP_MONITOR }],
    },
  })
  const id = idIn(made, 'loadbalancer')
  const pathsOf = async (kind: string) =>
    ((await ask('GET', `${base}/${kind}?loadbalancer_id=${id}`)).body[kind] as { id: string; name: string }[]).map(
      one => ({ ...one, path: `${base}/${kind}/${one.id}` }),
    )
  await apply(id)
  const [listener] = await pathsOf('listeners')
  const pools = await pathsOf('pools')
  const [tcp, udp] = ['tcp', 'udp'].map(name => pools.find(pool => pool.name === name)!)
  const { members } = (await ask('GET', `${tcp!.path}/members`)).body as { members: { id: string }[] }
  const memberPath = `${tcp!.path}/members/${members[0]!.id}`
  const monitor = ((await ask('GET', `${base}/healthmonitors`)).body.healthmonitors as { id: string }[])[0]!
  const monitorPath = `${base}/healthmonitors/${monitor.id}`
  const everything = async () =>
    [
      await ask('GET', `${base}/loadbalancers/${id}/status`),
      await ask('GET', `${base}/loadbalancers`),
      await ask('GET', `${base}/listeners`),
      await ask('GET', `${base}/pools`),
      await ask('GET', `${tcp!.path}/members`),
      await ask('GET', `${base}/healthmonitors`),
    ].map(({ body }) => body)
  const before = await everything()
  t.match(before[1], { loadbalancers: [{ provisioning_status: 'ACTIVE' }] })

  const tree = (more: Json) => ({ loadbalancer: { provider: 'ovn', vip_subnet_id: SUBNET, ...more } })
  const inTree = (label: string, reason: string) => async (more: Json, way: string) =>
    t.match(
      await ask('POST', `${base}/loadbalancers`, tree(more)),
      refusalOf(label, reason),
      `${label} ${reason}, in a tree: ${way}`,
    )
  type Asked = [method: 'POST' | 'PUT', path: string, body: Json]
  const refused = async (label: string, reason: string, requests: readonly Asked[]) => {
    for (const [method, path, body] of requests)
      t.match(await ask(method, path, body), refusalOf(label, reason), `${method} ${path} ${JSON.stringify(body)}`)
  }

  for (const [values, reason] of LISTENERS) {
    const body = { ...LISTENER, protocol_port: 81, ...values }
    await refused('Listener', reason, [
      ['POST', `${base}/listeners`, { listener: { loadbalancer_id: id, ...body } }],
      ...('protocol' in values ? [] : ([['PUT', listener!.path, { listener: values }]] satisfies Asked[])),
    ])
    await inTree('Listener', reason)({ listeners: [body] }, 'listeners')
  }
  for (const [values, reason] of POOLS) {
    const body = { ...POOL, name: 'new', ...values }
    const target = 'session_persistence' in values ? udp! : tcp!
    const { protocol, ...others } = values
    // Of a case with another protocol, a change has what is not the pool's already.
    const change = protocol === undefined ? others : without(others, 'lb_algorithm')
    await refused('Pool', reason, [
      ['POST', `${base}/pools`, { pool: { loadbalancer_id: id, ...body } }],
      ...(Object.keys(change).length === 0 ? [] : ([['PUT', target.path, { pool: change }]] satisfies Asked[])),
    ])
    await inTree('Pool', reason)({ pools: [body] }, 'pools')
    if (protocol === undefined)
      await inTree('Pool', reason)({ listeners: [{ ...LISTENER, default_pool: body }] }, 'default_pool')
  }
  for (const [values, reason] of NEW_MEMBERS) {
    const body = { ...MEMBER, protocol_port: 81, ...values }
    const pool = { ...POOL, name: 'new', members: [body] }
    await refused('Member', reason, [
      ['POST', `${tcp!.path}/members`, { member: body }],
      ['PUT', `${tcp!.path}/members`, { members: [MEMBER, body] }],
      ['PUT', `${tcp!.path}/members?additive_only=true`, { members: [body] }],
      ['POST', `${base}/pools`, { pool: { loadbalancer_id: id, ...pool } }],
      [
        'POST',
        `${base}/listeners`,
        { listener: { loadbalancer_id: id, ...LISTENER, protocol_port: 81, default_pool: pool } },
      ],
    ])
    await inTree('Member', reason)({ vip_address: '203.0.113.11', pools: [pool] }, 'members')
  }
  for (const [values, reason] of MEMBERS)
    await refused('Member', reason, [
      ['PUT', memberPath, { member: values }],
      ['PUT', `${tcp!.path}/members`, { members: [{ ...MEMBER, ...values }] }],
    ])
  for (const [pool, poolBody, monitorBody, cases] of [
    [tcp!, POOL, MONITOR, MONITORS],
    [udp!, DATAGRAMS, UDP_MONITOR, UDP_MONITORS],
  ] as const)
    for (const [values, reason] of cases) {
      const body = { ...monitorBody, ...values }
      await refused('Health Monitor', reason, [
        ['POST', `${base}/healthmonitors`, { healthmonitor: { pool_id: pool.id, ...body } }],
        ...(pool === udp && !('type' in values)
          ? ([['PUT', monitorPath, { healthmonitor: values }]] satisfies Asked[])
          : []),
      ])
      await inTree('Health Monitor', reason)(
        { pools: [{ ...poolBody, name: 'new', healthmonitor: body }] },
        'healthmonitor',
      )
    }
  await refused('Health Monitor', `http_version 1.1: ${LAYER_4}`, [
    ['PUT', monitorPath, { healthmonitor: { http_version: 1.1 } }],
  ])
  const group = '44444444-4444-4444-8444-444444444444'
  for (const [values, reason] of [
    [
      { vip_sg_ids: [group] },
      `vip_sg_ids ["${group}"]: OVN balances before it looks at the VIP’s security groups; use allowed_cidrs of listeners`,
    ],
    [{ vip_qos_policy_id: group }, `vip_qos_policy_id "${group}": OVN shapes no traffic of a VIP`],
  ] satisfies Case[]) {
    await refused('Load Balancer', reason, [['PUT', `${base}/loadbalancers/${id}`, { loadbalancer: values }]])
    await inTree('Load Balancer', reason)(values, 'its own')
  }

  const mixed = `${OPTION}Mixing IPv4 and IPv6: member 2001:db8::7; give the load balancer an additional VIP of its IP version`
  const other = { address: '2001:db8::7', protocol_port: 80, subnet_id: SUBNET.replace('1', '2') }
  for (const [method, path, body] of [
    ['POST', `${tcp!.path}/members`, { member: other }],
    ['PUT', `${tcp!.path}/members`, { members: [MEMBER, other] }],
    ['POST', `${base}/pools`, { pool: { loadbalancer_id: id, ...POOL, members: [other] } }],
    ['POST', `${base}/loadbalancers`, tree({ pools: [{ ...POOL, name: 'new', members: [other] }] })],
  ] as const)
    t.match(await ask(method, path, body), { status: 501, body: { faultstring: mixed } }, `${method} ${path}`)

  t.same(await everything(), before, 'a refusal changes nothing, and creates nothing')
})

t.test('neither VIPs on physical networks nor VIP ports with security groups', async t => {
  const create = (more: Json) =>
    ask('POST', `${base}/loadbalancers`, { loadbalancer: { provider: 'ovn', name: 'placed', ...more } })
  t.match(await create({ vip_network_id: LAN }), {
    status: 501,
    body: {
      faultstring: `${OPTION}a VIP here: OVN does not balance what comes from a physical network; give the load balancer a VIP on another network and a floating IP`,
    },
  })
  t.match(await create({ vip_port_id: FILTERED }), {
    status: 501,
    body: {
      faultstring: `${OPTION}a VIP port with security groups: OVN balances before it looks at them; use a port without security groups, and allowed_cidrs of listeners`,
    },
  })
  t.same((await ask('GET', `${base}/loadbalancers?name=placed`)).body.loadbalancers, [])
})

t.test('no L7 policies, failover, flavors or availability zones', async t => {
  const made = await ask('POST', `${base}/loadbalancers`, {
    loadbalancer: { provider: 'ovn', vip_subnet_id: SUBNET, name: 'plain', listeners: [LISTENER] },
  })
  const id = idIn(made, 'loadbalancer')
  const { listeners } = (await ask('GET', `${base}/listeners?loadbalancer_id=${id}`)).body as { listeners: Json[] }
  const policy = { listener_id: listeners[0]!.id, action: 'REJECT' }
  t.match(
    await ask('POST', `${base}/l7policies`, { l7policy: policy }),
    refusalOf('L7 Policy', `action "REJECT": ${LAYER_4}`),
  )
  const admin = tokenOf('admin')
  t.match(await ask('PUT', `${base}/loadbalancers/${id}/failover`, undefined, admin), {
    status: 501,
    body: {
      faultstring:
        "Provider 'ovn' does not support a requested action: failover: no machine serves the load balancer, every hypervisor does",
    },
  })
  for (const [path, kind, label, field] of [
    ['flavorprofiles', 'flavorprofile', 'Flavor Profile', 'flavor_data'],
    ['availabilityzoneprofiles', 'availability_zone_profile', 'Availability Zone', 'availability_zone_data'],
  ] as const) {
    const body = { [kind]: { name: 'none', provider_name: 'ovn', [field]: '{}' } }
    t.match(
      await ask('POST', `${base}/${path}`, body, admin),
      { status: 501, body: { faultstring: /^Provider 'ovn' does not support a requested action: / } },
      label,
    )
  }
  for (const name of ['flavor_capabilities', 'availability_zone_capabilities'])
    t.match(await ask('GET', `${base}/providers/ovn/${name}`, undefined, admin), {
      status: 501,
      body: { faultstring: `Provider 'ovn' does not support a requested action: ${name}` },
    })
})

t.test('without networks in OVN, there is no such provider, and the refusal says how to get it', async t => {
  const other = await startTestApi({ providers: ['amphora'] })
  t.teardown(other.stop)
  const body = { loadbalancer: { provider: 'ovn', vip_subnet_id: SUBNET } }
  t.match(await other.ask('POST', `${base}/loadbalancers`, body), {
    status: 400,
    body: { faultstring: /^Provider 'ovn' is not enabled\. It needs networks in OVN: .*network\.driver=ovn\.$/ },
  })
  const strange = { loadbalancer: { provider: 'constructor', vip_subnet_id: SUBNET } }
  t.match(await other.ask('POST', `${base}/loadbalancers`, strange), {
    status: 400,
    body: { faultstring: /^Provider 'constructor' is not enabled\.$/ },
  })
  const { providers } = (await other.ask('GET', `${base}/providers`)).body as { providers: { name: string }[] }
  t.same(
    providers.map(({ name }) => name),
    ['amphora'],
  )
})
