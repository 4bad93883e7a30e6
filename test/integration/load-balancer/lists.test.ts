import t from 'tap'
import { FOREIGN, OWN, tokenOf } from '../../support/clients/callers.js'
import { at, idIn, type Json, type Reply } from '../../support/clients/json-answers.js'
import { SUBNET, startTestApi } from '../../support/clients/load-balancer-api.js'

t.test('lists of load balancers', async t => {
  const api = await startTestApi()
  t.teardown(api.stop)
  const list = (query = '', token?: string) => api.ask('GET', `/v2.0/lbaas/loadbalancers${query}`, undefined, token)
  const names = (reply: Reply) => (at(reply.body, 'loadbalancers') as Json[]).map(({ name }) => name)
  const link = (reply: Reply, rel: string) => {
    const found = (at(reply.body, 'loadbalancers_links') as Json[]).find(one => one.rel === rel)
    return found === undefined ? null : String(found.href)
  }
  const create = (loadbalancer: object, token?: string) =>
    api.ask('POST', '/v2/lbaas/loadbalancers', { loadbalancer: { vip_subnet_id: SUBNET, ...loadbalancer } }, token)
  for (const [index, name] of ['c', 'a', 'b', 'a', 'd'].entries()) {
    const reply = await create({
      name,
      description: `number ${index}`,
      admin_state_up: index % 2 === 0,
      tags: [`t${index}`, 'all', ...(index < 2 ? ['early'] : [])],
    })
    t.equal(reply.status, 201, reply.text)
    if (index === 3) await api.apply(idIn(reply, 'loadbalancer'))
  }
  t.equal((await create({ name: 'foreign' }, tokenOf('member', FOREIGN))).status, 201)

  await t.test('a list shows the caller’s project; administrators see every project', async t => {
    t.same(names(await list()), ['c', 'a', 'b', 'a', 'd'], 'the caller’s project, in order of creation')
    t.same(names(await list('', tokenOf('admin'))), ['c', 'a', 'b', 'a', 'd', 'foreign'])
    t.same(names(await list(`?project_id=${FOREIGN}`, tokenOf('load-balancer_global_observer'))), ['foreign'])
    t.equal(names(await list(`?project_id=${OWN}`)).length, 5)
    t.equal((await list(`?project_id=${FOREIGN}`)).status, 403)
    t.equal((await list('', tokenOf('member', ''))).status, 403)
    t.equal((await list('', tokenOf('nobody'))).status, 403)
  })
  await t.test('filters', async t => {
    const cases: [string, string[]][] = [
      ['name=a', ['a', 'a']],
      ['name=a&admin_state_up=False', ['a', 'a']],
      ['admin_state_up=True', ['c', 'b', 'd']],
      ['provisioning_status=ACTIVE', ['a']],
      ['provisioning_status=PENDING_CREATE', ['c', 'a', 'b', 'd']],
      ['provisioning_status=NONSENSE', []],
      ['operating_status=OFFLINE&description=number 2', ['b']],
      [`vip_subnet_id=${SUBNET.toUpperCase()}&name=b`, ['b']],
      ['provider=other', []],
      ['flavor_id=11111111-1111-4111-8111-111111111111', []],
      ['id=web', []],
      ['tags=t0,all', ['c']],
      ['tags=t0&tags=t1', []],
      ['tags-any=t0,t1', ['c', 'a']],
      ['not-tags=all,early', ['b', 'a', 'd']],
      ['not-tags-any=t0,t1,t2', ['a', 'd']],
      ['tags=all&not-tags-any=early&name=a', ['a']],
    ]
    for (const [query, expected] of cases) t.same(names(await list(`?${query}`)), expected, query)
    const [first] = at((await list()).body, 'loadbalancers') as Json[]
    for (const key of ['id', 'vip_address', 'vip_port_id', 'created_at']) {
      t.ok(names(await list(`?${key}=${encodeURIComponent(String(first?.[key]))}`)).includes('c'), key)
    }
    t.match(await list('?bogus=1'), {
      status: 400,
      body: { faultstring: /^One or more arguments are either duplicate or invalid: .* is (unknown|given twice)\.$/ },
    })
    t.equal((await list('?name=a&name=b')).status, 400)
    t.equal((await list('?vip_sg_ids=x')).status, 400)
  })
  await t.test('sorting', async t => {
    const cases: [string, string[]][] = [
      ['sort=name', ['a', 'a', 'b', 'c', 'd']],
      ['sort_key=name&sort_dir=desc', ['d', 'c', 'b', 'a', 'a']],
      ['sort=admin_state_up:desc,name:desc', ['d', 'c', 'b', 'a', 'a']],
      ['sort=provisioning_status,name:desc', ['a', 'd', 'c', 'b', 'a']],
      ['sort=created_at:desc', ['d', 'a', 'b', 'a', 'c']],
    ]
    for (const [query, expected] of cases) t.same(names(await list(`?${query}`)), expected, query)
    t.match(await list('?sort=bogus'), {
      status: 400,
      body: { faultstring: `Supplied sort key 'bogus' is not valid.` },
    })
    t.match(await list('?sort=name:up'), {
      status: 400,
      body: { faultstring: `Supplied sort direction 'up' is not valid.` },
    })
    for (const query of [`sort=${'name,'.repeat(1000)}`, 'sort=id&'.repeat(11), `sort_key=${'id,'.repeat(11)}`]) {
      t.match(await list(`?${query}`), {
        status: 400,
        body: { faultstring: 'A list can be sorted by at most 10 keys.' },
      })
    }
  })
  await t.test('links lead forwards and backwards through the pages, in every sort order', async t => {
    // updated_at is null for some, so this order has ties and nulls.
    await api.ask('PUT', `/v2/lbaas/loadbalancers/${at((await list()).body, 'loadbalancers', 1, 'id')}`, {
      loadbalancer: { description: 'changed' },
    })
    for (const order of [
      '',
      '&sort=name:desc',
      '&sort_key=name,admin_state_up&sort_dir=asc,desc',
      '&sort=updated_at',
      '&sort=updated_at:desc,name',
      '&sort=created_at:desc',
      '&tags=all&name=a',
    ]) {
      const all = at((await list(`?limit=infinite${order}`)).body, 'loadbalancers') as Json[]
      const forwards: unknown[] = []
      let url: string | null = `${api.url}/v2.0/lbaas/loadbalancers?limit=2&fields=id&fields=name${order}`
      let last: Reply | undefined
      for (let page = 0; url !== null && page < 10; page++) {
        last = await api.ask('GET', url.slice(api.url.length))
        t.equal(last.status, 200, last.text)
        forwards.push(...(at(last.body, 'loadbalancers') as Json[]).map(({ id }) => id))
        url = link(last, 'next')
      }
      t.same(
        forwards,
        all.map(({ id }) => id),
        `forwards ${order}`,
      )
      const backwards: unknown[] = (at(last?.body, 'loadbalancers') as Json[]).map(({ id }) => id)
      url = last === undefined ? null : link(last, 'previous')
      for (let page = 0; url !== null && page < 10; page++) {
        const reply = await api.ask('GET', url.slice(api.url.length))
        const objects = at(reply.body, 'loadbalancers') as Json[]
        t.strictSame(Object.keys(objects[0] ?? {}), ['id', 'name'], 'the links keep the fields parameter')
        backwards.unshift(...objects.map(({ id }) => id))
        url = link(reply, 'previous')
      }
      t.same(
        backwards,
        all.map(({ id }) => id),
        `backwards ${order}`,
      )
    }
  })
  await t.test('limits and markers', async t => {
    t.equal(names(await list('?limit=2')).length, 2)
    t.match(at((await list('?limit=2')).body, 'loadbalancers_links'), [
      { rel: 'next', href: /^http:\/\/127\.0\.0\.1:\d+\/v2\.0\/lbaas\/loadbalancers\?limit=2&marker=/ },
    ])
    t.same(at((await list('?limit=9')).body, 'loadbalancers_links'), [])
    for (const limit of ['0', '-1', 'infinite']) t.equal(names(await list(`?limit=${limit}`)).length, 5, limit)
    t.match(await list('?limit=x'), {
      status: 400,
      body: { faultstring: `Supplied pagination limit 'x' is not valid.` },
    })
    const nowhere = 'ffffffff-ffff-4fff-8fff-ffffffffffff'
    t.match(await list(`?marker=${nowhere}`), {
      status: 400,
      body: { faultstring: `Supplied pagination marker '${nowhere}' is not valid.` },
    })
    const foreign = at((await list('?name=foreign', tokenOf('admin'))).body, 'loadbalancers', 0, 'id')
    t.equal((await list(`?marker=${foreign}`)).status, 400, 'another project’s marker is unknown')
    t.equal((await list(`?marker=${foreign}&sort=name`)).status, 400)
    const last = at((await list()).body, 'loadbalancers', 4, 'id')
    t.match(
      await list(`?marker=${last}&limit=1`),
      { status: 200, body: { loadbalancers: [], loadbalancers_links: [] } },
      'the SDK reads until it gets an empty page',
    )
  })
})

