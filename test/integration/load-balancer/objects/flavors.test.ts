import { randomUUID } from 'node:crypto'
import t from 'tap'
import { type NetworkDriver, PORT_OWNER } from '../../../../controller/network/driver.js'
import { createNoopNetworkDriver } from '../../../../controller/network/noop/driver.js'
import { tokenOf } from '../../../support/clients/callers.js'
import { at, idIn, type Json } from '../../../support/clients/json-answers.js'
import { SUBNET, startTestApi, type TestApi } from '../../../support/clients/load-balancer-api.js'

const admin = tokenOf('load-balancer_admin')
const NIL = '00000000-0000-0000-0000-000000000000'

const administer = (api: TestApi) => (method: string, path: string, body?: object) =>
  api.ask(method, `/v2/lbaas/${path}`, body, admin)

/** @returns the ids of a new profile and of a flavor made from it */
async function makeFlavor(api: TestApi, data: object, provider = 'amphora', name: string = randomUUID()) {
  const ask = administer(api)
  const profile = await ask('POST', 'flavorprofiles', {
    flavorprofile: { name: 'p', provider_name: provider, flavor_data: JSON.stringify(data) },
  })
  const profileId = idIn(profile, 'flavorprofile')
  const flavor = await ask('POST', 'flavors', { flavor: { name, flavor_profile_id: profileId } })
  return { profile: profileId, flavor: idIn(flavor, 'flavor'), name }
}

t.test('flavor profiles', async t => {
  const api = await startTestApi({ providers: ['amphora', 'noop_driver'] })
  t.teardown(api.stop)
  const ask = administer(api)
  const create = (flavorprofile: object) => ask('POST', 'flavorprofiles', { flavorprofile })
  const flavor_data = '{"loadbalancer_topology":  "SINGLE"}'
  const made = await create({ name: 'one', provider_name: 'amphora', flavor_data })
  const id = idIn(made, 'flavorprofile')
  t.equal(made.status, 201)
  t.strictSame(
    made.body,
    { flavorprofile: { id, name: 'one', provider_name: 'amphora', flavor_data } },
    'flavor_data is returned as given',
  )
  t.strictSame((await ask('GET', `flavorprofiles/${id}`)).body, made.body)
  t.strictSame((await ask('GET', `flavorprofiles/${id}?fields=name`)).body, { flavorprofile: { name: 'one' } })
  t.equal(
    (await create({ name: 'one', provider_name: 'noop_driver', flavor_data: '{}' })).status,
    201,
    'names need not be unique',
  )

  for (const [body, status, text] of [
    [{ provider_name: 'amphora', flavor_data }, 400, /Mandatory field missing/],
    [{ name: 'x', flavor_data }, 400, /Mandatory field missing/],
    [{ name: 'x', provider_name: 'amphora' }, 400, /Mandatory field missing/],
    [{ name: 'x', provider_name: 'amphora', flavor_data: { a: 1 } }, 400, /string/],
    [{ name: 'x', provider_name: 'nobody', flavor_data }, 400, "Provider 'nobody' is not enabled."],
    [{ name: 'x', provider_name: 'amphora', flavor_data: '{' }, 400, /JSON object/],
    [{ name: 'x', provider_name: 'amphora', flavor_data: '[]' }, 400, /JSON object/],
    [{ name: 'x', provider_name: 'amphora', flavor_data: 'null' }, 400, /JSON object/],
    [{ name: 'x', provider_name: 'amphora', flavor_data: '{"amp_image_tag":"\\u0000"}' }, 400, /JSON object/],
    [{ name: 'x', provider_name: 'amphora', flavor_data: `"${'x'.repeat(4096)}"` }, 400, /4096/],
    [{ name: 'x', provider_name: 'amphora', flavor_data: '{"colour":"red"}' }, 501, /Flavor data colour/],
    [{ name: 'x', provider_name: 'amphora', flavor_data: '{"constructor":1}' }, 501, /Flavor data constructor/],
    [{ name: 'x', provider_name: 'amphora', flavor_data: '{"loadbalancer_topology":"MANY"}' }, 501, /one of: SINGLE/],
    [{ name: 'x', provider_name: 'amphora', flavor_data: '{"sriov_vip":"true"}' }, 501, /boolean/],
    [
      { name: 'x', provider_name: 'amphora', flavor_data: '{"compute_flavor":"m1.large"}' },
      400,
      /no m1\.large, only namespace/,
    ],
    [{ name: 'x', provider_name: 'amphora', flavor_data: '{"amp_image_tag":"amphora"}' }, 400, /there is no amphora/],
    [{ name: 'x', provider_name: 'amphora', flavor_data, id }, 400, /Unknown attribute/],
  ] as const) {
    t.match(await create(body), { status, body: { faultstring: text } }, JSON.stringify(body))
  }
  const change = (flavorprofile: object, of = id) => ask('PUT', `flavorprofiles/${of}`, { flavorprofile })
  t.match((await change({ name: 'two', provider_name: 'noop_driver', flavor_data: '{"compute_flavor":"any"}' })).body, {
    flavorprofile: { name: 'two', provider_name: 'noop_driver', flavor_data: '{"compute_flavor":"any"}' },
  })
  t.equal((await change({ provider_name: 'amphora' })).status, 400, 'the data must be valid for the new provider')
  for (const name of ['name', 'provider_name', 'flavor_data'])
    t.equal((await change({ [name]: null })).status, 400, name)
  t.equal((await change({})).status, 200)

  const used = await makeFlavor(api, {})
  for (const body of [{ provider_name: 'noop_driver' }, { flavor_data: '{}' }]) {
    t.match(await change(body, used.profile), {
      status: 409,
      body: { faultstring: `Flavor Profile ${used.profile} is in use and cannot be modified.` },
    })
  }
  t.equal((await change({ name: 'free' }, used.profile)).status, 200)
  t.equal((await ask('DELETE', `flavorprofiles/${used.profile}`)).status, 409)
  t.match(await ask('DELETE', `flavorprofiles/${id}`), { status: 204, text: '' })
  for (const [method, body] of [
    ['GET', undefined],
    ['PUT', { flavorprofile: { name: 'x' } }],
    ['PUT', { flavorprofile: { flavor_data: '{}' } }],
    ['DELETE', undefined],
  ] as const) {
    for (const gone of [id, NIL, 'x']) {
      t.match(await ask(method, `flavorprofiles/${gone}`, body), {
        status: 404,
        body: { faultstring: `Flavor Profile ${gone} not found.` },
      })
    }
  }
})

