import { randomUUID } from 'node:crypto'
import t from 'tap'
import { A, ADMIN, B, type Item, isFault, READER, startNetworkApi } from '../../support/clients/network-api.js'

const api = await startNetworkApi({ physical_networks: { lan: 'eth9', storage: 'eth8' } })
t.teardown(api.stop)
const { db, call, create, list, show } = api

t.test('security groups', async t => {
  await t.test('each project has a default group from its first request on', async t => {
    const [first, again] = await Promise.all([list('security-groups', '', READER), list('security-groups', '')])
    t.strictSame(first, again)
    t.match(first, [{ name: 'default', project_id: 'a', stateful: true, shared: false, tags: [] }])
    const rules = first[0]?.security_group_rules as Item[]
    const summary = rules.map(rule => [rule.direction, rule.ethertype, rule.remote_group_id]).sort()
    t.strictSame(summary, [
      ['egress', 'IPv4', null],
      ['egress', 'IPv6', null],
      ['ingress', 'IPv4', first[0]?.id],
      ['ingress', 'IPv6', first[0]?.id],
    ])
    const path = `/v2.0/security-groups/${first[0]?.id}`
    isFault(t, await call(`DELETE ${path}`, A), 409, 'SecurityGroupCannotRemoveDefault')
    const rename = await call(`PUT ${path}`, A, { security_group: { name: 'other' } })
    isFault(t, rename, 409, 'SecurityGroupCannotUpdateDefault')
    t.equal((await call(`PUT ${path}`, A, { security_group: { name: 'default', description: 'x' } })).status, 200)
    const second = await call('POST /v2.0/security-groups', B, { security_group: { name: 'Default' } })
    isFault(t, second, 409, 'SecurityGroupDefaultAlreadyExists')
    await Promise.all(Array.from({ length: 5 }, () => create('security_group', {}, B)))
    t.equal((await list('security-groups', 'name=default', B)).length, 1, 'concurrent first requests make one')
  })

  await t.test('a group and its rules change, and nobody repeats a rule', async t => {
    const group = await create('security_group', { name: 'web', stateful: false })
    t.match(group, { name: 'web', stateful: false, security_group_rules: { length: 2 }, revision_number: 1 })
    const other = await create('security_group', {})
    const post = (values: object, token = A) =>
      call('POST /v2.0/security-group-rules', token, {
        security_group_rule: { security_group_id: group.id, direction: 'ingress', ...values },
      })
    const web = { protocol: 'tcp', port_range_min: 80, port_range_max: '81', remote_ip_prefix: '192.0.2.9/24' }
    const made = await post({ ...web, description: 'from the office' })
    t.match(made, {
      status: 201,
      body: {
        security_group_rule: {
          security_group_id: group.id,
          direction: 'ingress',
          ethertype: 'IPv4',
          protocol: 'tcp',
          port_range_min: 80,
          port_range_max: 81,
          remote_ip_prefix: '192.0.2.0/24',
          normalized_cidr: '192.0.2.0/24',
          remote_group_id: null,
          description: 'from the office',
          project_id: 'a',
        },
      },
    })
    const { id } = made.body.security_group_rule as Item
    const same = new RegExp(`already exists\\. Rule id is ${id}`)
    isFault(t, await post({ ...web, protocol: 6 }), 409, 'SecurityGroupRuleExists', same)
    t.match(await post({ remote_group_id: group.id, ethertype: 'ipv6' }), { status: 201 })
    isFault(t, await post({ ethertype: 'IPv5' }), 400, 'SecurityGroupRuleInvalidEtherType')
    isFault(t, await post({ direction: 'sideways' }), 400, 'HTTPBadRequest', /not in \['ingress', 'egress'\]/)
    for (const remote_group_id of [randomUUID(), 'web']) {
      isFault(t, await post({ remote_group_id }), 404, 'SecurityGroupNotFound')
    }
    isFault(t, await post({ security_group_id: randomUUID() }), 404, 'SecurityGroupNotFound')
    isFault(t, await post({ ...web, port_range_min: 90 }), 400, 'SecurityGroupInvalidPortRange')
    isFault(t, await post({ ...web, port_range_min: -16 }), 400, 'SecurityGroupInvalidPortValue', /port -16/)
    isFault(t, await post({}, READER), 403, 'PolicyNotAuthorized')
    const racing = await Promise.all(Array.from({ length: 4 }, () => post({ protocol: 'udp', ethertype: 'IPv6' })))
    t.strictSame(racing.map(({ status }) => status).sort(), [201, 409, 409, 409])
    const both = [443, 8443].map(port => ({ ...web, port_range_min: port, port_range_max: port }))
    const security_group_rules = both.map(values => ({ security_group_id: group.id, direction: 'egress', ...values }))
    t.match(await call('POST /v2.0/security-group-rules', A, { security_group_rules }), {
      status: 201,
      body: { security_group_rules: { length: 2 } },
    })
    t.equal((await list('security-group-rules', `security_group_id=${group.id}&direction=egress`)).length, 4)
    t.strictSame((await list('security-group-rules', 'remote_ip_prefix=192.0.2.0/24&port_range_min=80')).length, 1)
    isFault(
      t,
      await call(`PUT /v2.0/security-group-rules/${id}`, A, { security_group_rule: {} }),
      405,
      'HTTPMethodNotAllowed',
    )
    t.equal((await call(`DELETE /v2.0/security-group-rules/${id}`, A)).status, 204)
    isFault(t, await call(`DELETE /v2.0/security-group-rules/${id}`, A), 404, 'SecurityGroupRuleNotFound')
    t.ok(Number((await show(`security-groups/${group.id}`, 'security_group')).revision_number) > 5)

    const peer = await call('POST /v2.0/security-group-rules', A, {
      security_group_rule: { security_group_id: group.id, direction: 'ingress', remote_group_id: other.id },
    })
    t.equal((await call(`DELETE /v2.0/security-groups/${other.id}`, A)).status, 204)
    const { id: orphan } = peer.body.security_group_rule as Item
    t.equal((await call(`GET /v2.0/security-group-rules/${orphan}`, A)).status, 404, 'its rules elsewhere go with it')
  })

  await t.test('a port has its project’s default group unless it names others', async t => {
    const network = await create('network', {})
    await create('subnet', { network_id: network.id, cidr: '10.30.0.0/24' })
    const [standard] = await list('security-groups', 'name=default')
    const group = await create('security_group', { name: 'mine' })
    const port = await create('port', { network_id: network.id })
    t.strictSame(port.security_groups, [standard?.id])
    const none = await create('port', { network_id: network.id, security_groups: [] })
    t.strictSame(none.security_groups, [])
    const attached = await create('port', { network_id: network.id, device_owner: 'krater:attachment' })
    t.strictSame(attached.security_groups, [])
    const filteredOf = async ({ id }: Item) => (await db('port').where({ id }).first('filtered')).filtered
    t.strictSame(await Promise.all([port, none, attached].map(filteredOf)), [true, true, false])
    const path = `/v2.0/ports/${port.id}`
    const change = (body: object, token = A) => call(`PUT ${path}`, token, { port: body })
    t.match((await change({ security_groups: [group.id, group.id] })).body, { port: { security_groups: [group.id] } })
    t.strictSame((await list('ports', `security_groups=${group.id}`)).length, 1)
    isFault(t, await call(`DELETE /v2.0/security-groups/${group.id}`, A), 409, 'SecurityGroupInUse')
    const stateless = { security_group: { stateful: false } }
    isFault(t, await call(`PUT /v2.0/security-groups/${group.id}`, A, stateless), 409, 'SecurityGroupInUse')
    isFault(t, await change({ security_groups: [randomUUID()] }), 404, 'SecurityGroupNotFound')
    isFault(t, await change({ port_security_enabled: false }), 409, 'PortSecurityPortHasSecurityGroup')
    t.match((await change({ port_security_enabled: false, security_groups: [] })).body, {
      port: { port_security_enabled: false, security_groups: [] },
    })
    isFault(t, await change({ security_groups: [group.id] }), 400, 'PortSecurityAndIPRequiredForSecurityGroups')
    isFault(
      t,
      await change({ allowed_address_pairs: [{ ip_address: '10.30.0.99' }] }),
      409,
      'AddressPairAndPortSecurityRequired',
    )
    t.equal((await call(`DELETE /v2.0/security-groups/${group.id}`, A)).status, 204)

    const unguarded = await create('network', { port_security_enabled: false })
    t.match(await create('port', { network_id: unguarded.id }), { port_security_enabled: false, security_groups: [] })
  })

  await t.test('only what nobody else has can be an address pair', async t => {
    const network = await create('network', { shared: true, tenant_id: 'a' }, ADMIN)
    await create('subnet', { network_id: network.id, cidr: '10.31.0.0/24' }, ADMIN)
    const theirs = await create('port', { network_id: network.id, fixed_ips: [{ ip_address: '10.31.0.50' }] }, B)
    const own = await create('port', { network_id: network.id, fixed_ips: [{ ip_address: '10.31.0.60' }] })
    const path = `/v2.0/ports/${own.id}`
    const set = (pairs: readonly object[], token = A) =>
      call(`PUT ${path}`, token, { port: { allowed_address_pairs: pairs } })
    t.match((await set([{ ip_address: '10.31.0.61' }, { ip_address: '10.31.0.128/25' }])).body, {
      port: {
        allowed_address_pairs: [
          { ip_address: '10.31.0.61', mac_address: own.mac_address },
          { ip_address: '10.31.0.128/25', mac_address: own.mac_address },
        ],
      },
    })
    const [management] = await db('network').insert({ project_id: 's', built_in: 'management' }).returning('id')
    await db('subnet').insert({ network_id: management.id, project_id: 's', ip_version: 4, cidr: '10.32.0.0/24' })
    const refused: readonly (readonly [object, RegExp])[] = [
      [{ ip_address: '10.31.0.1' }, /the address of a gateway/],
      [{ ip_address: '10.31.0.0/28' }, /the address of a gateway/],
      [{ ip_address: '10.31.0.50' }, /another project’s port/],
      [{ ip_address: '10.31.0.48/29' }, /another project’s port/],
      [{ ip_address: '10.32.0.7' }, /management network/],
      [{ ip_address: '10.31.0.61', mac_address: theirs.mac_address }, /the MAC address of another project’s port/],
    ]
    for (const [pair, message] of refused) isFault(t, await set([pair]), 400, 'InvalidInput', message)
    const twice = [{ ip_address: '10.31.0.61' }, { ip_address: '10.31.0.61', mac_address: own.mac_address }]
    isFault(t, await set(twice), 400, 'DuplicateAddressPairInRequest')
    isFault(t, await set([{ ip_address: 'x' }]), 400, 'HTTPBadRequest', /not a valid IP address/)
    isFault(
      t,
      await set(Array.from({ length: 11 }, (_, n) => ({ ip_address: `10.31.0.${70 + n}` }))),
      400,
      'HTTPBadRequest',
      /maximum is 10/,
    )
    t.equal((await set([{ ip_address: '10.31.0.1' }], ADMIN)).status, 200, 'an administrator may')
    const alone = await create('network', {})
    await create('subnet', { network_id: alone.id, cidr: '10.33.0.0/24' })
    const whole = [{ ip_address: '10.33.0.0/24' }]
    t.match(await create('port', { network_id: alone.id, allowed_address_pairs: whole }), {
      allowed_address_pairs: whole,
    })
    const guest = { port: { allowed_address_pairs: [{ ip_address: '10.31.0.99' }] } }
    isFault(
      t,
      await call(`PUT /v2.0/ports/${theirs.id}`, B, guest),
      403,
      'PolicyNotAuthorized',
      /allowed_address_pairs/,
    )
    const unsafe = { port: { port_security_enabled: false, security_groups: [] } }
    isFault(
      t,
      await call(`PUT /v2.0/ports/${theirs.id}`, B, unsafe),
      403,
      'PolicyNotAuthorized',
      /port_security_enabled/,
    )
  })
})

