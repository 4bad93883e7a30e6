import t from 'tap'
import { computeOffers } from '../../../../controller/compute/offers.js'
import type { PlacementRules } from '../../../../controller/compute/placement.js'
import { tokenOf } from '../../../support/clients/callers.js'
import { idIn } from '../../../support/clients/json-answers.js'
import { SUBNET, startTestApi } from '../../../support/clients/load-balancer-api.js'
import { rulesOf } from '../../../support/inputs/placement.js'

/** Namespaces, machines that boot an image, and hosts with zones of their own. */
function rulesOfThree(): PlacementRules {
  const rules = rulesOf({ zones: { here: { driver: 'namespace' } } })
  const size = { memoryMiB: 256, cores: 1 }
  const machine = { driver: 'machine', ...size, imageTag: null, warm: 0 }
  const zones = ['local']
  return {
    ...rules,
    drivers: new Map([
      ...rules.drivers,
      [
        'machine',
        { offers: { flavors: ['machine'], zones }, images: 'required', ownsManagement: false, startSeconds: 30, size },
      ],
      [
        'host',
        { offers: { flavors: ['host'], zones: null }, images: 'none', ownsManagement: true, startSeconds: 30, size },
      ],
    ]),
    flavors: new Map([
      ...rules.flavors,
      ['machine', machine],
      ['old', { ...machine, imageTag: 'old' }],
      ['host', { driver: 'host', memoryMiB: null, cores: null, imageTag: null, warm: 0 }],
    ]),
    zones: new Map([...rules.zones, ['there', { driver: 'machine' }]]),
  }
}

t.test('a load balancer gets machines that there are, or a reason', async t => {
  let tags: string[] = []
  const api = await startTestApi({ offers: computeOffers(rulesOfThree(), () => tags) })
  t.teardown(api.stop)
  let made = 0
  const post = (path: string, body: object) => api.ask('POST', `/v2/lbaas/${path}`, body, tokenOf('admin'))
  const profileFor = (data: object) =>
    post('flavorprofiles', {
      flavorprofile: { name: 'p', provider_name: 'amphora', flavor_data: JSON.stringify(data) },
    })
  const zoneProfileFor = (data: object) =>
    post('availabilityzoneprofiles', {
      availability_zone_profile: { name: 'p', provider_name: 'amphora', availability_zone_data: JSON.stringify(data) },
    })
  async function flavorFor(data: object): Promise<string> {
    const flavor_profile_id = idIn(await profileFor(data), 'flavorprofile')
    return idIn(await post('flavors', { flavor: { name: `f${++made}`, flavor_profile_id } }), 'flavor')
  }
  async function zoneFor(compute_zone: string): Promise<string> {
    const availability_zone_profile_id = idIn(await zoneProfileFor({ compute_zone }), 'availability_zone_profile')
    const name = `z${++made}`
    await post('availabilityzones', { availability_zone: { name, availability_zone_profile_id } })
    return name
  }
  const create = async (flavor: object | null, zone: string | null = null) => {
    const flavor_id = flavor === null ? null : await flavorFor(flavor)
    const availability_zone = zone === null ? null : await zoneFor(zone)
    return post('loadbalancers', {
      loadbalancer: { vip_subnet_id: SUBNET, project_id: 'p', flavor_id, availability_zone },
    })
  }
  const refused = async (answer: ReturnType<typeof create>, text: string | RegExp) =>
    t.match(await answer, { status: 400, body: { faultstring: text } }, String(text))

  t.equal((await create(null)).status, 201)
  t.equal((await create({ compute_flavor: 'namespace' }, 'here')).status, 201)
  t.equal((await create({ compute_flavor: 'host' }, 'mars')).status, 201, 'hosts have zones of their own')

  await t.test('a flavor and a zone of different drivers do not go together', async t => {
    await refused(
      create({ compute_flavor: 'machine' }, 'here'),
      /compute flavor machine has machines of the driver machine, but the compute zone here those of namespace/,
    )
    await refused(create({ compute_flavor: 'namespace' }, 'there'), /but the compute zone there those of machine/)
    await refused(create(null, 'mars'), /There is no compute zone mars, only local, here, there\./)
    t.pass('refused')
  })

  await t.test('the image must have been built or imported, and is seen once it is', async t => {
    await refused(create(null, 'there'), /flavor machine run the amphora image with the tag amphora, but there is none/)
    tags = ['amphora', 'beta']
    t.equal((await create(null, 'there')).status, 201)
    t.equal((await create({ compute_flavor: 'machine', amp_image_tag: 'beta' })).status, 201)
    await refused(create({ compute_flavor: 'old' }), /the tag old, but there is only amphora, beta\./)
    await refused(create({ compute_flavor: 'host', amp_image_tag: 'beta' }), /flavor host run no image/)
    const tagged = { compute_flavor: 'machine', amp_image_tag: 'beta' }
    const flavor_id = await flavorFor(tagged)
    tags = ['amphora']
    const body = { loadbalancer: { vip_subnet_id: SUBNET, project_id: 'p', flavor_id } }
    t.match(await post('loadbalancers', body), {
      status: 400,
      body: { faultstring: /amp_image_tag: there is no beta, only amphora/ },
    })
  })

  await t.test('a profile names only what there is', async t => {
    const wrong: [Promise<unknown>, RegExp][] = [
      [profileFor({ compute_flavor: 'huge' }), /Flavor data compute_flavor: there is no huge, only namespace,/],
      [profileFor({ amp_image_tag: 'gamma' }), /Flavor data amp_image_tag: there is no gamma, only amphora/],
      [zoneProfileFor({ volume_zone: 'cinder' }), /Zone data volume_zone: there is no cinder, and nothing else/],
    ]
    for (const [answer, faultstring] of wrong) t.match(await answer, { status: 400, body: { faultstring } })
    t.match(await profileFor({ compute_flavor: 5 }), { status: 501, body: { faultstring: /should be a string/ } })
  })
})
