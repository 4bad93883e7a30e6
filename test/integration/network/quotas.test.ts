import { randomUUID } from 'node:crypto'
import t from 'tap'
import { PORT_OWNER } from '../../../controller/network/driver.js'
import { A, ADMIN, B, isFault, PLURALS, type Reply, startNetworkApi } from '../../support/clients/network-api.js'

const DEFAULTS = {
  ...{ network: 100, subnet: 100, port: 500 },
  ...{ router: 10, floatingip: 50, security_group: 100, security_group_rule: 1000 },
}
const QUOTAS = '/v2.0/quotas'

t.test('projects see their limits and administrators set them', async t => {
  const api = await startNetworkApi()
  t.teardown(api.stop)
  const { call, create } = api
  const show = async (path: string, token = A) => (await call(`GET ${QUOTAS}/${path}`, token)).body.quota

  t.strictSame(await show('a'), DEFAULTS)
  t.strictSame(await show('a/default'), DEFAULTS)
  t.strictSame(await show('unheard-of', ADMIN), DEFAULTS)
  t.strictSame((await call(`GET ${QUOTAS}`, ADMIN)).body, { quotas: [] })

  const set = (quota: unknown, token = ADMIN) => call(`PUT ${QUOTAS}/a`, token, { quota })
  t.match(await set({ port: '3', network: 0 }), { status: 200, body: { quota: { ...DEFAULTS, network: 0, port: 3 } } })
  t.strictSame(await show('a'), { ...DEFAULTS, port: 3, network: 0 })
  t.strictSame(await show('a/default'), DEFAULTS, 'the defaults do not change')
  t.strictSame((await call(`GET ${QUOTAS}`, ADMIN)).body.quotas, [
    { project_id: 'a', tenant_id: 'a', ...DEFAULTS, network: 0, port: 3 },
  ])
  isFault(t, await call('POST /v2.0/networks', A, { network: {} }), 409, 'OverQuota', /resources: \['network'\]/)
  t.equal((await call('POST /v2.0/networks', B, { network: {} })).status, 201, 'another project has its own limit')

  await set({ network: -1 })
  const network = await create('network', {})
  await create('subnet', { network_id: network.id, cidr: '10.50.0.0/24' })
  for (let made = 0; made < 3; made++) await create('port', { network_id: network.id })
  isFault(t, await call('POST /v2.0/ports', A, { port: { network_id: network.id } }), 409, 'OverQuota', /\['port'\]/)
  t.strictSame(await show('a/details.json'), {
    network: { limit: -1, used: 1, reserved: 0 },
    subnet: { limit: 100, used: 1, reserved: 0 },
    port: { limit: 3, used: 3, reserved: 0 },
    router: { limit: 10, used: 0, reserved: 0 },
    floatingip: { limit: 50, used: 0, reserved: 0 },
    security_group: { limit: 100, used: 1, reserved: 0 },
    security_group_rule: { limit: 1000, used: 4, reserved: 0 },
  })
  isFault(t, await set({ port: 2, check_limit: true }), 400, 'HTTPBadRequest', /already used and reserved 3/)
  t.equal((await set({ port: 2, force: true })).status, 200, 'force allows a limit below the current use')

  isFault(t, await set({ port: 9 }, A), 403, 'PolicyNotAuthorized', /update_quota/)
  for (const quota of [{ port: -2 }, { port: 'x' }, { port: null }, { port: 2_000_000_001 }, { trunk: 1 }, []]) {
    t.equal((await set(quota)).status, 400, JSON.stringify(quota))
  }
  t.equal((await call(`DELETE ${QUOTAS}/a`, ADMIN)).status, 204)
  t.strictSame(await show('a'), DEFAULTS)
  isFault(t, await call(`DELETE ${QUOTAS}/a`, ADMIN), 404, 'TenantQuotaNotFound')
  t.strictSame(
    (await call(`GET ${QUOTAS}/a`, A, undefined, { base: api.noopUrl })).body.quota,
    DEFAULTS,
    'the noop driver does too',
  )
})

