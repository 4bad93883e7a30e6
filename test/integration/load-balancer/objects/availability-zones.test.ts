import t from 'tap'
import { createNoopNetworkDriver } from '../../../../controller/network/noop/driver.js'
import { tokenOf } from '../../../support/clients/callers.js'
import { at, idIn, type Json } from '../../../support/clients/json-answers.js'
import { SUBNET, startTestApi, type TestApi } from '../../../support/clients/load-balancer-api.js'

const admin = tokenOf('admin')
const NIL = '00000000-0000-0000-0000-000000000000'

const administer = (api: TestApi) => (method: string, path: string, body?: object) =>
  api.ask(method, `/v2/lbaas/${path}`, body, admin)

async function makeZone(api: TestApi, name: string, data: object, provider = 'amphora'): Promise<string> {
  const ask = administer(api)
  const profile = await ask('POST', 'availabilityzoneprofiles', {
    availability_zone_profile: { name: 'p', provider_name: provider, availability_zone_data: JSON.stringify(data) },
  })
  const id = idIn(profile, 'availability_zone_profile')
  await ask('POST', 'availabilityzones', { availability_zone: { name, availability_zone_profile_id: id } })
  return id
}

t.test('availability zone profiles', async t => {
  const api = await startTestApi({ providers: ['amphora', 'noop_driver'] })
  t.teardown(api.stop)
  const ask = administer(api)
  const create = (availability_zone_profile: object) =>
    ask('POST', 'availabilityzoneprofiles', { availability_zone_profile })
  const availability_zone_data = '{"compute_zone": "local"}'
  const made = await create({ name: 'one', provider_name: 'amphora', availability_zone_data })
  const id = idIn(made, 'availability_zone_profile')
  t.equal(made.status, 201)
  t.strictSame(made.body, {
    availability_zone_profile: { id, name: 'one', provider_name: 'amphora', availability_zone_data },
  })
  for (const [data, status] of [
    ['{', 400],
    ['7', 400],
    ['{"compute_zone":"nova"}', 400],
    ['{"compute_zone":7}', 501],
    ['{"volume_zone":"nova"}', 400],
    ['{"valid_vip_networks":"x"}', 501],
    ['{"valid_vip_networks":[7]}', 501],
    ['{"loadbalancer_topology":"SINGLE"}', 501],
    ['{"valid_vip_networks":[]}', 201],
    [`{"management_network":"${NIL}"}`, 201],
  ] as const) {
    t.equal((await create({ name: 'x', provider_name: 'amphora', availability_zone_data: data })).status, status, data)
  }
  t.equal(
    (await create({ name: 'x', provider_name: 'noop_driver', availability_zone_data: '{"volume_zone":"v"}' })).status,
    201,
  )
  const list = await ask('GET', 'availabilityzoneprofiles?name=one')
  t.strictSame(list.body, {
    availability_zone_profiles: [made.body.availability_zone_profile],
    availability_zone_profile_links: [],
  } as Json)
  const used = await makeZone(api, 'z', {})
  const path = `availabilityzoneprofiles/${used}`
  t.match(await ask('PUT', path, { availability_zone_profile: { availability_zone_data: '{}' } }), {
    status: 409,
    body: { faultstring: `Availability Zone Profile ${used} is in use and cannot be modified.` },
  })
  t.equal((await ask('PUT', path, { availability_zone_profile: { name: 'n' } })).status, 200)
  t.equal((await ask('DELETE', path)).status, 409)
  t.equal((await ask('DELETE', 'availabilityzones/z')).status, 204)
  t.equal((await ask('PUT', path, { availability_zone_profile: { availability_zone_data } })).status, 200)
  t.equal((await ask('DELETE', path)).status, 204)
  t.match(await ask('GET', path), {
    status: 404,
    body: { faultstring: `Availability Zone Profile ${used} not found.` },
  })
})