t.test('flavors', async t => {
  const api = await startTestApi()
  t.teardown(api.stop)
  const ask = administer(api)
  const { profile } = await makeFlavor(api, {})
  const create = (flavor: object) => ask('POST', 'flavors', { flavor })
  const made = await create({ name: 'small', flavor_profile_id: profile })
  const id = idIn(made, 'flavor')
  const whole = { id, name: 'small', description: '', enabled: true, flavor_profile_id: profile }
  t.equal(made.status, 201)
  t.strictSame(made.body, { flavor: whole })
  t.match(await create({ name: 'small', flavor_profile_id: profile }), {
    status: 409,
    body: { faultstring: 'A flavor of small already exists.' },
  })
  t.match(await create({ name: 'x', flavor_profile_id: NIL }), {
    status: 400,
    body: { faultstring: `Flavor Profile ${NIL} not found.` },
  })
  t.equal((await create({ name: 'x' })).status, 400)
  t.equal((await create({ flavor_profile_id: profile })).status, 400)
  const change = (flavor: object, of = id) => ask('PUT', `flavors/${of}`, { flavor })
  t.match((await change({ name: 'big', description: 'd', enabled: 'no' })).body, {
    flavor: { ...whole, name: 'big', description: 'd', enabled: false },
  })
  t.match((await change({ description: null, enabled: null })).body, { flavor: { ...whole, name: 'big' } })
  t.equal((await change({ name: null })).status, 400)
  t.equal((await change({ flavor_profile_id: profile })).status, 400, 'the flavor profile is immutable')
  await create({ name: 'other', flavor_profile_id: profile })
  t.equal((await change({ name: 'other' })).status, 409)
  t.strictSame(
    (await api.ask('GET', `/v2/lbaas/flavors/${id}`)).body,
    { flavor: { ...whole, name: 'big' } },
    'every user sees the flavor',
  )

  const balancer = await api.ask('POST', '/v2/lbaas/loadbalancers', {
    loadbalancer: { vip_subnet_id: SUBNET, flavor_id: id },
  })
  t.match(await ask('DELETE', `flavors/${id}`), {
    status: 409,
    body: { faultstring: `Flavor ${id} is in use and cannot be modified.` },
  })
  const balancerId = idIn(balancer, 'loadbalancer')
  await api.ask('DELETE', `/v2/lbaas/loadbalancers/${balancerId}`)
  await api.apply(balancerId)
  t.equal((await ask('DELETE', `flavors/${id}`)).status, 204)
  for (const gone of [id, NIL, 'x']) {
    t.match(await ask('GET', `flavors/${gone}`), { status: 404, body: { faultstring: `Flavor ${gone} not found.` } })
    t.equal((await change({}, gone)).status, 404)
    t.equal((await ask('DELETE', `flavors/${gone}`)).status, 404)
  }
})

