import { randomUUID } from 'node:crypto'
import t from 'tap'
import { networkSource } from '../../../controller/network/api/networks/networks.js'
import { subnetSource } from '../../../controller/network/api/networks/subnets.js'
import { portSource } from '../../../controller/network/api/ports/port-source.js'
import { floatingIpSource } from '../../../controller/network/api/routers/floating-ips.js'
import { routerSource } from '../../../controller/network/api/routers/router-source.js'
import { groupSource } from '../../../controller/network/api/security-groups/groups.js'
import { ruleSource } from '../../../controller/network/api/security-groups/rules.js'
import {
  ADMIN,
  type Item,
  ids,
  isFault,
  PLURALS,
  type Reply,
  startNetworkApi,
} from '../../support/clients/network-api.js'

const SOURCES = [networkSource, subnetSource, portSource, routerSource, floatingIpSource, groupSource, ruleSource]

const api = await startNetworkApi()
t.teardown(api.stop)
const { call, create, list } = api

t.test('lists', async t => {
  const token = 'lists/member,reader'
  const networks: Item[] = []
  for (const name of ['c', 'a', 'b', 'e', 'd'])
    networks.push(await create('network', { name, description: 'same' }, token))
  const [c, a, b, e, d] = networks as [Item, Item, Item, Item, Item]
  const subnet = await create('subnet', { network_id: a.id, cidr: '10.30.0.0/24', name: '' }, token)
  const port = await create(
    'port',
    { network_id: a.id, fixed_ips: [{ ip_address: '10.30.0.7' }], device_id: 'vm 1' },
    token,
  )
  const own = 'project_id=lists'

  await t.test('filter by attribute, fixed IP and device', async t => {
    const cases: [plural: string, query: string, expected: Item[]][] = [
      ['networks', own, [c, a, b, e, d]],
      ['networks', 'tenant_id=lists&name=a&name=b', [a, b]],
      ['networks', `id=${a.id}&id=${b.id}&name=b`, [b]],
      ['networks', `id=${a.id.toUpperCase()}`, [a]],
      ['networks', 'id=a', []],
      ['networks', `${own}&admin_state_up=False`, []],
      ['networks', `${own}&shared=False&router%3Aexternal=0&status=ACTIVE`, [c, a, b, e, d]],
      ['networks', `${own}&status=DOWN`, []],
      ['networks', `${own}&name=%00`, []],
      [
        'subnets',
        `${own}&cidr=10.30.0.0/24&ip_version=4&network_id=${a.id}&gateway_ip=10.30.0.1&enable_dhcp=true`,
        [subnet],
      ],
      ['subnets', `${own}&name=`, [subnet]],
      ['subnets', `${own}&ip_version=6`, []],
      ['subnets', `${own}&cidr=nonsense`, []],
      ['ports', `fixed_ips=subnet_id%3D${subnet.id}`, [port]],
      ['ports', 'fixed_ips=ip_address%3D10.30.0.7', [port]],
      ['ports', `fixed_ips=subnet_id%3D${subnet.id}&fixed_ips=ip_address%3D10.30.0.8`, []],
      ['ports', 'fixed_ips=ip_address_substr%3D.30.0.', [port]],
      ['ports', 'device_id=vm+1&status=ACTIVE', [port]],
      ['ports', `mac_address=${String(port.mac_address).toUpperCase()}&${own}`, [port]],
      ['ports', 'device_id=vm+1&security_group_ids=x', []],
    ]
    for (const [plural, query, expected] of cases) {
      t.strictSame(ids(await list(plural, query, token)), ids(expected), `${plural}?${query}`)
    }
    const refused = [
      'colour=red',
      'shared=perhaps',
      'mtu=many',
      'toString=1',
      'sort_key=colour',
      'sort_key=name&sort_dir=up',
      'limit=-1',
      'limit=x',
      'page_reverse=x',
      'sort_key=name&'.repeat(11),
    ]
    for (const query of refused) isFault(t, await call(`GET /v2.0/networks?${query}`, token), 400, 'HTTPBadRequest')
    isFault(t, await call('GET /v2.0/ports?fixed_ips=colour%3Dred', token), 400, 'HTTPBadRequest')
  })

  await t.test('are sorted by several keys and reduced to chosen fields', async t => {
    t.strictSame(ids(await list('networks', `${own}&sort_key=name`, token)), ids([a, b, c, d, e]))
    t.strictSame(ids(await list('networks', `${own}&sort_key=name&sort_dir=desc`, token)), ids([e, d, c, b, a]))
    const byTwo = 'sort_key=description&sort_dir=asc&sort_key=name&sort_dir=desc'
    t.strictSame(ids(await list('networks', `${own}&${byTwo}`, token)), ids([e, d, c, b, a]))
    t.strictSame(await list('networks', 'name=a&fields=name&fields=colour', token), [{ name: 'a' }])
  })

  await t.test('page forwards and backwards through links', async t => {
    for (const query of [own, `${own}&sort_key=description&sort_dir=desc&sort_key=name&sort_dir=asc`]) {
      const all = ids(await list('networks', query, token))
      const seen: string[] = []
      let url: string | undefined = `/v2.0/networks?${query}&limit=2`
      const pages: Reply[] = []
      for (let n = 0; url !== undefined && n < 5; n++) {
        const reply: Reply = await call(`GET ${url}`, token)
        pages.push(reply)
        seen.push(...ids(reply.body.networks as Item[]))
        const links = (reply.body.networks_links ?? []) as { rel: string; href: string }[]
        url = links.find(link => link.rel === 'next')?.href.slice(api.url.length)
      }
      t.strictSame(seen, all, 'each network once, in order')
      t.equal(pages.length, 3)
      const back = (pages[2]!.body.networks_links as { rel: string; href: string }[]).find(
        link => link.rel === 'previous',
      )
      const previous = await call(`GET ${back!.href.slice(api.url.length)}`, token)
      t.strictSame(ids(previous.body.networks as Item[]), all.slice(2, 4), 'the previous page')
    }
    isFault(t, await call(`GET /v2.0/networks?marker=${randomUUID()}`, token), 404, 'NetworkNotFound')
    t.equal((await call(`GET /v2.0/networks?${own}`, token)).body.networks_links, undefined)
    t.equal((await list('networks', `${own}&limit=0`, token)).length, 5, '0 means no limit')
  })

  await t.test('filter by tags, which are set, added and removed', async t => {
    const path = `/v2.0/networks/${a.id}/tags`
    t.strictSame((await call(`PUT ${path}`, token, { tags: ['x', 'y', 'x'] })).body, { tags: ['x', 'y'] })
    t.equal((await call(`PUT ${path}/z`, token)).status, 201)
    t.equal((await call(`GET ${path}/z`, token)).status, 204)
    t.equal((await call(`DELETE ${path}/y`, token)).status, 204)
    isFault(t, await call(`DELETE ${path}/y`, token), 404, 'TagNotFound')
    t.strictSame((await call(`GET ${path}`, token)).body, { tags: ['x', 'z'] })
    await call(`PUT /v2.0/networks/${b.id}/tags`, token, { tags: ['x'] })
    const cases: [query: string, expected: Item[]][] = [
      ['tags=x', [a, b]],
      ['tags=x,z', [a]],
      ['tags-any=z,q', [a]],
      ['not-tags=x,z', [c, b, e, d]],
      ['not-tags-any=x,z', [c, e, d]],
    ]
    for (const [query, expected] of cases) {
      t.strictSame(ids(await list('networks', `${own}&${query}`, token)), ids(expected), query)
    }
    isFault(t, await call(`PUT ${path}`, token, { tags: ['a,b'] }), 400, 'HTTPBadRequest')
    const tags = Array.from({ length: 50 }, (_, index) => `t${index}`)
    t.equal((await call(`PUT ${path}`, token, { tags })).status, 200)
    isFault(t, await call(`PUT ${path}/more`, token), 400, 'HTTPBadRequest')
    t.equal((await call(`DELETE ${path}`, token)).status, 204)
  })
})

