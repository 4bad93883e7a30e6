import t from 'tap'
import { sql } from '../../../../controller/database/sql.js'
import { readTree } from '../../../../controller/load-balancer/tree/read-tree.js'
import { claimDue } from '../../../../controller/queue/claim.js'
import { settle } from '../../../../controller/worker/settle.js'
import { FOREIGN } from '../../../support/clients/callers.js'
import { at, idIn } from '../../../support/clients/json-answers.js'
import { startTestApi, type TestApi } from '../../../support/clients/load-balancer-api.js'
import { type L7Tree, makeL7Tree } from '../../../support/inputs/l7-tree.js'

const OFFERED = { providers: ['amphora', 'noop_driver'] }

/** Settles the newest generation, as a worker does after applying it. */
async function settleAll({ database }: TestApi, id: string): Promise<string> {
  const [held] = await claimDue(database, {
    table: 'load_balancer',
    due: sql`t.id = ${id}`,
    order: sql`t.id`,
    owner: 'l7-test',
    limit: 1,
  })
  const tree = await readTree(database, id)
  if (held === undefined || tree === null) throw new Error(`Load balancer ${id} could not be claimed`)
  return settle(database, held, tree)
}

/** A redirecting policy with a rule, beside the tree's other objects, all settled. */
async function makeUser(api: TestApi, more: object = {}) {
  const tree = await makeL7Tree(api)
  const made = await tree.policy({
    action: 'REDIRECT_TO_POOL',
    redirect_pool_id: tree.one,
    rules: [{ type: 'PATH', compare_type: 'STARTS_WITH', value: '/a' }],
    ...more,
  })
  const policy = idIn(made, 'l7policy')
  const rule = String(at(made.body, 'l7policy', 'rules', 0, 'id'))
  await api.apply(tree.lb)
  return { ...tree, policyId: policy, ruleId: rule }
}

type User = Awaited<ReturnType<typeof makeUser>>

async function statusesOf(user: User, field = 'provisioning_status'): Promise<Record<string, string>> {
  const paths = {
    lb: `loadbalancers/${user.lb}`,
    listener: `listeners/${user.listener}`,
    pool: `pools/${user.one}`,
    policy: `l7policies/${user.policyId}`,
    rule: `l7policies/${user.policyId}/rules/${user.ruleId}`,
  }
  const found: Record<string, string> = {}
  for (const [name, path] of Object.entries(paths)) {
    const { status, body } = await user.ask('GET', path)
    found[name] = status === 404 ? 'gone' : String(at(Object.values(body)[0], field)).replace('PENDING_', '')
  }
  return found
}

const after = (lb: string, listener: string, pool: string, policy: string, rule: string) => ({
  lb,
  listener,
  pool,
  policy,
  rule,
})

t.test('provisioning statuses that each request sets', async t => {
  const api = await startTestApi(OFFERED)
  t.teardown(api.stop)
  const user = await makeUser(api)
  const policy = `l7policies/${user.policyId}`
  const rule = { type: 'PATH', compare_type: 'EQUAL_TO', value: '/b' }
  const stories: [string, string, string, object | undefined, ReturnType<typeof after>][] = [
    [
      'policy create',
      'POST',
      'l7policies',
      { l7policy: { listener_id: user.listener, action: 'REJECT' } },
      after('UPDATE', 'UPDATE', 'ACTIVE', 'ACTIVE', 'ACTIVE'),
    ],
    [
      'policy update',
      'PUT',
      policy,
      { l7policy: { tags: ['x'] } },
      after('UPDATE', 'UPDATE', 'ACTIVE', 'UPDATE', 'ACTIVE'),
    ],
    ['a move', 'PUT', policy, { l7policy: { position: 2 } }, after('UPDATE', 'UPDATE', 'ACTIVE', 'UPDATE', 'ACTIVE')],
    ['rule create', 'POST', `${policy}/rules`, { rule }, after('UPDATE', 'UPDATE', 'ACTIVE', 'UPDATE', 'ACTIVE')],
    [
      'rule update',
      'PUT',
      `${policy}/rules/${user.ruleId}`,
      { rule },
      after('UPDATE', 'UPDATE', 'ACTIVE', 'UPDATE', 'UPDATE'),
    ],
    [
      'pool update reaches the listener through the policy',
      'PUT',
      `pools/${user.one}`,
      { pool: { name: 'x' } },
      after('UPDATE', 'UPDATE', 'UPDATE', 'ACTIVE', 'ACTIVE'),
    ],
    [
      'a member update reaches it too',
      'PUT',
      `pools/${user.one}/members/${user.member}`,
      { member: { weight: 3 } },
      after('UPDATE', 'UPDATE', 'UPDATE', 'ACTIVE', 'ACTIVE'),
    ],
    [
      'an update of an unused pool reaches no listener',
      'PUT',
      `pools/${user.two}`,
      { pool: { name: 'x' } },
      after('UPDATE', 'ACTIVE', 'ACTIVE', 'ACTIVE', 'ACTIVE'),
    ],
    [
      'rule delete',
      'DELETE',
      `${policy}/rules/${user.ruleId}`,
      undefined,
      after('UPDATE', 'UPDATE', 'ACTIVE', 'UPDATE', 'DELETE'),
    ],
    ['policy delete', 'DELETE', policy, undefined, after('UPDATE', 'UPDATE', 'ACTIVE', 'DELETE', 'gone')],
  ]
  for (const [name, method, path, body, expected] of stories) {
    await t.test(name, async t => {
      const reply = await user.ask(method, path, body)
      t.ok(reply.status < 300, reply.text)
      t.strictSame(await statusesOf(user), expected)
      if (method === 'DELETE') t.equal((await user.ask(method, path)).status, 204, 'the deletion can be repeated')
      t.equal(await settleAll(api, user.lb), 'settled')
    })
  }
  t.strictSame(await statusesOf(user), after('ACTIVE', 'ACTIVE', 'ACTIVE', 'gone', 'gone'))
  t.same(await api.database('l7_rule').where({ l7_policy_id: user.policyId }), [])
  t.same((await user.order()).length, 1, 'the other policies remain, numbered from 1')
})

