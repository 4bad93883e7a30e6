import t from 'tap'
import { configurationSchema } from '../../../../controller/config/schema.js'
import { startServer } from '../../../../controller/http/server.js'
import { createLoadBalancerApi } from '../../../../controller/load-balancer/api.js'
import { availabilityZone as zones } from '../../../../controller/load-balancer/objects/availability-zones/resource.js'
import { flavor } from '../../../../controller/load-balancer/objects/flavors/resource.js'
import { checkProfileData, refuseUnsupported } from '../../../../controller/load-balancer/schema/capabilities.js'
import { createLog } from '../../../../controller/log/log.js'
import { createNoopNetworkDriver } from '../../../../controller/network/noop/driver.js'
import { noopCapabilities } from '../../../../controller/provider/noop/capabilities.js'
import { providerCapabilities } from '../../../../controller/provider/providers.js'
import { callerOf, tokenOf } from '../../../support/clients/callers.js'
import { idIn } from '../../../support/clients/json-answers.js'
import { ANY_CERTIFICATE, SUBNET, startTestApi } from '../../../support/clients/load-balancer-api.js'
import { offersOf } from '../../../support/inputs/placement.js'

t.test('providers, and the profile keys that each supports', async t => {
  const api = await startTestApi()
  t.teardown(api.stop)
  const bare = {
    ...noopCapabilities,
    name: 'bare',
    description: 'Has no such thing.',
    flavorKeys: null,
    availabilityZoneKeys: null,
  }
  const server = await startServer(
    createLoadBalancerApi({
      database: api.database,
      network: createNoopNetworkDriver(),
      certificates: ANY_CERTIFICATE,
      validate: async token => callerOf(token),
      identityUrl: '',
      providers: [...providerCapabilities({ compute: offersOf({ driver: 'noop' }), ovn: null }), bare],
      config: configurationSchema.parse({}).load_balancer,
      log: createLog('test', 'silent'),
    }),
    { host: '127.0.0.1', port: 0 },
  )
  t.teardown(() => server.stop())
  const ask = async (method: string, path: string, body?: object, token = tokenOf('admin')) => {
    const reply = await fetch(`${server.url}/v2/lbaas/${path}`, {
      method,
      headers: { 'X-Auth-Token': token, 'Content-Type': 'application/json' },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    })
    const text = await reply.text()
    return { status: reply.status, headers: reply.headers, text, body: text === '' ? {} : JSON.parse(text) }
  }
  const providers = await ask('GET', 'providers?anything=goes', undefined, tokenOf('reader'))
  t.strictSame(Object.keys(providers.body), ['providers'], 'the list has no links')
  t.match(providers.body.providers, [
    { name: 'amphora' },
    { name: 'octavia' },
    { name: 'noop_driver' },
    { name: 'bare' },
  ])
  for (const fields of ['fields=name', 'fields=name,none', 'fields=name&fields=none']) {
    const names = await ask('GET', `providers?${fields}`)
    t.strictSame(names.body.providers.at(-1), { name: 'bare' }, fields)
  }

  const flavorKeys = ['loadbalancer_topology', 'compute_flavor', 'amp_image_tag', 'sriov_vip', 'allow_member_sriov']
  const zoneKeys = ['compute_zone', 'volume_zone', 'management_network', 'valid_vip_networks']
  for (const provider of ['amphora', 'octavia', 'noop_driver']) {
    for (const [what, keys] of [
      ['flavor_capabilities', flavorKeys],
      ['availability_zone_capabilities', zoneKeys],
    ] as const) {
      const { status, body } = await ask('GET', `providers/${provider}/${what}`)
      t.equal(status, 200)
      t.strictSame(
        body[what].map(({ name }: { name: string }) => name),
        keys,
      )
      const [first] = body[what]
      t.strictSame((await ask('GET', `providers/${provider}/${what}?name=${first.name}`)).body, { [what]: [first] })
      const query = new URLSearchParams({ description: first.description })
      t.strictSame((await ask('GET', `providers/${provider}/${what}?${query}`)).body, { [what]: [first] })
      t.strictSame((await ask('GET', `providers/${provider}/${what}?name=x`)).body, { [what]: [] })
      const chosen = await ask('GET', `providers/${provider}/${what}?fields=description&name=${first.name}`)
      t.strictSame(chosen.body, { [what]: [{ description: first.description }] })
    }
  }
  for (const what of ['flavor_capabilities', 'availability_zone_capabilities']) {
    t.match(await ask('GET', `providers/nobody/${what}`), {
      status: 400,
      body: { faultstring: "Provider 'nobody' is not enabled." },
    })
    t.match(await ask('GET', `providers/bare/${what}`), {
      status: 501,
      body: { faultstring: `Provider 'bare' does not support a requested action: ${what}` },
    })
    t.equal((await ask('GET', `providers/amphora/${what}?bogus=1`)).status, 400)
    t.equal((await ask('GET', `providers/amphora/${what}`, undefined, tokenOf('member'))).status, 403)
  }
  const profile = (provider_name: string) =>
    ask('POST', 'flavorprofiles', { flavorprofile: { name: 'p', provider_name, flavor_data: '{}' } })
  t.equal((await profile('bare')).status, 501)
  const made = await profile('octavia')
  const flavor = await ask('POST', 'flavors', {
    flavor: { name: 'f', flavor_profile_id: idIn(made, 'flavorprofile') },
  })
  const create = (provider: string | null) =>
    ask('POST', 'loadbalancers', {
      loadbalancer: { vip_subnet_id: SUBNET, provider, flavor_id: idIn(flavor, 'flavor') },
    })
  t.match(await create(null), { status: 201, body: { loadbalancer: { provider: 'octavia' } } })
  t.match(
    await create('amphora'),
    { status: 201, body: { loadbalancer: { provider: 'amphora' } } },
    '"amphora" and "octavia" name one provider',
  )
  t.equal((await create('noop_driver')).status, 400)
})

t.test('amphorae of the noop compute driver may have any flavor and zone, those of another what it offers', async t => {
  const data = { compute_flavor: 'large', amp_image_tag: 'beta', sriov_vip: true }
  const zone = { compute_zone: 'nova', volume_zone: 'cinder', management_network: SUBNET }
  const [anything, some] = [{ driver: 'noop' }, {}].map(
    compute => providerCapabilities({ compute: offersOf(compute), ovn: null })[0],
  )
  const refusal = (check: () => void) => {
    try {
      check()
    } catch (error) {
      return (error as Error).message
    }
    return null
  }
  for (const [key, value] of Object.entries({ ...data, ...zone })) {
    const [keys, resource] =
      key in data ? (['flavorKeys', flavor] as const) : (['availabilityZoneKeys', zones] as const)
    const check = (provider = anything) =>
      refusal(() => {
        if (provider === undefined) throw new Error('no provider')
        checkProfileData(provider, provider[keys], resource, { [key]: value })
        refuseUnsupported(provider, resource, { [key]: value })
      })
    t.equal(check(), null, key)
    t.match(check(some), /Provider 'amphora' does not support a requested option|data \w+: there is no/, key)
  }
})