t.test('lists of children', async t => {
  const api = await startTestApi()
  t.teardown(api.stop)
  const make = (port: number) =>
    api.ask('POST', '/v2/lbaas/loadbalancers', {
      loadbalancer: {
        vip_subnet_id: SUBNET,
        listeners: [
          {
            name: `l${port}`,
            protocol: 'TCP',
            protocol_port: port,
            tags: ['x'],
            default_pool: {
              name: `p${port}`,
              protocol: 'TCP',
              lb_algorithm: 'ROUND_ROBIN',
              members: [
                { address: '10.0.0.1', protocol_port: port },
                { address: '10.0.0.2', protocol_port: port, backup: true, weight: 0 },
              ],
              healthmonitor: { name: `h${port}`, type: 'TCP', delay: port, timeout: 1, max_retries: 1 },
            },
          },
        ],
      },
    })
  const [one, two] = [await make(1), await make(2)]
  const lb = idIn(one, 'loadbalancer')
  const pool = String(at(one.body, 'loadbalancer', 'pools', 0, 'id'))
  const found = async (path: string) => {
    const reply = await api.ask('GET', `/v2/lbaas/${path}`)
    t.equal(reply.status, 200, reply.text)
    return (Object.values(reply.body)[0] as Json[]).map(object => object.name || object.address)
  }
  t.same(await found('listeners'), ['l1', 'l2'])
  t.same(await found(`listeners?loadbalancer_id=${lb}`), ['l1'])
  t.same(await found(`listeners?load_balancer_id=${lb}&protocol=TCP&protocol_port=1&connection_limit=-1&tags=x`), [
    'l1',
  ])
  t.same(await found(`listeners?default_pool_id=${pool}`), ['l1'])
  t.same(await found(`pools?loadbalancer_id=${lb}&lb_algorithm=ROUND_ROBIN`), ['p1'])
  t.same(await found(`pools?healthmonitor_id=${at(two.body, 'loadbalancer', 'pools', 0, 'healthmonitor', 'id')}`), [
    'p2',
  ])
  t.same(await found(`healthmonitors?pool_id=${pool}&type=TCP&max_retries=1`), ['h1'])
  t.same(await found('healthmonitors?delay=2'), ['h2'])
  t.same(await found('healthmonitors?operating_status=ONLINE'), [], 'derived values can be filtered by too')
  t.same(await found(`pools/${pool}/members?backup=true&weight=0`), ['10.0.0.2'])
  t.same(await found(`pools/${pool}/members?sort=address:desc`), ['10.0.0.2', '10.0.0.1'])
  t.equal((await api.ask('GET', `/v2/lbaas/pools?listener_id=${lb}`)).status, 400, 'pools have no such filter')
  t.same((await api.ask('GET', `/v2/lbaas/pools/${pool}/members?fields=address&limit=1`)).body.members, [
    { address: '10.0.0.1' },
  ])
})

