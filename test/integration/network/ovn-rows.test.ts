import t from 'tap'
import { desiredTopology } from '../../../controller/network/ovn/desired-topology.js'
import { A, startNetworkApi } from '../../support/clients/network-api.js'

const api = await startNetworkApi()
t.teardown(api.stop)
const { db, call, create } = api

/** What ends a match, an option or a list, and begins something else. */
const EVIL = '"} || 1 /* \\n, {evil'

t.test('texts of tenants do not reach rows of OVN', async t => {
  const texts = { name: EVIL, description: EVIL }
  const network = await create('network', texts)
  const subnet = await create('subnet', {
    ...{ ...texts, network_id: network.id, cidr: '10.30.0.0/24', dns_nameservers: ['10.30.0.53'] },
    host_routes: [{ destination: '10.31.0.0/16', nexthop: '10.30.0.9' }],
  })
  const group = await create('security_group', texts)
  const rule = { security_group_id: group.id, direction: 'ingress', description: EVIL }
  await create('security_group_rule', { ...rule, protocol: 'tcp', port_range_min: 80, port_range_max: 90 })
  await create('security_group_rule', { ...rule, remote_group_id: group.id })
  const port = await create('port', {
    ...{ ...texts, network_id: network.id, device_id: EVIL, device_owner: 'compute:evil', security_groups: [group.id] },
    allowed_address_pairs: [{ ip_address: '10.30.0.128/25' }],
  })
  const router = await create('router', texts)
  await call(`PUT /v2.0/routers/${router.id}/add_router_interface`, A, { subnet_id: subnet.id })
  for (const [kind, { id }] of [
    ['networks', network],
    ['subnets', subnet],
    ['ports', port],
    ['routers', router],
  ] as const)
    t.equal((await call(`PUT /v2.0/${kind}/${id}/tags`, A, { tags: ['evil'] })).status, 200)

  await t.test('and where rows need a value, it must be one', async t => {
    const values: [operation: string, kind: string, body: (text: string) => object][] = [
      [`PUT /v2.0/subnets/${subnet.id}`, 'subnet', text => ({ dns_nameservers: [text] })],
      [`PUT /v2.0/subnets/${subnet.id}`, 'subnet', text => ({ gateway_ip: text })],
      [
        `PUT /v2.0/subnets/${subnet.id}`,
        'subnet',
        text => ({ host_routes: [{ destination: '10.0.0.0/8', nexthop: text }] }),
      ],
      [
        `PUT /v2.0/subnets/${subnet.id}`,
        'subnet',
        text => ({ host_routes: [{ destination: text, nexthop: '10.30.0.9' }] }),
      ],
      ['POST /v2.0/subnets', 'subnet', text => ({ network_id: network.id, cidr: text })],
      [
        'POST /v2.0/subnets',
        'subnet',
        text => ({ network_id: network.id, cidr: '10.32.0.0/24', ipv6_address_mode: text }),
      ],
      [`PUT /v2.0/ports/${port.id}`, 'port', text => ({ mac_address: text })],
      [`PUT /v2.0/ports/${port.id}`, 'port', text => ({ fixed_ips: [{ ip_address: text }] })],
      [`PUT /v2.0/ports/${port.id}`, 'port', text => ({ allowed_address_pairs: [{ ip_address: text }] })],
      [
        `PUT /v2.0/ports/${port.id}`,
        'port',
        text => ({ allowed_address_pairs: [{ ip_address: '10.30.0.7', mac_address: text }] }),
      ],
      [
        `PUT /v2.0/ports/${port.id}`,
        'port',
        text => ({ extra_dhcp_opts: [{ opt_name: 'bootfile-name', opt_value: text }] }),
      ],
      [`PUT /v2.0/ports/${port.id}`, 'port', text => ({ dns_name: text })],
      [`PUT /v2.0/routers/${router.id}`, 'router', text => ({ routes: [{ destination: text, nexthop: '10.30.0.9' }] })],
      [
        `PUT /v2.0/routers/${router.id}`,
        'router',
        text => ({ routes: [{ destination: '10.0.0.0/8', nexthop: text }] }),
      ],
      ['POST /v2.0/security-group-rules', 'security_group_rule', text => ({ ...rule, protocol: text })],
      ['POST /v2.0/security-group-rules', 'security_group_rule', text => ({ ...rule, remote_ip_prefix: text })],
      ['POST /v2.0/security-group-rules', 'security_group_rule', text => ({ ...rule, ethertype: text })],
      [
        'POST /v2.0/security-group-rules',
        'security_group_rule',
        text => ({ ...rule, protocol: 'tcp', port_range_min: text, port_range_max: text }),
      ],
    ]
    const evil = [EVIL, '10.30.0.5 || 1', '10.30.0.5/24, evil', '10.30.0.5\n', '::1}', 'tcp || ip4']
    for (const [operation, kind, body] of values)
      for (const text of evil)
        t.equal(
          (await call(operation, A, { [kind]: body(text) })).status,
          400,
          `${operation} ${JSON.stringify(body(text))}`,
        )
  })

  const desired = await desiredTopology(db, {
    ...{ instance: 'abcdef', hostLegOf: () => null, isPhysicalByNetwork: true, gateways: () => ['chassis'] },
  })
  const owners = new Set(desired.map(({ owner }) => owner.split('/')[0]))
  for (const kind of ['network', 'port', 'router', 'security-group', 'filter']) t.ok(owners.has(kind), kind)
  t.notMatch(JSON.stringify(desired), /evil/, 'no name, description, tag or device')
  t.match(JSON.stringify(desired), /10\.31\.0\.0\/16,10\.30\.0\.9/, 'but values are there')
})