t.test('deleting a rule in ERROR clears the failure', async t => {
  const api = await startTestApi(OFFERED)
  t.teardown(api.stop)
  const user = await makeUser(api)
  await user.ask('PUT', `l7policies/${user.policyId}/rules/${user.ruleId}`, { rule: { value: '/x' } })
  await api.fail(user.lb)
  t.strictSame(await statusesOf(user), after('ERROR', 'ERROR', 'ACTIVE', 'ERROR', 'ERROR'))
  t.equal((await user.ask('DELETE', `l7policies/${user.policyId}/rules/${user.ruleId}`)).status, 204)
  await settleAll(api, user.lb)
  t.strictSame(await statusesOf(user), after('ACTIVE', 'ACTIVE', 'ACTIVE', 'ACTIVE', 'gone'))
})

t.test('operating status', async t => {
  const api = await startTestApi(OFFERED)
  t.teardown(api.stop)
  const user = await makeUser(api)
  const both = async () => {
    const { policy, rule } = await statusesOf(user, 'operating_status')
    return [policy, rule]
  }
  t.same(await both(), ['ONLINE', 'ONLINE'])
  const second = idIn(await user.policy({ action: 'REJECT' }), 'l7policy')
  t.match(
    (await user.ask('GET', `l7policies/${second}`)).body,
    { l7policy: { operating_status: 'OFFLINE' } },
    'the policy is not applied yet',
  )
  await user.ask('PUT', `l7policies/${user.policyId}`, { l7policy: { admin_state_up: false } })
  t.same(await both(), ['OFFLINE', 'ONLINE'])
  await user.ask('PUT', `l7policies/${user.policyId}/rules/${user.ruleId}`, { rule: { admin_state_up: false } })
  t.same(await both(), ['OFFLINE', 'OFFLINE'])
})