t.test('concurrent requests never exceed a limit', async t => {
  const api = await startNetworkApi({
    quota: { network: 7, subnet: 7, port: 7, router: 7, floatingip: 7, security_group: 8, security_group_rule: 30 },
  })
  t.teardown(api.stop)
  const { call, create, driver } = api
  const network = await create('network', {})
  const subnet = await create('subnet', { network_id: network.id, cidr: '10.51.0.0/24' })
  const outside = await create('network', { 'router:external': true }, ADMIN)
  await create('subnet', { network_id: outside.id, cidr: '203.0.113.0/24' }, ADMIN)
  const group = await create('security_group', {})
  const made = (replies: readonly Reply[]) => replies.filter(({ status }) => status === 201).length
  const bodies: Record<string, (index: number) => object> = {
    network: () => ({}),
    subnet: index => ({ network_id: network.id, cidr: `10.52.${index}.0/24` }),
    port: () => ({ network_id: network.id }),
    router: () => ({ external_gateway_info: { network_id: outside.id } }),
    floatingip: () => ({ floating_network_id: outside.id }),
    // The group default counts, and so do the rules of groups.
    security_group: () => ({}),
    security_group_rule: index => ({
      ...{ security_group_id: group.id, direction: 'ingress', protocol: 'udp' },
      ...{ port_range_min: index + 1, port_range_max: index + 1 },
    }),
  }
  const expected: Record<string, number> = { network: 6, subnet: 6, security_group: 6, security_group_rule: 12 }
  for (const [kind, bodyOf] of Object.entries(bodies)) {
    // An administrator's requests for the project do not queue behind the project's own.
    const replies = await Promise.all(
      Array.from({ length: 20 }, (_, index) => {
        const body = index % 2 === 0 ? bodyOf(index) : { ...bodyOf(index), project_id: 'a' }
        return call(`POST /v2.0/${PLURALS[kind as keyof typeof PLURALS]}`, index % 2 === 0 ? A : ADMIN, {
          [kind]: body,
        })
      }),
    )
    t.equal(made(replies), expected[kind] ?? 7, kind)
    for (const reply of replies.filter(({ status }) => status !== 201)) isFault(t, reply, 409, 'OverQuota')
  }
  const bulk = { ports: Array.from({ length: 3 }, () => ({ network_id: network.id })) }
  const [{ id } = { id: '' }] = await api.list('ports', `network_id=${network.id}`)
  await call(`DELETE /v2.0/ports/${id}`, A)
  isFault(t, await call('POST /v2.0/ports', A, bulk), 409, 'OverQuota')
  t.equal((await api.list('ports', `network_id=${network.id}`)).length, 6, 'a bulk request creates all or nothing')
  const request = { networkId: network.id, fixedIps: [{ subnetId: subnet.id }], projectId: 'a', deviceId: 'lb' }
  for (let count = 0; count < 3; count++) {
    await driver.ensurePort({ ...request, name: `vip ${count}`, deviceOwner: PORT_OWNER.vip })
  }
  t.equal((await call('POST /v2.0/ports', A, { port: { network_id: network.id } })).status, 201, 'VIPs do not count')
})

t.test('addresses of a shared network', async t => {
  const api = await startNetworkApi({ quota: { port: -1 } })
  t.teardown(api.stop)
  const { call, create, driver } = api
  const network = await create('network', { shared: true }, ADMIN)
  const subnet = await create('subnet', { network_id: network.id, cidr: '10.53.0.0/26' }, ADMIN)
  const request = (projectId: string, deviceOwner: string) => ({
    networkId: network.id,
    fixedIps: [{ subnetId: subnet.id }],
    projectId,
    name: 'a port',
    deviceId: randomUUID(),
    deviceOwner,
  })
  const askFor = (token: string, fixed_ips?: object[]) =>
    call('POST /v2.0/ports', token, { port: { network_id: network.id, ...(fixed_ips && { fixed_ips }) } })
  const flood = async (token: string) => {
    const replies: Reply[] = []
    for (let round = 0; round < 2; round++) {
      replies.push(...(await Promise.all(Array.from({ length: 10 }, () => askFor(token)))))
    }
    return replies.filter(({ status }) => status === 201).length
  }

  await t.test('one project gets exactly its share and leaves the others theirs', async t => {
    t.equal(await flood(A), 15, 'a quarter of 61')
    isFault(t, await askFor(A), 409, 'IpAddressGenerationFailure', /One project may hold at most 25 percent/)
    isFault(t, await askFor(A, [{ ip_address: '10.53.0.9' }]), 409, 'IpAddressGenerationFailure', /25 percent/)
    await t.rejects(driver.ensurePort(request('a', PORT_OWNER.vip)), /25 percent/, 'VIPs count towards the share')
    t.ok(await driver.ensurePort(request('b', PORT_OWNER.vip)))
    t.equal((await askFor(A, [])).status, 201, 'a port without addresses does not count')
  })

  await t.test('projects together leave a reserve for amphorae', async t => {
    const isLast = ({ fixedIps: [fixedIp] }: { fixedIps: { address: string }[] }) =>
      Number(fixedIp?.address.split('.')[3]) > 55
    isFault(t, await askFor(B, [{ ip_address: '10.53.0.62' }]), 409, 'IpAddressAlreadyAllocated', /is reserved for/)
    const others = ['b', 'c', 'd'].map(project => `${project}/member`)
    const counts: number[] = []
    for (const token of others) counts.push(await flood(token))
    t.equal(
      counts.reduce((sum, count) => sum + count, 15 + 1),
      61 - 7,
      'all but one eighth',
    )
    isFault(t, await askFor('e/member'), 409, 'IpAddressGenerationFailure', /No more IP addresses/)
    t.equal(await driver.freeAddresses(subnet.id), 0)
    await t.rejects(driver.ensurePort(request('e', PORT_OWNER.vip)), /No more IP addresses/)
    const ports = []
    for (let count = 0; count < 7; count++) ports.push(await driver.ensurePort(request('e', PORT_OWNER.amphora)))
    t.ok(ports.every(isLast))
    await t.rejects(driver.ensurePort(request('e', PORT_OWNER.amphora)), /No more IP addresses/)
  })

  await t.test('the reserve is in the largest pool, wherever the gateway is', async t => {
    const other = await create('network', { shared: true }, ADMIN)
    const cidr = { network_id: other.id, cidr: '10.54.0.0/27', gateway_ip: '10.54.0.27' }
    const { id } = await create('subnet', cidr, ADMIN)
    t.equal(await driver.freeAddresses(id), 29 - 3)
    const desired = { port: { network_id: other.id, fixed_ips: [{ ip_address: '10.54.0.26' }] } }
    isFault(t, await call('POST /v2.0/ports', B, desired), 409, 'IpAddressAlreadyAllocated', /is reserved for/)
  })
})
