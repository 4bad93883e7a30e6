import fc from 'fast-check'
import t from 'tap'
import { readTree } from '../../../../controller/load-balancer/tree/read-tree.js'
import { at, idIn, type Json, type Reply } from '../../../support/clients/json-answers.js'
import { SUBNET, startTestApi } from '../../../support/clients/load-balancer-api.js'
import { keysOf, L7_POLICY_KEYS, L7_RULE_KEYS, NOWHERE, sorted } from '../../../support/database/load-balancer-keys.js'
import { makeL7Tree } from '../../../support/inputs/l7-tree.js'

const OFFERED = { providers: ['amphora', 'noop_driver'] }

t.test('positions are always 1..n, in the order that a simple model predicts', async t => {
  const api = await startTestApi(OFFERED)
  t.teardown(api.stop)
  const tree = await makeL7Tree(api)
  const step = fc.record({
    kind: fc.constantFrom('create', 'create', 'move', 'delete', 'apply'),
    which: fc.nat(20),
    position: fc.option(fc.oneof(fc.integer({ min: 1, max: 8 }), fc.constant(2147483647)), { nil: null }),
  })
  let number = 0
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: 14 }), async steps => {
      await api.database('l7_policy').where({ listener_id: tree.listener }).delete()
      const model: { name: string; id: string }[] = []
      for (const { kind, which, position } of steps) {
        const chosen = model[which % Math.max(1, model.length)]
        if (kind === 'create') {
          const name = `p${number++}-`
          const made = await tree.policy({ action: 'REJECT', name, position })
          model.splice((position ?? Number.POSITIVE_INFINITY) - 1, 0, { name, id: idIn(made, 'l7policy') })
          const shown = at(made.body, 'l7policy', 'position')
          if (shown !== model.findIndex(one => one.name === name) + 1) throw new Error(`${name} is shown at ${shown}`)
        } else if (kind === 'apply') {
          await api.apply(tree.lb)
        } else if (chosen !== undefined) {
          model.splice(model.indexOf(chosen), 1)
          const path = `l7policies/${chosen.id}`
          if (kind === 'move') {
            model.splice((position ?? Number.POSITIVE_INFINITY) - 1, 0, chosen)
            await tree.ask('PUT', path, { l7policy: { position } })
          } else await tree.ask('DELETE', path)
        }
        const order = await tree.order()
        const predicted = model.map(({ name }, index) => `${name}${index + 1}`)
        if (order.join() !== predicted.join()) throw new Error(`${order} instead of ${predicted}`)
      }
    }),
    { numRuns: 25 },
  )
})

t.test('concurrent changes of positions leave them 1..n', async t => {
  const api = await startTestApi(OFFERED)
  t.teardown(api.stop)
  const tree = await makeL7Tree(api)
  const ids: string[] = []
  for (const name of ['a', 'b', 'c', 'd']) ids.push(idIn(await tree.policy({ action: 'REJECT', name }), 'l7policy'))
  await api.apply(tree.lb)
  const replies = await Promise.all([
    ...ids.map((id, index) => tree.ask('PUT', `l7policies/${id}`, { l7policy: { position: 4 - index } })),
    ...['e', 'f', 'g', 'h'].map(name => tree.policy({ action: 'REJECT', name, position: 2 })),
    tree.ask('DELETE', `l7policies/${ids[0]}`),
  ])
  for (const reply of replies) t.ok([200, 201, 204, 409].includes(reply.status), reply.text)
  t.same(
    (await tree.order()).map(one => one.slice(1)),
    [1, 2, 3, 4, 5, 6, 7].map(String),
  )
})

t.test('an insert moves other policies without changing their status', async t => {
  const api = await startTestApi(OFFERED)
  t.teardown(api.stop)
  const tree = await makeL7Tree(api)
  const first = idIn(await tree.policy({ action: 'REJECT', name: 'first' }), 'l7policy')
  await api.apply(tree.lb)
  const updated = at((await tree.ask('GET', `l7policies/${first}`)).body, 'l7policy', 'updated_at')
  await tree.policy({ action: 'REJECT', name: 'new', position: 1 })
  t.match((await tree.ask('GET', `l7policies/${first}`)).body, {
    l7policy: { position: 2, provisioning_status: 'ACTIVE', updated_at: updated },
  })
})

