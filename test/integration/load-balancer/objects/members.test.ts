import { execFileSync } from 'node:child_process'
import t from 'tap'
import type { member } from '../../../../controller/load-balancer/objects/members/resource.js'
import type { Updated } from '../../../../controller/load-balancer/schema/attributes.js'
import { createNoopNetworkDriver } from '../../../../controller/network/noop/driver.js'
import { at, idIn, type Json, type Reply } from '../../../support/clients/json-answers.js'
import { SUBNET, startTestApi } from '../../../support/clients/load-balancer-api.js'
import { keysOf, MEMBER_KEYS, NOWHERE, sorted } from '../../../support/database/load-balancer-keys.js'

t.test('members of a pool', async t => {
  const api = await startTestApi()
  t.teardown(api.stop)
  const created = await api.ask('POST', '/v2/lbaas/loadbalancers', { loadbalancer: { vip_subnet_id: SUBNET } })
  const lb = idIn(created, 'loadbalancer')
  const made = async (path: string, key: string, body: object): Promise<string> => {
    const reply = await api.ask('POST', `/v2/lbaas/${path}`, { [key]: body })
    t.equal(reply.status, 201, reply.text)
    return idIn(reply, key)
  }
  const show = (path: string) => api.ask('GET', `/v2/lbaas/${path}`)
  const pool = await made('pools', 'pool', { loadbalancer_id: lb, protocol: 'HTTP', lb_algorithm: 'ROUND_ROBIN' })

  await t.test('members', async t => {
    const path = `/v2/lbaas/pools/${pool}/members`
    const created = await api.ask('POST', path, {
      member: {
        address: '10.0.0.1',
        protocol_port: 80,
        subnet_id: SUBNET,
        weight: '7',
        backup: true,
        monitor_port: 8080,
        monitor_address: '10.0.0.9',
      },
    })
    t.match(created, {
      status: 201,
      body: {
        member: { weight: 7, backup: true, monitor_port: 8080, operating_status: 'NO_MONITOR', vnic_type: 'normal' },
      },
    })
    const id = idIn(created, 'member')
    t.equal(keysOf(created.body.member), sorted(MEMBER_KEYS))
    t.match(await api.ask('POST', path, { member: { address: '10.0.0.1', protocol_port: 80 } }), {
      status: 409,
      body: { faultstring: 'Another member on this pool is already using ip 10.0.0.1 on protocol_port 80' },
    })
    t.match(await api.ask('POST', path, { member: { address: '169.254.169.254', protocol_port: 80 } }), {
      status: 400,
      body: {
        faultstring: /^169\.254\.169\.254 is not a valid option for member address: the operator has reserved it/,
      },
    })
    t.equal(
      (await api.ask('POST', path, { member: { address: '10.0.0.7', protocol_port: 80, request_sriov: true } })).status,
      400,
    )
    t.match(await api.ask('PUT', `${path}/${id}`, { member: { weight: 0, backup: null, monitor_address: null } }), {
      status: 200,
      body: { member: { weight: 0, backup: false, monitor_address: null, monitor_port: 8080 } },
    })
    t.equal(
      (await api.ask('PUT', `${path}/${id}`, { member: { address: '10.0.0.2' } })).status,
      400,
      'the address is immutable',
    )
    const elsewhere = await made('pools', 'pool', {
      loadbalancer_id: lb,
      protocol: 'HTTP',
      lb_algorithm: 'ROUND_ROBIN',
    })
    for (const method of ['GET', 'PUT', 'DELETE']) {
      t.match(
        await api.ask(
          method,
          `/v2/lbaas/pools/${elsewhere}/members/${id}`,
          method === 'PUT' ? { member: {} } : undefined,
        ),
        { status: 404, body: { faultstring: `Member ${id} not found.` } },
        `${method} through another pool`,
      )
    }
    t.match((await show(`pools/${pool}`)).body, { pool: { members: [{ id }] } })
    t.match(await api.ask('GET', `${path}?id=${id}`), { body: { members: [{ id }], members_links: [] } })
    t.match(await api.ask('GET', `${path}?name=wm`), { body: { members: [], members_links: [] } })
  })
  await t.test('one request creates hundreds of members', async t => {
    const members = Array.from({ length: 450 }, (_, n) => ({
      address: `10.9.${Math.floor(n / 200)}.${(n % 200) + 1}`,
      protocol_port: 80,
      ...(n % 3 === 0 && { weight: n % 200, tags: ['third'], name: `member ${n}` }),
    }))
    let made: Reply | undefined
    const statements = await api.statementsOf(async () => {
      made = await api.ask('POST', '/v2/lbaas/pools', {
        pool: { loadbalancer_id: lb, protocol: 'HTTP', lb_algorithm: 'ROUND_ROBIN', members },
      })
    })
    t.equal(made?.status, 201)
    t.equal(
      statements.filter(sql => /^INSERT INTO "member"/.test(sql)).length,
      3,
      'no statement inserts more than 200 members',
    )
    const stored = await api
      .database('member')
      .where({ pool_id: idIn(made as Reply, 'pool') })
      .orderBy('server_number')
      .select('address', 'weight', 'tags', 'name', 'server_number')
    t.same(
      stored,
      members.map(({ address, weight = 1, tags = [], name = '' }, n) => ({
        ...{ address, weight, tags, name, server_number: n + 1 },
      })),
    )
  })

  await t.test('batch update of members', async t => {
    const path = `/v2/lbaas/pools/${pool}/members`
    const members = async () =>
      (at((await api.ask('GET', `${path}?sort_key=address`)).body, 'members') as Json[]).filter(
        one => one.provisioning_status !== 'PENDING_DELETE',
      )
    const batch = (body: unknown, query = '') => api.ask('PUT', path + query, body)
    const [first] = await members()
    await api.ask('PUT', `${path}/${first?.id}`, { member: { name: 'kept', tags: ['kept'], weight: 9 } })
    t.match(
      await batch({
        members: [
          { address: '10.0.0.1', protocol_port: 80 },
          { address: '10.0.0.2', protocol_port: 80, weight: 3 },
        ],
      }),
      { status: 202, text: '' },
    )
    t.match(
      await members(),
      [
        { id: first?.id, name: 'kept', tags: ['kept'], weight: 1, monitor_port: null, subnet_id: SUBNET },
        { address: '10.0.0.2', weight: 3 },
      ],
      'what a batch omits is reset, except name, tags and subnet',
    )
    t.equal((await batch([{ address: '10.0.0.3', protocol_port: 80 }], '?additive_only=True')).status, 202)
    t.equal((await members()).length, 3)
    t.equal((await batch([{ address: '10.0.0.3', protocol_port: 80 }])).status, 202)
    t.match(await members(), [{ address: '10.0.0.3' }])
    t.equal(
      (
        await batch([
          { address: '10.0.0.3', protocol_port: 80 },
          { address: '10.0.0.3', protocol_port: 80 },
        ])
      ).status,
      400,
    )
    t.equal(
      (
        await batch([
          { address: '10.0.0.4', protocol_port: 80 },
          { address: '10.0.0.4', protocol_port: 80 },
        ])
      ).status,
      409,
    )
    t.match(await batch([{ address: 'x', protocol_port: 80 }]), {
      status: 400,
      body: { faultstring: /\[0\]\.address/ },
    })
    t.equal((await batch({ members: [] })).status, 202)
    t.same(await members(), [])
    const before = await api.database('load_balancer').where({ id: lb }).first('generation')
    t.equal((await batch([])).status, 202)
    t.same(
      await api.database('load_balancer').where({ id: lb }).first('generation'),
      before,
      'an empty batch changes nothing',
    )
    t.equal((await api.ask('PUT', `/v2/lbaas/pools/${NOWHERE}/members`, [])).status, 404)
  })
})