t.test('provider attributes are for administrators', async t => {
  const vlan = (segment: number, more: object = {}) => ({
    'provider:network_type': 'vlan',
    'provider:physical_network': 'lan',
    'provider:segmentation_id': segment,
    ...more,
  })
  const network = await create('network', vlan(5, { shared: true }), ADMIN)
  t.match(network, vlan(5))
  const local = await create('network', {}, ADMIN)
  t.match(local, { 'provider:network_type': 'local', 'provider:physical_network': null })
  const seen = await show(`networks/${network.id}`, 'network')
  t.strictSame(
    Object.keys(seen).filter(name => name.startsWith('provider:')),
    [],
  )
  t.strictSame(await list('networks', 'provider:segmentation_id=5'), [], 'a filter does not tell either')
  t.equal((await list('networks', 'provider:segmentation_id=5', ADMIN)).length, 1)
  const own = await create('network', vlan(7, { project_id: 'a' }), ADMIN)
  await create('subnet', {
    ...{ network_id: own.id, ip_version: 4, cidr: '10.33.0.0/24' },
    allocation_pools: [{ start: '10.33.0.100', end: '10.33.0.150' }],
  })
  const stolen = { network_id: own.id, mac_address: '02:00:00:00:00:01' }
  const port = await create('port', { network_id: own.id })
  const pairs = (...allowed_address_pairs: object[]) =>
    call(`PUT /v2.0/ports/${port.id}`, A, { port: { allowed_address_pairs } })
  isFault(t, await call('POST /v2.0/ports', A, { port: stolen }), 403, 'PolicyNotAuthorized', /port:mac_address/)
  isFault(t, await pairs({ ip_address: '10.33.0.20' }), 400, 'InvalidInput', /outside the allocation pools/)
  isFault(t, await pairs({ ip_address: '10.33.0.96/28' }), 400, 'InvalidInput', /outside the allocation pools/)
  const foreign = { ip_address: '10.33.0.120', mac_address: '02:00:00:00:00:01' }
  isFault(t, await pairs(foreign), 400, 'InvalidInput', /a MAC address of the LAN/)
  t.equal((await pairs({ ip_address: '10.33.0.120' }, { ip_address: '10.33.0.128/28' })).status, 200)
  const post = (body: object, token = ADMIN) => call('POST /v2.0/networks', token, { network: body })
  isFault(t, await post(vlan(5)), 409, 'VlanIdInUse', /VLAN 5 on physical network lan/)
  isFault(t, await post(vlan(4095)), 400, 'HTTPBadRequest', /no larger than '4094'/)
  isFault(t, await post(vlan(6), A), 403, 'PolicyNotAuthorized', /create_network:provider:network_type/)
  const flat = { 'provider:network_type': 'flat', 'provider:physical_network': 'storage' }
  const racing = await Promise.all([flat, flat, flat].map(body => post(body)))
  t.strictSame(racing.map(({ status }) => status).sort(), [201, 409, 409])
  isFault(t, await post(flat), 409, 'FlatNetworkInUse', /storage is in use/)
  const change = { network: { 'provider:segmentation_id': 6 } }
  isFault(t, await call(`PUT /v2.0/networks/${network.id}`, ADMIN, change), 400, 'InvalidInput', /does not support/)
})