t.test('availability zones are addressed by name', async t => {
  const api = await startTestApi()
  t.teardown(api.stop)
  const ask = administer(api)
  const profile = await makeZone(api, 'b', {})
  const whole = { name: 'b', description: '', enabled: true, availability_zone_profile_id: profile }
  t.strictSame((await api.ask('GET', '/v2/lbaas/availabilityzones/b')).body, { availability_zone: whole })
  const create = (availability_zone: object) => ask('POST', 'availabilityzones', { availability_zone })
  t.match(await create({ name: 'b', availability_zone_profile_id: profile }), {
    status: 409,
    body: { faultstring: 'A availability zone of b already exists.' },
  })
  t.equal((await create({ name: 'x', availability_zone_profile_id: NIL })).status, 400)
  t.equal((await create({ name: '', availability_zone_profile_id: profile })).status, 400)
  t.equal((await create({ name: NIL, availability_zone_profile_id: profile })).status, 400)
  t.equal((await create({ name: 'rack 1/é', availability_zone_profile_id: profile, enabled: false })).status, 201)
  t.equal((await create({ name: 'a', availability_zone_profile_id: profile })).status, 201)
  t.match(await ask('GET', `availabilityzones/${encodeURIComponent('rack 1/é')}`), {
    status: 200,
    body: { availability_zone: { name: 'rack 1/é', enabled: false } },
  })
  const change = (availability_zone: object) => ask('PUT', 'availabilityzones/b', { availability_zone })
  t.match((await change({ description: 'd', enabled: false })).body.availability_zone, {
    description: 'd',
    enabled: false,
  })
  t.equal((await change({ name: 'c' })).status, 400, 'the name is immutable')
  const list = async (query: string) =>
    ((await api.ask('GET', `/v2/lbaas/availabilityzones?${query}`)).body.availability_zones as Json[]).map(
      ({ name }) => name,
    )
  t.strictSame(await list(''), ['a', 'b', 'rack 1/é'], 'by name, because zones have no id and no creation time')
  t.strictSame(await list('enabled=true'), ['a'])
  t.strictSame(await list('name=a'), ['a'])
  t.strictSame(await list('limit=1&marker=b'), ['rack 1/é'])
  t.strictSame(await list('sort=name&limit=1&marker=a'), ['b'])
  t.strictSame(await list('limit=2&marker=rack 1/é&page_reverse=true'), ['a', 'b'])
  t.equal((await api.ask('GET', '/v2/lbaas/availabilityzones?id=x')).status, 400)
  t.equal((await api.ask('GET', '/v2/lbaas/availabilityzones?marker=nowhere')).status, 400)
  t.match((await api.ask('GET', '/v2/lbaas/availabilityzones?limit=1')).body.availability_zones_links, [
    { rel: 'next', href: `${api.url}/v2/lbaas/availabilityzones?limit=1&marker=a` },
  ])
  for (const gone of ['nowhere', NIL]) {
    t.match(await ask('GET', `availabilityzones/${gone}`), {
      status: 404,
      body: { faultstring: `Availability Zone ${gone} not found.` },
    })
    t.equal((await ask('DELETE', `availabilityzones/${gone}`)).status, 404)
    t.equal((await ask('PUT', `availabilityzones/${gone}`, { availability_zone: {} })).status, 404)
  }
})

t.test('a load balancer in an availability zone', async t => {
  const noop = createNoopNetworkDriver()
  const NETWORK = '33333333-3333-4333-8333-333333333333'
  const api = await startTestApi({
    providers: ['amphora', 'noop_driver'],
    network: {
      ...noop,
      findSubnet: async (caller, id) => {
        const subnet = await noop.findSubnet(caller, id)
        return subnet === null ? null : { ...subnet, networkId: NETWORK }
      },
    },
  })
  t.teardown(api.stop)
  const ask = administer(api)
  const create = (body: object) =>
    api.ask('POST', '/v2/lbaas/loadbalancers', { loadbalancer: { vip_subnet_id: SUBNET, ...body } })
  await makeZone(api, 'here', { compute_zone: 'local', valid_vip_networks: [NETWORK] })
  const made = await create({ availability_zone: 'here' })
  t.match(made, { status: 201, body: { loadbalancer: { availability_zone: 'here', provider: 'amphora' } } })
  t.match(at((await api.ask('GET', '/v2/lbaas/loadbalancers?availability_zone=here')).body, 'loadbalancers'), [
    { id: idIn(made, 'loadbalancer') },
  ])
  t.match(await ask('DELETE', 'availabilityzones/here'), {
    status: 409,
    body: { faultstring: 'Availability Zone here is in use and cannot be modified.' },
  })
  await makeZone(api, 'elsewhere', { valid_vip_networks: [NIL] })
  t.match(await create({ availability_zone: 'elsewhere' }), {
    status: 400,
    body: { faultstring: `Validation failure: Availability zone elsewhere does not allow VIPs on network ${NETWORK}.` },
  })
  t.match(await create({ availability_zone: 'nowhere' }), {
    status: 400,
    body: { faultstring: 'Availability Zone nowhere not found.' },
  })
  await makeZone(api, 'managed', { management_network: NETWORK })
  t.match(await create({ availability_zone: 'managed' }), { status: 501, body: { faultstring: /management_network/ } })
  await makeZone(api, 'imaginary', { compute_zone: 'moon' }, 'noop_driver')
  t.equal((await create({ availability_zone: 'imaginary' })).status, 400, 'the provider does not know this zone')
  t.equal((await create({ availability_zone: 'imaginary', provider: 'noop_driver' })).status, 201)
  await ask('PUT', 'availabilityzones/here', { availability_zone: { enabled: false } })
  t.match(await create({ availability_zone: 'here' }), {
    status: 400,
    body: { faultstring: 'The selected availability_zone is not allowed in this deployment: here' },
  })
})