t.test('lists of flavors and flavor profiles', async t => {
  const api = await startTestApi()
  t.teardown(api.stop)
  const ask = administer(api)
  const made = [await makeFlavor(api, {}, 'amphora', 'b'), await makeFlavor(api, {}, 'other', 'a')]
  const third = await makeFlavor(api, {}, 'amphora', 'c')
  const [x, y, z] = [
    { name: 'b', id: made[0]?.flavor ?? '' },
    { name: 'a', id: made[1]?.flavor ?? '' },
    { name: 'c', id: third.flavor },
  ].toSorted((one, other) => (one.id < other.id ? -1 : 1))
  await ask('PUT', `flavors/${made[1]?.flavor}`, { flavor: { enabled: false, description: 'off' } })
  const list = async (query: string) =>
    ((await api.ask('GET', `/v2/lbaas/flavors?${query}`)).body.flavors as Json[]).map(({ name }) => name)
  t.strictSame(await list(''), [x?.name, y?.name, z?.name], 'by id, because they have no creation time')
  t.strictSame(await list('sort=name:desc'), ['c', 'b', 'a'])
  t.strictSame(await list('enabled=False'), ['a'])
  t.strictSame(await list('description=off'), ['a'])
  t.strictSame(await list(`flavor_profile_id=${made[0]?.profile}`), ['b'])
  t.strictSame(await list(`name=c`), ['c'])
  t.strictSame(await list(`limit=1&marker=${x?.id}`), [y?.name])
  t.strictSame(await list(`limit=1&marker=${z?.id}&page_reverse=true`), [y?.name])
  t.equal((await api.ask('GET', '/v2/lbaas/flavors?tags=x')).status, 400)
  t.equal((await api.ask('GET', '/v2/lbaas/flavors?project_id=x')).status, 400)
  t.match((await api.ask('GET', '/v2/lbaas/flavors?limit=2&fields=name')).body, {
    flavors: [{ name: x?.name }, { name: y?.name }],
    flavors_links: [{ rel: 'next', href: `${api.url}/v2/lbaas/flavors?limit=2&fields=name&marker=${y?.id}` }],
  })
  const profiles = await ask('GET', 'flavorprofiles?provider_name=amphora&limit=1')
  t.strictSame(Object.keys(profiles.body), ['flavorprofiles', 'flavorprofile_links'])
  t.equal(at(profiles.body, 'flavorprofiles', 0, 'id'), [made[0]?.profile, third.profile].toSorted()[0])
})

