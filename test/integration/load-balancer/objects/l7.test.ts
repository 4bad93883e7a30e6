import t from 'tap'
import { OWN, tokenOf } from '../../../support/clients/callers.js'
import { at, idIn, type Json } from '../../../support/clients/json-answers.js'
import { SUBNET, startTestApi } from '../../../support/clients/load-balancer-api.js'
import { keysOf, L7_POLICY_KEYS, L7_RULE_KEYS, NOWHERE, sorted } from '../../../support/database/load-balancer-keys.js'
import { makeL7Tree } from '../../../support/inputs/l7-tree.js'

const OFFERED = { providers: ['amphora', 'noop_driver'] }

t.test('L7 policies', async t => {
  const api = await startTestApi(OFFERED)
  t.teardown(api.stop)
  const tree = await makeL7Tree(api)
  const { policy, ask } = tree
  const update = (id: string, l7policy: object) => ask('PUT', `l7policies/${id}`, { l7policy })

  await t.test('each action takes the attributes it needs and no others', async t => {
    const rejecting = await policy({ action: 'REJECT', redirect_http_code: 301, tags: ['a'] })
    t.equal(rejecting.status, 201, rejecting.text)
    t.equal(keysOf(rejecting.body.l7policy), sorted(L7_POLICY_KEYS))
    t.match(rejecting.body.l7policy, {
      name: '',
      description: '',
      admin_state_up: true,
      project_id: OWN,
      tenant_id: OWN,
      listener_id: tree.listener,
      provisioning_status: 'PENDING_CREATE',
      operating_status: 'OFFLINE',
      position: 1,
      rules: [],
      tags: ['a'],
      redirect_pool_id: null,
      redirect_url: null,
      redirect_prefix: null,
      redirect_http_code: null,
      updated_at: null,
    })
    t.match(await policy({ action: 'REDIRECT_TO_POOL', redirect_pool_id: tree.one }), {
      status: 201,
      body: { l7policy: { position: 2, redirect_pool_id: tree.one, redirect_http_code: null } },
    })
    t.match(await policy({ action: 'REDIRECT_TO_URL', redirect_url: 'https://a.example/x?y=%20#z' }), {
      status: 201,
      body: { l7policy: { position: 3, redirect_url: 'https://a.example/x?y=%20#z', redirect_http_code: 302 } },
    })
    t.match(
      await policy({
        action: 'REDIRECT_PREFIX',
        redirect_prefix: 'http://[2001:db8::1]:8080/p',
        redirect_http_code: 308,
      }),
      { status: 201, body: { l7policy: { redirect_prefix: 'http://[2001:db8::1]:8080/p', redirect_http_code: 308 } } },
    )
    t.match((await ask('GET', `listeners/${tree.listener}`)).body, {
      listener: { l7policies: [{ id: idIn(rejecting, 'l7policy') }, {}, {}, { id: String }] },
    })
  })

  await t.test('invalid policies are refused', async t => {
    const url = { action: 'REDIRECT_TO_URL', redirect_url: 'http://a.example' }
    const refused = [
      [{}, 400, /action.*Mandatory field missing/],
      [{ action: 'reject' }, 400, /one of: REJECT/],
      [{ action: 'REDIRECT_TO_POOL' }, 400, /requires redirect_pool_id/],
      [{ action: 'REDIRECT_TO_URL', redirect_prefix: 'http://a.example' }, 400, /requires redirect_url/],
      [{ action: 'REDIRECT_PREFIX' }, 400, /requires redirect_prefix/],
      [{ ...url, redirect_pool_id: tree.one }, 400, /cannot be combined/],
      [
        { action: 'REJECT', redirect_pool_id: tree.one, redirect_prefix: 'http://a.example' },
        400,
        /cannot be combined/,
      ],
      [{ ...url, redirect_http_code: 300 }, 400, /one of: 301, 302, 303, 307, 308/],
      [{ ...url, redirect_http_code: '304' }, 400, /one of: 301/],
      [{ ...url, position: 0 }, 400, /greater or equal to 1/],
      [{ ...url, position: 2147483648 }, 400, /lower or equal/],
      [{ action: 'REDIRECT_TO_POOL', redirect_pool_id: NOWHERE }, 404, /Pool/],
      [{ action: 'REJECT', listener_id: NOWHERE }, 404, /Listener/],
      [{ action: 'REJECT', redirect_pool: { name: 'one' } }, 400, /Unknown attribute.*redirect_pool/],
      ...[
        'ftp://a.example',
        'http://',
        'http:///x',
        'a.example',
        'http://a b',
        'http://a\r\nSet-Cookie: x',
        'http://a/\u00e9',
        'http://[::1',
        '',
      ].map(value => [{ ...url, redirect_url: value }, 400, /valid URL/] as const),
    ] as const
    for (const [body, status, message] of refused) {
      t.match(await policy(body), { status, body: { faultstring: message } }, JSON.stringify(body))
    }
    t.match(await ask('GET', `l7policies/${NOWHERE}`), {
      status: 404,
      body: { faultstring: `L7 Policy ${NOWHERE} not found.` },
    })
  })

  await t.test('an update switches the action through the redirect attribute that it sets', async t => {
    const id = idIn(await policy({ action: 'REJECT', name: 'switched' }), 'l7policy')
    t.match(await update(id, {}), { status: 400, body: { faultstring: /nothing to update/ } })
    const targets = (pool: string | null, url: string | null, prefix: string | null, code: number | null) => ({
      redirect_pool_id: pool,
      redirect_url: url,
      redirect_prefix: prefix,
      redirect_http_code: code,
    })
    const steps = [
      [
        { redirect_url: 'http://a.example' },
        { action: 'REDIRECT_TO_URL', ...targets(null, 'http://a.example', null, 302) },
      ],
      [{ redirect_http_code: 303 }, { action: 'REDIRECT_TO_URL', ...targets(null, 'http://a.example', null, 303) }],
      [
        { redirect_prefix: 'http://p.example' },
        { action: 'REDIRECT_PREFIX', ...targets(null, null, 'http://p.example', 303) },
      ],
      [{ redirect_http_code: null }, { action: 'REDIRECT_PREFIX', ...targets(null, null, 'http://p.example', 302) }],
      [{ redirect_pool_id: tree.two }, { action: 'REDIRECT_TO_POOL', ...targets(tree.two, null, null, null) }],
      [
        { name: 'n', description: 'd', admin_state_up: 'no' },
        {
          action: 'REDIRECT_TO_POOL',
          name: 'n',
          description: 'd',
          admin_state_up: false,
          ...targets(tree.two, null, null, null),
        },
      ],
      [
        { action: 'REDIRECT_TO_URL', redirect_url: 'http://b.example', redirect_pool_id: null },
        { action: 'REDIRECT_TO_URL', ...targets(null, 'http://b.example', null, 302) },
      ],
      [{ action: 'REJECT' }, { action: 'REJECT', ...targets(null, null, null, null) }],
    ] as const
    for (const [body, after] of steps) {
      t.match(await update(id, body), { status: 200, body: { l7policy: after } }, JSON.stringify(body))
    }
    await update(id, { redirect_pool_id: tree.two })
    const refused = [
      [{ action: 'REDIRECT_TO_URL' }, 400],
      [{ action: 'REDIRECT_TO_POOL' }, 400],
      [{ redirect_pool_id: null }, 400],
      [{ redirect_pool_id: tree.two, redirect_url: 'http://a.example' }, 400],
      [{ redirect_pool_id: NOWHERE }, 404],
      [{ listener_id: tree.listener }, 400],
      [{ rules: [] }, 400],
      [{ action: null }, 400],
    ] as const
    for (const [body, status] of refused) t.equal((await update(id, body)).status, status, JSON.stringify(body))
    t.match((await ask('GET', `l7policies/${id}`)).body, {
      l7policy: { action: 'REDIRECT_TO_POOL', redirect_pool_id: tree.two },
    })
  })

  await t.test('a policy must suit its listener’s protocol and its pool', async t => {
    const make = async (loadbalancer_id: string, protocol: string, port: number, more: object = {}) =>
      idIn(
        await ask('POST', 'listeners', { listener: { loadbalancer_id, protocol, protocol_port: port, ...more } }),
        'listener',
      )
    const amphora = await ask('POST', 'loadbalancers', { loadbalancer: { vip_subnet_id: SUBNET, provider: 'amphora' } })
    const tcp = await make(idIn(amphora, 'loadbalancer'), 'TCP', 81)
    t.match(await policy({ listener_id: tcp, action: 'REJECT' }), {
      status: 501,
      body: {
        faultstring: /^Provider 'amphora' does not support a requested option: L7 Policy listener_protocol 'TCP'/,
      },
    })
    t.match(
      await ask('POST', 'listeners', {
        listener: {
          loadbalancer_id: idIn(amphora, 'loadbalancer'),
          protocol: 'TCP',
          protocol_port: 82,
          l7policies: [{ action: 'REJECT' }],
        },
      }),
      { status: 501, body: { faultstring: /listener_protocol 'TCP'/ } },
    )
    const prometheus = await make(tree.lb, 'PROMETHEUS', 9090)
    t.match(await policy({ listener_id: prometheus, action: 'REJECT' }), {
      status: 400,
      body: { faultstring: /cannot have child objects/ },
    })
    t.match(
      await ask('POST', 'listeners', {
        listener: {
          loadbalancer_id: tree.lb,
          protocol: 'PROMETHEUS',
          protocol_port: 9091,
          l7policies: [{ action: 'REJECT' }],
        },
      }),
      { status: 400, body: { faultstring: /cannot have child objects/ } },
    )
    const pool = await ask('POST', 'pools', {
      pool: { loadbalancer_id: tree.lb, protocol: 'TCP', lb_algorithm: 'ROUND_ROBIN' },
    })
    const toTcp = { action: 'REDIRECT_TO_POOL', redirect_pool_id: idIn(pool, 'pool') }
    t.match(await policy(toTcp), {
      status: 400,
      body: { faultstring: /'TCP' is invalid while the listener protocol is 'HTTP'/ },
    })
    const id = idIn(await policy({ action: 'REJECT' }), 'l7policy')
    t.equal((await update(id, { redirect_pool_id: idIn(pool, 'pool') })).status, 400)
  })
})