t.test('every response attribute can be filtered and sorted by, or is refused by name', async t => {
  const api = await startTestApi()
  t.teardown(api.stop)
  const created = await api.ask('POST', '/v2/lbaas/loadbalancers', {
    loadbalancer: {
      name: 'x',
      vip_subnet_id: SUBNET,
      listeners: [
        {
          protocol: 'HTTP',
          protocol_port: 1,
          default_pool: {
            name: 'p',
            protocol: 'HTTP',
            lb_algorithm: 'ROUND_ROBIN',
            members: [{ address: '10.0.0.1', protocol_port: 1 }],
            healthmonitor: { type: 'HTTP', delay: 1, timeout: 1, max_retries: 1, http_version: 1.1 },
          },
        },
      ],
    },
  })
  const pool = at(created.body, 'loadbalancer', 'pools', 0, 'id')
  await api.database('amphora').insert({
    id: SUBNET,
    load_balancer_id: idIn(created, 'loadbalancer'),
    status: 'ALLOCATED',
    lb_network_ip: '10.0.0.3',
  })
  for (const path of [
    'octavia/amphorae',
    'lbaas/loadbalancers',
    'lbaas/listeners',
    'lbaas/pools',
    `lbaas/pools/${pool}/members`,
    'lbaas/healthmonitors',
  ]) {
    const [object] = Object.values((await api.ask('GET', `/${path}`, undefined, tokenOf('admin'))).body)[0] as Json[]
    for (const [key, value] of Object.entries(object ?? {})) {
      const sorted = await api.ask('GET', `/${path}?sort=${key}:desc`, undefined, tokenOf('admin'))
      const scalar = typeof value !== 'object'
      t.ok(
        scalar || value === null ? [200, 400].includes(sorted.status) : sorted.status === 400,
        `sort ${path} by ${key}: ${sorted.text.slice(0, 100)}`,
      )
      if (value === null) {
        const answer = await api.ask('GET', `/${path}?${key}=1`, undefined, tokenOf('admin'))
        t.ok([200, 400].includes(answer.status), `filter ${path} by the unset ${key}: ${answer.status}`)
      }
      if (!scalar || key === 'tenant_id') continue
      t.equal(sorted.status, 200, `sort ${path} by ${key}`)
      const reply = await api.ask(
        'GET',
        `/${path}?${key}=${encodeURIComponent(String(value))}`,
        undefined,
        tokenOf('admin'),
      )
      t.equal((Object.values(reply.body)[0] as Json[]).length, 1, `filter ${path} by ${key}`)
    }
  }
})