t.test('a load balancer with a flavor', async t => {
  const api = await startTestApi({ providers: ['amphora', 'noop_driver'] })
  t.teardown(api.stop)
  const create = (body: object) =>
    api.ask('POST', '/v2/lbaas/loadbalancers', { loadbalancer: { vip_subnet_id: SUBNET, ...body } })
  const topologyOf = async (id: string) =>
    (await api.database('load_balancer').where({ id }).first('topology')).topology

  const pair = await makeFlavor(api, { loadbalancer_topology: 'ACTIVE_STANDBY', compute_flavor: 'namespace' })
  const made = await create({ flavor_id: pair.flavor })
  t.match(made, { status: 201, body: { loadbalancer: { flavor_id: pair.flavor, provider: 'amphora' } } })
  t.equal(await topologyOf(idIn(made, 'loadbalancer')), 'ACTIVE_STANDBY')
  t.strictSame(
    at((await api.ask('GET', `/v2/lbaas/loadbalancers?flavor_id=${pair.flavor}`)).body, 'loadbalancers', 0, 'id'),
    idIn(made, 'loadbalancer'),
  )
  t.match(await create({ flavor: pair.name }), { status: 201, body: { loadbalancer: { flavor_id: pair.flavor } } })
  const plain = await create({ flavor_id: null, flavor: null, availability_zone: null })
  t.match(plain, { status: 201, body: { loadbalancer: { flavor_id: null, availability_zone: null } } })
  t.notOk(Object.hasOwn(plain.body.loadbalancer as Json, 'flavor'))
  t.equal(await topologyOf(idIn(plain, 'loadbalancer')), 'SINGLE')

  t.match(await create({ flavor_id: NIL }), { status: 400, body: { faultstring: `Flavor ${NIL} not found.` } })
  t.match(await create({ flavor: 'nobody' }), { status: 400, body: { faultstring: 'Flavor nobody not found.' } })
  t.equal((await create({ flavor_id: '' })).status, 400)
  t.equal(
    (await create({ flavor: pair.name, flavor_id: pair.flavor })).status,
    400,
    'flavor and flavor_id exclude each other',
  )
  t.match(await create({ flavor_id: pair.flavor, provider: 'noop_driver' }), {
    status: 400,
    body: { faultstring: `Flavor '${pair.name}' is not compatible with provider 'noop_driver'` },
  })
  t.equal((await create({ flavor_id: pair.flavor, provider: 'amphora' })).status, 201)
  t.equal(
    (
      await api.ask('PUT', `/v2/lbaas/loadbalancers/${idIn(plain, 'loadbalancer')}`, {
        loadbalancer: { flavor_id: pair.flavor },
      })
    ).status,
    400,
    'the flavor of a load balancer is immutable',
  )

  const other = await makeFlavor(api, { sriov_vip: true }, 'noop_driver')
  t.match(
    await create({ flavor_id: other.flavor }),
    {
      status: 201,
      body: { loadbalancer: { provider: 'noop_driver', vip_vnic_type: 'direct' } },
    },
    'the flavor picks the provider',
  )
  for (const key of ['sriov_vip', 'allow_member_sriov']) {
    const impossible = await makeFlavor(api, { [key]: true })
    t.match(await create({ flavor_id: impossible.flavor }), {
      status: 501,
      body: { faultstring: `Provider 'amphora' does not support a requested option: Flavor ${key} is not supported` },
    })
    const harmless = await makeFlavor(api, { [key]: false })
    t.match(await create({ flavor_id: harmless.flavor }), {
      status: 201,
      body: { loadbalancer: { vip_vnic_type: 'normal' } },
    })
  }
  await administer(api)('PUT', `flavors/${pair.flavor}`, { flavor: { enabled: false } })
  t.match(await create({ flavor_id: pair.flavor }), {
    status: 400,
    body: { faultstring: `The selected flavor is not allowed in this deployment: ${pair.flavor}` },
  })
  t.equal(
    (await api.ask('GET', `/v2/lbaas/loadbalancers/${idIn(made, 'loadbalancer')}`)).status,
    200,
    'existing load balancers remain',
  )
})

t.test('a create whose flavor is deleted concurrently fails with "not found"', async t => {
  const noop = createNoopNetworkDriver()
  let vanishing = NIL
  const network: NetworkDriver = {
    ...noop,
    ensurePort: async request => {
      await api.database('flavor').where({ id: vanishing }).delete()
      return noop.ensurePort(request)
    },
  }
  const api = await startTestApi({ network })
  t.teardown(api.stop)
  for (const headers of [undefined, { 'Idempotency-Key': 'one' }]) {
    vanishing = (await makeFlavor(api, {})).flavor
    const body = { loadbalancer: { vip_subnet_id: SUBNET, flavor_id: vanishing } }
    t.match(await api.ask('POST', '/v2/lbaas/loadbalancers', body, tokenOf('member'), headers), {
      status: 400,
      body: { faultstring: `Flavor ${vanishing} not found.` },
    })
  }
  t.same(await noop.portsOwnedBy(PORT_OWNER.vip, 0), [], 'the VIP is released')
})