t.test('L7 policies in a create tree', async t => {
  const api = await startTestApi({ ...OFFERED, quota: { l7policy: -1 } })
  t.teardown(api.stop)
  const pool = (name: string, more: object = {}) => ({ name, protocol: 'HTTP', lb_algorithm: 'ROUND_ROBIN', ...more })
  const rule = { type: 'PATH', compare_type: 'STARTS_WITH', value: '/a' }
  const create = (listeners: object[], pools: object[] = []) =>
    api.ask('POST', '/v2/lbaas/loadbalancers', {
      loadbalancer: { provider: 'noop_driver', vip_subnet_id: SUBNET, listeners, pools },
    })
  const listener = (l7policies: object[], more: object = {}) => ({
    protocol: 'HTTP',
    protocol_port: 80,
    l7policies,
    ...more,
  })
  const body = [
    listener(
      [
        { action: 'REJECT', name: 'last' },
        {
          action: 'REDIRECT_TO_POOL',
          name: 'first',
          position: 1,
          redirect_pool: pool('defined'),
          rules: [rule, { ...rule, value: '/b', key: 'unused' }],
        },
        { action: 'REDIRECT_TO_POOL', name: 'second', position: 2, redirect_pool: { name: 'top' } },
      ],
      { default_pool: { name: 'top' } },
    ),
  ]

  await t.test('the answer to a create shows the whole tree', async t => {
    const reply = await create(body, [pool('top', { members: [{ address: '10.0.0.1', protocol_port: 1 }] })])
    t.equal(reply.status, 201, reply.text)
    const [top, defined] = at(reply.body, 'loadbalancer', 'pools') as Json[]
    t.match(at(reply.body, 'loadbalancer', 'pools'), [{ name: 'top' }, { name: 'defined' }])
    const policies = at(reply.body, 'loadbalancer', 'listeners', 0, 'l7policies') as Json[]
    t.match(policies, [
      {
        name: 'first',
        position: 1,
        redirect_pool_id: defined?.id,
        rules: [{ value: '/a' }, { value: '/b', key: null }],
      },
      { name: 'second', position: 2, redirect_pool_id: top?.id, rules: [] },
      { name: 'last', position: 3, action: 'REJECT', redirect_pool_id: null },
    ])
    t.equal(keysOf(policies[0]), sorted(L7_POLICY_KEYS))
    t.equal(keysOf(at(policies[0], 'rules', 0)), sorted(L7_RULE_KEYS))
    t.match(defined, { listeners: [{ id: at(reply.body, 'loadbalancer', 'listeners', 0, 'id') }] })
    const id = idIn(reply, 'loadbalancer')
    t.match(await readTree(api.database, id), {
      listeners: [
        { l7Policies: [{ position: 1, rules: [{ value: '/a' }, { value: '/b' }] }, { position: 2 }, { position: 3 }] },
      ],
    })
    t.match((await api.ask('GET', `/v2/lbaas/l7policies/${policies[0]?.id}`)).body, {
      l7policy: { rules: [{ id: String, value: undefined }, { id: String }] },
    })
  })
  await t.test('the answer to a listener or policy create shows children by id', async t => {
    const tree = await makeL7Tree(api)
    const reply = await tree.ask('POST', 'listeners', {
      listener: {
        loadbalancer_id: tree.lb,
        ...listener([{ action: 'REDIRECT_TO_POOL', redirect_pool: pool('fresh'), rules: [rule] }], {
          protocol_port: 81,
        }),
        default_pool_id: tree.one,
      },
    })
    t.equal(reply.status, 201, reply.text)
    t.match(reply.body, { listener: { default_pool_id: tree.one, l7policies: [{ id: String, name: undefined }] } })
    const made = await tree.ask('GET', `l7policies/${at(reply.body, 'listener', 'l7policies', 0, 'id')}`)
    t.match(made.body, { l7policy: { redirect_pool_id: String, position: 1, rules: [{}] } })
    t.match((await tree.ask('GET', `pools/${at(made.body, 'l7policy', 'redirect_pool_id')}`)).body, {
      pool: { name: 'fresh', listeners: [{ id: idIn(reply, 'listener') }] },
    })
    t.match(await tree.policy({ action: 'REJECT', rules: [rule, rule] }), {
      status: 201,
      body: { l7policy: { rules: [{ id: String, value: undefined }, {}] } },
    })
  })
  await t.test('one invalid part fails the whole create', async t => {
    const before = await api.database('load_balancer').count()
    const toPool = (redirect_pool: object | null) => listener([{ action: 'REDIRECT_TO_POOL', redirect_pool }])
    const refused = [
      [[toPool({ name: 'nowhere' })], [], 400, /referenced but not defined/],
      [[toPool(null)], [], 400, /requires redirect_pool_id/],
      [[toPool({ name: '', protocol: 'HTTP' })], [], 400, /must have a name/],
      [[toPool({ name: 'x', protocol: 'HTTP' })], [], 400, /lb_algorithm/],
      [[toPool(pool('x'))], [pool('x')], 400, /unique/],
      [[toPool(pool('x', { protocol: 'TCP' }))], [], 400, /'TCP' is invalid while the listener protocol is 'HTTP'/],
      [[listener([{ action: 'REJECT', rules: [{ ...rule, value: '' }] }])], [], 400, /Error parsing L7Rule/],
      [
        [listener([{ action: 'REJECT', rules: [{ ...rule, bogus: 1 }] }])],
        [],
        400,
        /listeners\[0\]\.l7policies\[0\]\.rules\[0\]: bogus/,
      ],
      [[listener([{ action: 'REJECT', listener_id: NOWHERE }])], [], 400, /l7policies\[0\]: listener_id/],
      [[listener([{ action: 'REDIRECT_TO_POOL', redirect_pool_id: NOWHERE }])], [], 400, /redirect_pool_id/],
      [
        [listener([{ action: 'REJECT', redirect_pool: pool('x'), redirect_url: 'http://a.example' }])],
        [],
        400,
        /cannot be combined/,
      ],
      [[listener([{ action: 'REJECT' }], { protocol: 'PROMETHEUS' })], [], 400, /child objects/],
    ] as const
    for (const [listeners, pools, status, message] of refused) {
      t.match(
        await create([...listeners], [...pools]),
        { status, body: { faultstring: message } },
        JSON.stringify(listeners),
      )
    }
    t.same(await api.database('load_balancer').count(), before)
  })
  await t.test('a request may carry thousands of policies', async t => {
    const l7policies = Array.from({ length: 5500 }, () => ({ action: 'REJECT' }))
    const reply = await create([listener(l7policies)])
    t.equal(reply.status, 201, reply.text.slice(0, 500))
    const [row] = await api
      .database('l7_policy')
      .where({ load_balancer_id: idIn(reply, 'loadbalancer') })
      .select(api.database.raw('count(DISTINCT position)::int AS places, max(position) AS last'))
    t.match(row, { places: 5500, last: 5500 })
  })
  await t.test('the number of statements is independent of the number of objects', async t => {
    const many = (count: number) =>
      Array.from({ length: count }, (_, index) => ({
        action: 'REDIRECT_TO_POOL',
        redirect_pool: pool(`p${index}`),
        rules: Array.from({ length: count }, (_, number) => ({ ...rule, value: `/${index}/${number}` })),
      }))
    const statements = async (count: number) => {
      const replies: Reply[] = []
      const sent = await api.statementsOf(async () => replies.push(await create([listener(many(count))])))
      t.equal(replies[0]?.status, 201)
      return sent.length
    }
    t.equal(await statements(12), await statements(1))
    const tree = await makeL7Tree(api)
    const forRules = async (count: number) =>
      (
        await api.statementsOf(() =>
          tree.policy({ action: 'REJECT', rules: Array.from({ length: count }, () => rule) }),
        )
      ).length
    t.equal(await forRules(40), await forRules(1))
  })
})