t.test('a pool shows the listeners whose policies use it', async t => {
  const api = await startTestApi(OFFERED)
  t.teardown(api.stop)
  const user = await makeUser(api)
  const policy = `l7policies/${user.policyId}`
  const listeners = async () => at((await user.ask('GET', `pools/${user.one}`)).body, 'pool', 'listeners')
  const tree = async () => {
    const reply = await user.ask('GET', `loadbalancers/${user.lb}/status`)
    return (at(reply.body, 'statuses', 'loadbalancer', 'listeners', 0, 'pools') as { id: string }[]).map(({ id }) => id)
  }
  t.same(await listeners(), [{ id: user.listener }], 'a policy with a rule uses its pool')
  t.same(await tree(), [user.one])
  await user.ask('PUT', policy, { l7policy: { admin_state_up: false } })
  t.same([await listeners(), await tree()], [[], []], 'a disabled policy does not')
  await user.ask('PUT', policy, { l7policy: { admin_state_up: true } })
  await user.ask('DELETE', `${policy}/rules/${user.ruleId}`)
  t.same([await listeners(), await tree()], [[], []], 'a policy without a rule does not')
  await user.rule(user.policyId)
  await user.rule(
    idIn(await user.policy({ action: 'REDIRECT_TO_POOL', redirect_pool_id: user.two, position: 1 }), 'l7policy'),
  )
  t.same(await tree(), [user.two, user.one], 'pools are ordered by policy position')
  await user.ask('PUT', `listeners/${user.listener}`, { listener: { default_pool_id: user.one } })
  t.same(await listeners(), [{ id: user.listener }], 'a listener that uses a pool in two ways is listed once')
  t.same(await tree(), [user.one, user.two], 'the default pool comes first')
  await user.ask('DELETE', policy)
  t.same(await tree(), [user.one, user.two])
  await user.ask('PUT', `listeners/${user.listener}`, { listener: { default_pool_id: null } })
  t.same([await listeners(), await tree()], [[], [user.two]])
  const { statuses } = (await user.ask('GET', `loadbalancers/${user.lb}/status`)).body
  t.match(statuses, {
    loadbalancer: {
      listeners: [
        {
          pools: [{ name: 'two', members: [] }],
          l7policies: [
            {
              action: 'REDIRECT_TO_POOL',
              operating_status: 'OFFLINE',
              rules: [{ type: 'PATH', provisioning_status: 'PENDING_CREATE', operating_status: 'OFFLINE' }],
            },
            { id: user.policyId, provisioning_status: 'PENDING_DELETE', operating_status: 'ONLINE' },
          ],
        },
      ],
      pools: [{ id: user.one, members: [], provisioning_status: /./, operating_status: /./ }],
    },
  })
  t.equal(at(statuses, 'loadbalancer', 'pools', 1), undefined, 'a pool is either below a listener or idle')
})

t.test('deletion', async t => {
  const api = await startTestApi(OFFERED)
  t.teardown(api.stop)
  await t.test('a pool in use by a policy cannot be deleted, whatever the policy’s state', async t => {
    const user = await makeUser(api, { admin_state_up: false, rules: [] })
    const remove = () => user.ask('DELETE', `pools/${user.one}`)
    t.match(await remove(), { status: 409, body: { faultstring: /in use by L7 policy/ } })
    t.strictSame(
      await statusesOf(user),
      after('ACTIVE', 'ACTIVE', 'ACTIVE', 'ACTIVE', 'gone'),
      'a refused deletion changes nothing',
    )
    await user.ask('DELETE', `l7policies/${user.policyId}`)
    t.equal((await remove()).status, 204, 'a policy being deleted does not hold its pool')
    t.equal((await user.policy({ action: 'REDIRECT_TO_POOL', redirect_pool_id: user.one })).status, 409)
    await settleAll(api, user.lb)
    t.strictSame(await statusesOf(user), after('ACTIVE', 'ACTIVE', 'gone', 'gone', 'gone'))
  })
  await t.test('deleting a listener deletes its policies and rules, and frees their pools', async t => {
    const user = await makeUser(api)
    t.equal((await user.ask('DELETE', `listeners/${user.listener}`)).status, 204)
    const refused = [
      ['POST', 'l7policies', { l7policy: { listener_id: user.listener, action: 'REJECT' } }],
      ['PUT', `l7policies/${user.policyId}`, { l7policy: { name: 'x' } }],
      ['DELETE', `l7policies/${user.policyId}`, undefined],
      ['POST', `l7policies/${user.policyId}/rules`, { rule: { type: 'PATH', compare_type: 'EQUAL_TO', value: '/' } }],
      ['DELETE', `l7policies/${user.policyId}/rules/${user.ruleId}`, undefined],
    ] as const
    for (const [method, path, body] of refused) {
      t.match(
        await user.ask(method, path, body),
        { status: 409, body: { faultstring: `Listener ${user.listener} is immutable and cannot be updated.` } },
        `${method} ${path}`,
      )
    }
    t.equal((await user.ask('DELETE', `pools/${user.one}`)).status, 204)
    await settleAll(api, user.lb)
    t.strictSame(await statusesOf(user), after('ACTIVE', 'gone', 'gone', 'gone', 'gone'))
    t.same(await api.database('l7_rule').where({ load_balancer_id: user.lb }), [])
  })
  await t.test('a policy in PENDING_DELETE is immutable', async t => {
    const user = await makeUser(api)
    await user.ask('DELETE', `l7policies/${user.policyId}`)
    const message = `L7 Policy ${user.policyId} is immutable and cannot be updated.`
    for (const reply of [
      await user.ask('PUT', `l7policies/${user.policyId}`, { l7policy: { position: 1 } }),
      await user.rule(user.policyId),
      await user.ask('PUT', `l7policies/${user.policyId}/rules/${user.ruleId}`, { rule: { value: '/x' } }),
    ]) {
      t.match(reply, { status: 409, body: { faultstring: message } })
    }
    const tree = await readTree(api.database, user.lb)
    t.match(
      tree,
      { listeners: [{ l7Policies: [{ id: user.policyId, change: 'delete' }] }] },
      'the worker still reads it, marked for deletion',
    )
  })
  await t.test('deleting the load balancer deletes its policies', async t => {
    const user = await makeUser(api)
    t.equal((await user.ask('DELETE', `loadbalancers/${user.lb}?cascade=true`)).status, 204)
    t.equal((await user.policy({ action: 'REJECT' })).status, 409)
    await settleAll(api, user.lb)
    t.same(await api.database('l7_policy').where({ load_balancer_id: user.lb }), [])
  })
})