t.test('every collection sorts by every attribute, page by page', async t => {
  const token = 'pages/member,reader'
  const outside = await create('network', { 'router:external': true }, ADMIN)
  await create('subnet', { network_id: outside.id, cidr: '203.0.113.0/24' }, ADMIN)
  const network = await create('network', {}, token)
  for (const cidr of ['10.31.0.0/24', 'fd00:31::/64']) {
    await create('subnet', { network_id: network.id, cidr }, token)
    await create('port', { network_id: network.id }, token)
    await create('router', {}, token)
    await create('floatingip', { floating_network_id: outside.id }, token)
    const { id } = await create('security_group', {}, token)
    for (const port of [80, 443, 8080]) {
      const ports = { protocol: 'tcp', port_range_min: port, port_range_max: port }
      await create('security_group_rule', { security_group_id: id, direction: 'ingress', ...ports }, token)
    }
  }
  for (const { kind, columns } of SOURCES) {
    const plural = PLURALS[kind]
    const all = ids(await list(plural, '', token)).sort()
    t.ok(all.length >= 2, plural)
    for (const key of Object.keys(columns)) {
      for (const direction of ['asc', 'desc']) {
        const seen: string[] = []
        for (let pages = 0; pages <= all.length; pages++) {
          const marker = seen.at(-1)
          const query = `sort_key=${key}&sort_dir=${direction}&limit=3${marker === undefined ? '' : `&marker=${marker}`}`
          const page = ids(await list(plural, query, token))
          if (page.length === 0) break
          seen.push(...page)
        }
        t.strictSame([...seen].sort(), all, `${plural} by ${key} ${direction}`)
      }
    }
  }
  const rules = await list('security-group-rules', 'protocol=tcp&sort_key=port_range_min', token)
  t.strictSame(
    rules.map(rule => rule.port_range_min),
    [80, 80, 443, 443, 8080, 8080],
  )
})