/**
 * A non-default value for each attribute that a member update may change; does not compile when a new option
 * has none.
 */
const CHANGED = {
  name: 'renamed',
  admin_state_up: false,
  weight: 9,
  backup: true,
  monitor_address: '10.0.0.8',
  monitor_port: 8080,
  tags: ['blue'],
} as const satisfies Record<keyof Updated<typeof member.attributes>, unknown>

t.test('a batch changes every option of existing members', async t => {
  const api = await startTestApi()
  t.teardown(api.stop)
  const created = await api.ask('POST', '/v2/lbaas/loadbalancers', {
    loadbalancer: {
      vip_subnet_id: SUBNET,
      pools: [
        {
          name: 'p',
          protocol: 'HTTP',
          lb_algorithm: 'ROUND_ROBIN',
          members: [{ address: '10.0.0.1', protocol_port: 80 }],
        },
      ],
    },
  })
  const path = `/v2/lbaas/pools/${String(at(created.body, 'loadbalancer', 'pools', 0, 'id'))}/members`
  const before = await api.ask('GET', path)
  const batch = { members: [{ address: '10.0.0.1', protocol_port: 80, ...CHANGED }] }
  t.equal((await api.ask('PUT', path, batch)).status, 202)
  const after = await api.ask('GET', path)
  t.match(after.body, { members: [{ id: at(before.body, 'members', 0, 'id'), ...CHANGED }] })
})

t.test('an address of this host is refused as a member where traffic can reach it', async t => {
  const OF_HOST = '198.51.100.77'
  const address = (verb: 'add' | 'del') =>
    execFileSync('ip', ['address', verb, `${OF_HOST}/32`, 'dev', 'lo'], { timeout: 10_000 })
  address('add')
  t.teardown(() => address('del'))
  for (const reachesHost of [true, false]) {
    const api = await startTestApi({ network: { ...createNoopNetworkDriver(), reachesHost } })
    t.teardown(api.stop)
    const members = [{ address: '10.0.0.1', protocol_port: 80, monitor_address: OF_HOST, monitor_port: 80 }]
    const pools = [{ name: 'p', protocol: 'HTTP', lb_algorithm: 'ROUND_ROBIN' }]
    const create = (own: object[]) =>
      api.ask('POST', '/v2/lbaas/loadbalancers', { loadbalancer: { vip_subnet_id: SUBNET, pools: own } })
    t.equal((await create([{ ...pools[0], members }])).status, reachesHost ? 400 : 201, 'in a tree')
    const pool = String(at((await create(pools)).body, 'loadbalancer', 'pools', 0, 'id'))
    const path = `/v2/lbaas/pools/${pool}/members`
    t.match(
      await api.ask('POST', path, { member: members[0] }),
      reachesHost ? { status: 400 } : { status: 201 },
      'alone',
    )
    t.match(await api.ask('PUT', path, { members }), reachesHost ? { status: 400 } : { status: 202 }, 'in a batch')
  }
})