t.test('pools and policies of another load balancer or project cannot be used', async t => {
  const api = await startTestApi(OFFERED)
  t.teardown(api.stop)
  const own = await makeUser(api)
  const others: [string, L7Tree][] = [
    ['a second load balancer of the same project', await makeL7Tree(api)],
    ['another project', await makeL7Tree(api, FOREIGN)],
  ]
  for (const [whose, other] of others) {
    await t.test(whose, async t => {
      const toPool = { action: 'REDIRECT_TO_POOL', redirect_pool_id: other.one }
      const missing = { status: 404, body: { faultstring: `Pool ${other.one} not found.` } }
      t.match(await own.policy(toPool), missing)
      t.match(
        await own.ask('PUT', `l7policies/${own.policyId}`, { l7policy: { redirect_pool_id: other.one } }),
        missing,
      )
      t.match(await own.ask('PUT', `l7policies/${own.policyId}`, { l7policy: toPool }), missing)
      const foreignPolicy = idIn(await other.policy({ action: 'REJECT' }), 'l7policy')
      const foreignRule = idIn(await other.rule(foreignPolicy), 'rule')
      t.equal(
        (await own.ask('PUT', `l7policies/${own.policyId}/rules/${foreignRule}`, { rule: { value: '/' } })).status,
        404,
      )
      t.equal((await own.ask('DELETE', `l7policies/${foreignPolicy}/rules/${own.ruleId}`)).status, 404)
      t.equal((await own.ask('DELETE', `pools/${other.one}`)).status, whose === 'another project' ? 403 : 204)
    })
  }
  await t.test('another project’s policies and rules are out of reach', async t => {
    const [, foreign] = others[1]!
    const policy = idIn(await foreign.policy({ action: 'REJECT' }), 'l7policy')
    const rule = idIn(await foreign.rule(policy), 'rule')
    const requests = [
      ['GET', `l7policies/${policy}`, undefined],
      ['PUT', `l7policies/${policy}`, { l7policy: { redirect_pool_id: own.one } }],
      ['DELETE', `l7policies/${policy}`, undefined],
      ['GET', `l7policies/${policy}/rules`, undefined],
      ['POST', `l7policies/${policy}/rules`, { rule: { type: 'PATH', compare_type: 'EQUAL_TO', value: '/' } }],
      ['GET', `l7policies/${policy}/rules/${rule}`, undefined],
      ['PUT', `l7policies/${policy}/rules/${rule}`, { rule: { value: '/' } }],
      ['DELETE', `l7policies/${policy}/rules/${rule}`, undefined],
    ] as const
    for (const [method, path, body] of requests) {
      t.equal((await own.ask(method, path, body)).status, 403, `${method} ${path}`)
    }
    const underTheirs = { listener_id: foreign.listener, action: 'REDIRECT_TO_POOL', redirect_pool_id: own.one }
    t.equal((await own.policy(underTheirs)).status, 403)
    t.same((await own.ask('GET', `l7policies?listener_id=${foreign.listener}`)).body.l7policies, [])
    t.equal((await own.ask('GET', `l7policies?project_id=${FOREIGN}`)).status, 403)
    t.match((await foreign.ask('GET', `l7policies/${policy}`)).body, {
      l7policy: { action: 'REJECT', rules: [{ id: rule }] },
    })
  })
})