t.test('L7 rules', async t => {
  const api = await startTestApi(OFFERED)
  t.teardown(api.stop)
  const tree = await makeL7Tree(api)
  const id = idIn(await tree.policy({ action: 'REJECT', name: 'p' }), 'l7policy')
  const other = idIn(await tree.policy({ action: 'REJECT', name: 'other' }), 'l7policy')
  const created = await tree.rule(id, { type: 'HEADER', compare_type: 'EQUAL_TO', key: 'X-A', value: 'b', tags: ['t'] })
  t.equal(created.status, 201, created.text)
  t.equal(keysOf(created.body.rule), sorted(L7_RULE_KEYS))
  t.match(created.body.rule, {
    type: 'HEADER',
    compare_type: 'EQUAL_TO',
    key: 'X-A',
    value: 'b',
    invert: false,
    admin_state_up: true,
    project_id: OWN,
    tenant_id: OWN,
    provisioning_status: 'PENDING_CREATE',
    operating_status: 'OFFLINE',
    tags: ['t'],
  })
  const rule = idIn(created, 'rule')
  const path = `l7policies/${id}/rules/${rule}`
  await t.test('an update is checked together with the stored values', async t => {
    const update = (body: object) => tree.ask('PUT', path, { rule: body })
    t.match(await update({ invert: true, value: '"with a blank"' }), {
      status: 200,
      body: { rule: { invert: true, value: '"with a blank"', key: 'X-A' } },
    })
    t.match(await update({ invert: null, tags: null, admin_state_up: false }), {
      body: { rule: { invert: false, tags: ['t'], admin_state_up: false } },
    })
    t.equal((await update({ type: 'COOKIE' })).status, 400, 'the stored value is not valid in a cookie')
    t.equal((await update({ key: null })).status, 400)
    t.equal((await update({ value: null })).status, 400)
    t.match(await update({ type: 'PATH', value: '/x' }), {
      status: 200,
      body: { rule: { type: 'PATH', key: null, value: '/x' } },
    })
    t.equal((await update({ type: 'HEADER' })).status, 400, 'the change to PATH removed the key')
    t.equal((await update({ compare_type: 'REGEX', value: '(' })).status, 400)
    t.match(await update({}), { status: 200, body: { rule: { value: '/x' } } })
  })
  await t.test('a rule is found only in its own policy', async t => {
    for (const [method, body] of [['GET'], ['PUT', { rule: { value: '/y' } }], ['DELETE']] as const) {
      t.match(await tree.ask(method, `l7policies/${other}/rules/${rule}`, body), {
        status: 404,
        body: { faultstring: `L7 Rule ${rule} not found.`, code: undefined },
      })
      t.strictSame(
        (await tree.ask(method, `l7policies/${NOWHERE}/rules/${rule}`, body)).body,
        {
          faultcode: 'Client',
          faultstring: `L7 Policy ${NOWHERE} not found.`,
          debuginfo: null,
          code: 404,
          title: 'Not Found',
          description: `L7 Policy ${NOWHERE} not found.`,
        },
        `${method}: the fault for a missing parent has the keys of the routing layer`,
      )
    }
    for (const missing of [NOWHERE, 'nothing']) {
      t.match(await tree.ask('GET', `l7policies/${missing}/rules`), { status: 404, body: { code: 404 } })
      t.match(await tree.rule(missing), { status: 404, body: { code: 404 } })
    }
  })
  await t.test('a policy has at most fifty rules', async t => {
    const rules = Array.from({ length: 51 }, (_, index) => ({
      type: 'PATH',
      compare_type: 'EQUAL_TO',
      value: `/${index}`,
    }))
    t.equal((await tree.policy({ action: 'REJECT', rules })).status, 409)
    t.equal(
      (
        await tree.ask('POST', 'listeners', {
          listener: {
            loadbalancer_id: tree.lb,
            protocol: 'HTTP',
            protocol_port: 81,
            l7policies: [{ action: 'REJECT', rules }],
          },
        })
      ).status,
      409,
    )
    const full = await tree.policy({ action: 'REJECT', name: 'full', rules: rules.slice(1) })
    t.equal(full.status, 201, full.text)
    const fullId = idIn(full, 'l7policy')
    t.match(await tree.rule(fullId), { status: 409, body: { faultstring: /at most 50 rules/ } })
    const first = String(at(full.body, 'l7policy', 'rules', 0, 'id'))
    t.equal((await tree.ask('DELETE', `l7policies/${fullId}/rules/${first}`)).status, 204)
    t.equal((await tree.rule(fullId)).status, 201, 'deleting a rule frees its place at once')
    const listed = (await tree.ask('GET', `l7policies/${fullId}/rules?limit=2&sort=value:desc&fields=value`)).body
    t.same(listed.rules, [{ value: '/a' }, { value: '/9' }])
    t.match(listed.rules_links, [{ rel: 'next', href: /\/l7policies\/[^/]+\/rules\?limit=2&/ }])
  })
})

