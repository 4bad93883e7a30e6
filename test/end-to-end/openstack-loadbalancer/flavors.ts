import type { Test } from 'tap'
import { namesOf, type Scene, UUID } from './scene.js'

const PAIR = `'{"loadbalancer_topology":"ACTIVE_STANDBY"}'`
const SINGLE = `'{"loadbalancer_topology":"SINGLE"}'`

/** loadbalancer flavorprofile, flavor, provider list and provider capability list. */
export async function flavors(t: Test, { member, admin }: Scene): Promise<void> {
  const create = 'loadbalancer create --vip-subnet-id s'

  await t.test('provider list and capability list', async t => {
    t.same(namesOf(await member.list('loadbalancer provider list')), ['amphora', 'noop_driver', 'octavia'])
    const both = await admin.list('loadbalancer provider capability list amphora')
    t.match(
      both.find(({ name }) => name === 'loadbalancer_topology'),
      { type: 'flavor', description: /\w/ },
    )
    t.match(
      both.find(({ name }) => name === 'compute_zone'),
      { type: 'availability_zone', description: /\w/ },
    )
    const only = async (kind: string) =>
      new Set((await admin.list(`loadbalancer provider capability list --${kind} amphora`)).map(({ type }) => type))
    t.same(await only('flavor'), new Set(['flavor']))
    t.same(await only('availability-zone'), new Set(['availability_zone']))
    t.match(await admin.refused('loadbalancer provider capability list nobody'), {
      status: 1,
      stderr: /Provider 'nobody' is not enabled.*HTTP 400/,
    })
    t.match(await member.refused('loadbalancer provider capability list amphora'), { status: 1, stderr: /HTTP 403/ })
  })

  await t.test('flavorprofile', async t => {
    const profile = 'loadbalancer flavorprofile'
    const made = await admin.show(`${profile} create --name pair --provider amphora --flavor-data ${PAIR}`)
    t.match(made, { id: UUID, name: 'pair', provider_name: 'amphora' })
    t.same(JSON.parse(String(made.flavor_data)), { loadbalancer_topology: 'ACTIVE_STANDBY' })
    await admin.done(`${profile} create --name nothing --provider noop_driver --flavor-data {}`)
    t.same(namesOf(await admin.list(`${profile} list`)), ['nothing', 'pair'])
    t.match(await admin.list(`${profile} list --name pair`), [{ id: made.id, name: 'pair', provider_name: 'amphora' }])
    t.same(namesOf(await admin.list(`${profile} list --provider noop_driver`)), ['nothing'])
    await admin.done(`${profile} set --name single --provider octavia --flavor-data ${SINGLE} pair`)
    t.match(await admin.show(`${profile} show ${made.id}`), { name: 'single', provider_name: 'octavia' })
    t.same(JSON.parse(String((await admin.show(`${profile} show single`)).flavor_data)), {
      loadbalancer_topology: 'SINGLE',
    })
    await admin.done(`${profile} set --name pair --provider amphora --flavor-data ${PAIR} single`)
  })

  await t.test('flavor', async t => {
    const profile = await admin.show('loadbalancer flavorprofile show pair')
    const made = await admin.show(
      `loadbalancer flavor create --name sturdy --flavorprofile pair --description 'two of them' --enable`,
    )
    t.match(made, {
      id: UUID,
      name: 'sturdy',
      flavor_profile_id: profile.id,
      enabled: true,
      description: 'two of them',
    })
    t.match(await admin.show('loadbalancer flavor create --name light --flavorprofile nothing --disable'), {
      enabled: false,
      description: '',
    })
    t.same(namesOf(await member.list('loadbalancer flavor list')), ['light', 'sturdy'])
    t.match(await member.list('loadbalancer flavor list --name sturdy'), [
      { id: made.id, name: 'sturdy', flavor_profile_id: profile.id, enabled: true },
    ])
    t.same(namesOf(await admin.list('loadbalancer flavor list --flavorprofile pair')), ['sturdy'])
    t.same(namesOf(await member.list('loadbalancer flavor list --enable')), ['sturdy'])
    t.same(namesOf(await member.list('loadbalancer flavor list --disable')), ['light'])
    await admin.done('loadbalancer flavor set --name weightless --enable light')
    t.match(await member.show('loadbalancer flavor show weightless'), { enabled: true })
    await admin.done('loadbalancer flavor set --disable weightless')
    t.match(await member.show('loadbalancer flavor show weightless'), { enabled: false })
    await admin.done('loadbalancer flavor unset --description sturdy')
    t.match(await member.show(`loadbalancer flavor show ${made.id}`), { description: '' })
  })

  await t.test('a load balancer with a flavor', async t => {
    const flavor = await member.show('loadbalancer flavor show sturdy')
    t.match(await member.show(`${create} --name castle --flavor sturdy --wait`), {
      flavor_id: flavor.id,
      provider: 'amphora',
      provisioning_status: 'ACTIVE',
    })
    t.same(namesOf(await member.list('loadbalancer list --flavor sturdy')), ['castle'])
    t.same(await member.list('loadbalancer list --flavor weightless'), [])
    const amphorae = await admin.list('loadbalancer amphora list --loadbalancer castle')
    t.same(amphorae.map(({ role }) => role).sort(), ['BACKUP', 'MASTER'], 'it sets the topology')
    t.match(
      await member.refused(`${create} --flavor weightless`),
      { status: 1, stderr: /HTTP 400/ },
      'a disabled flavor is refused',
    )
    t.match(await member.refused(`${create} --flavor sturdy --provider noop_driver`), {
      status: 1,
      stderr: /sturdy|Flavor '.*' is not compatible with provider 'noop_driver'.*HTTP 400/,
    })
    t.match(await admin.refused('loadbalancer flavor delete sturdy'), { status: 1, stderr: /is in use.*HTTP 409/ })
  })

  await t.test('refused requests and their messages', async t => {
    const refusals: [string, number, RegExp][] = [
      ['loadbalancer flavorprofile create --name x --provider amphora --flavor-data nonsense', 1, /HTTP 400/],
      [
        `loadbalancer flavorprofile create --name x --provider amphora --flavor-data '{"colour":1}'`,
        1,
        /colour.*HTTP 501/,
      ],
      ['loadbalancer flavorprofile create --name x --provider nobody --flavor-data {}', 1, /nobody.*HTTP 400/],
      ['loadbalancer flavorprofile create --name x --provider amphora', 2, /required: --flavor-data/],
      [`loadbalancer flavorprofile set --flavor-data ${SINGLE} pair`, 1, /is in use.*HTTP 409/],
      ['loadbalancer flavorprofile delete pair', 1, /is in use.*HTTP 409/],
      ['loadbalancer flavorprofile show nowhere', 1, /Unable to locate nowhere in flavorprofiles/],
      ['loadbalancer flavorprofile set --name x nowhere', 1, /Unable to locate nowhere in flavorprofiles/],
      ['loadbalancer flavorprofile delete nowhere', 1, /Unable to locate nowhere in flavorprofiles/],
      ['loadbalancer flavor create --name sturdy --flavorprofile pair', 1, /sturdy already exists.*HTTP 409/],
      ['loadbalancer flavor create --name x --flavorprofile nowhere', 1, /Unable to locate nowhere in flavorprofiles/],
      ['loadbalancer flavor show nowhere', 1, /Unable to locate nowhere in flavors/],
      ['loadbalancer flavor set --name x nowhere', 1, /Unable to locate nowhere in flavors/],
      ['loadbalancer flavor unset --description nowhere', 1, /Unable to locate nowhere in flavors/],
      ['loadbalancer flavor delete nowhere', 1, /Unable to locate nowhere in flavors/],
    ]
    for (const [line, status, stderr] of refusals) t.match(await admin.refused(line), { status, stderr }, line)
    for (const line of ['flavorprofile list', 'flavor delete sturdy', 'flavor create --name x --flavorprofile pair']) {
      t.match(await member.refused(`loadbalancer ${line}`), { status: 1, stderr: /HTTP 403/ }, `a member: ${line}`)
    }
  })

  await t.test('delete', async t => {
    await member.done('loadbalancer delete --wait castle')
    for (const name of ['sturdy', 'weightless']) await admin.done(`loadbalancer flavor delete ${name}`)
    for (const name of ['pair', 'nothing']) await admin.done(`loadbalancer flavorprofile delete ${name}`)
    t.same(await admin.list('loadbalancer flavor list'), [])
    t.same(await admin.list('loadbalancer flavorprofile list'), [])
  })
}