t.test('lists of policies and rules', async t => {
  const api = await startTestApi(OFFERED)
  t.teardown(api.stop)
  const tree = await makeL7Tree(api)
  await tree.policy({
    action: 'REJECT',
    name: 'a',
    tags: ['x', 'y'],
    rules: [{ type: 'COOKIE', compare_type: 'CONTAINS', key: 'k', value: 'v', invert: true, tags: ['r'] }],
  })
  await tree.policy({ action: 'REDIRECT_TO_POOL', name: 'b', redirect_pool_id: tree.one, position: 1, tags: ['y'] })
  await tree.policy({
    action: 'REDIRECT_TO_URL',
    name: 'c',
    redirect_url: 'http://a.example',
    redirect_http_code: 307,
    admin_state_up: false,
  })
  const names = async (query: string, token?: string) => {
    const reply = await api.ask('GET', `/v2/lbaas/l7policies${query}`, undefined, token)
    t.equal(reply.status, 200, reply.text)
    return (at(reply.body, 'l7policies') as Json[]).map(({ name }) => name)
  }
  const expectations = [
    ['', ['a', 'b', 'c']],
    ['?sort=position', ['b', 'a', 'c']],
    ['?sort_key=action&sort_dir=desc', ['a', 'c', 'b']],
    [`?listener_id=${tree.listener}`, ['a', 'b', 'c']],
    [`?listener_id=${NOWHERE}`, []],
    ['?action=REJECT', ['a']],
    ['?position=1', ['b']],
    [`?redirect_pool_id=${tree.one}`, ['b']],
    ['?redirect_url=http://a.example', ['c']],
    ['?redirect_http_code=307', ['c']],
    ['?admin_state_up=false', ['c']],
    ['?operating_status=OFFLINE&provisioning_status=PENDING_CREATE', ['a', 'b', 'c']],
    ['?tags=x,y', ['a']],
    ['?tags-any=x,y&not-tags=x', ['b']],
    ['?limit=1', ['a']],
    [`?project_id=${OWN}&name=c`, ['c']],
  ] as const
  for (const [query, expected] of expectations) t.same(await names(query), expected, query)
  t.same(await names('', tokenOf('member', 'b'.repeat(32))), [])
  t.equal((await api.ask('GET', '/v2/lbaas/l7policies?rules=x')).status, 400)
  t.equal((await api.ask('GET', '/v2/lbaas/l7policies?loadbalancer_id=x')).status, 400)
  const [a] = (await api.ask('GET', '/v2/lbaas/l7policies?name=a&fields=id')).body.l7policies as Json[]
  const rules = async (query: string) =>
    (at((await api.ask('GET', `/v2/lbaas/l7policies/${a?.id}/rules${query}`)).body, 'rules') as Json[]).length
  for (const query of ['?type=COOKIE', '?compare_type=CONTAINS', '?key=k', '?value=v', '?invert=true', '?tags=r']) {
    t.equal(await rules(query), 1, query)
  }
  t.equal(await rules('?invert=false'), 0)
  t.same((await api.ask('GET', `/v2/lbaas/l7policies/${a?.id}?fields=name`)).body, { l7policy: { name: 'a' } })
})
