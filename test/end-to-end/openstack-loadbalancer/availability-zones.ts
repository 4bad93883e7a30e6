import type { Test } from 'tap'
import { namesOf, type Scene, UUID } from './scene.js'

const LOCAL = `'{"compute_zone":"east"}'`

/** loadbalancer availabilityzoneprofile and availabilityzone. */
export async function availabilityZones(t: Test, { member, admin }: Scene): Promise<void> {
  const create = 'loadbalancer create --vip-subnet-id s --provider noop_driver'
  const profile = 'loadbalancer availabilityzoneprofile'
  const zone = 'loadbalancer availabilityzone'

  await t.test('availabilityzoneprofile', async t => {
    const made = await admin.show(
      `${profile} create --name east --provider noop_driver --availability-zone-data ${LOCAL}`,
    )
    t.match(made, { id: UUID, name: 'east', provider_name: 'noop_driver' })
    t.same(JSON.parse(String(made.availability_zone_data)), { compute_zone: 'east' })
    await admin.done(`${profile} create --name empty --provider amphora --availability-zone-data {}`)
    t.same(namesOf(await admin.list(`${profile} list`)), ['east', 'empty'])
    t.match(await admin.list(`${profile} list --name east`), [
      { id: made.id, name: 'east', provider_name: 'noop_driver' },
    ])
    t.same(namesOf(await admin.list(`${profile} list --provider amphora`)), ['empty'])
    await admin.done(`${profile} set --name levant --provider noop_driver east`)
    t.match(await admin.show(`${profile} show ${made.id}`), { name: 'levant' })
    await admin.done(`${profile} set --availabilityzone-data {} levant`)
    t.same(
      JSON.parse(String((await admin.show(`${profile} show levant`)).availability_zone_data)),
      { compute_zone: 'east' },
      'the client accepts new data but does not send it',
    )
    await admin.done(`${profile} set --name east levant`)
  })

  await t.test('availabilityzone', async t => {
    const { id } = await admin.show(`${profile} show east`)
    t.match(
      await admin.show(`${zone} create --name sunrise --availabilityzoneprofile east --description early --enable`),
      { name: 'sunrise', availability_zone_profile_id: id, enabled: true, description: 'early' },
    )
    t.match(await admin.show(`${zone} create --name sunset --availabilityzoneprofile empty --disable`), {
      enabled: false,
      description: '',
    })
    t.same(namesOf(await member.list(`${zone} list`)), ['sunrise', 'sunset'])
    t.match(await member.list(`${zone} list --name sunrise`), [
      { name: 'sunrise', availability_zone_profile_id: id, enabled: true },
    ])
    t.same(namesOf(await admin.list(`${zone} list --availabilityzoneprofile east`)), ['sunrise'])
    t.same(namesOf(await member.list(`${zone} list --enable`)), ['sunrise'])
    t.same(namesOf(await member.list(`${zone} list --disable`)), ['sunset'])
    await admin.done(`${zone} set --description late --enable sunset`)
    t.match(await member.show(`${zone} show sunset`), { description: 'late', enabled: true })
    await admin.done(`${zone} set --disable sunset`)
    t.match(await member.show(`${zone} show sunset`), { enabled: false })
    await admin.done(`${zone} unset --description sunset`)
    t.match(await member.show(`${zone} show sunset`), { description: '' })
  })

  await t.test('a load balancer in a zone', async t => {
    t.match(await member.show(`${create} --name palace --availability-zone sunrise --wait`), {
      availability_zone: 'sunrise',
      provisioning_status: 'ACTIVE',
    })
    t.same(namesOf(await member.list('loadbalancer list --availability-zone sunrise')), ['palace'])
    t.same(await member.list('loadbalancer list --availability-zone sunset'), [])
    t.match(await member.refused(`${create} --availability-zone sunset`), { status: 1, stderr: /HTTP 400/ })
    t.match(await admin.refused(`${zone} delete sunrise`), { status: 1, stderr: /is in use.*HTTP 409/ })
  })

  await t.test('refused requests and their messages', async t => {
    const refusals: [string, number, RegExp][] = [
      [`${profile} create --name x --provider noop_driver --availability-zone-data nonsense`, 1, /HTTP 400/],
      [
        `${profile} create --name x --provider noop_driver --availability-zone-data '{"colour":1}'`,
        1,
        /colour.*HTTP 501/,
      ],
      [`${profile} create --name x --provider nobody --availability-zone-data {}`, 1, /nobody.*HTTP 400/],
      [`${profile} set --provider noop_driver east`, 1, /is in use.*HTTP 409/],
      [`${profile} delete east`, 1, /is in use.*HTTP 409/],
      [`${profile} show nowhere`, 1, /Unable to locate nowhere in availability_zone_profiles/],
      [`${profile} set --name x nowhere`, 1, /Unable to locate nowhere in availability_zone_profiles/],
      [`${profile} delete nowhere`, 1, /Unable to locate nowhere in availability_zone_profiles/],
      [`${zone} create --name sunrise --availabilityzoneprofile east`, 1, /sunrise already exists.*HTTP 409/],
      [`${zone} create --name x --availabilityzoneprofile nowhere`, 1, /Unable to locate nowhere/],
      [`${zone} show nowhere`, 1, /nowhere|HTTP 400/],
      [`${zone} set --enable nowhere`, 1, /nowhere|HTTP 400/],
      [`${zone} unset --description nowhere`, 1, /nowhere|HTTP 400/],
      [`${zone} delete nowhere`, 1, /nowhere|HTTP 400/],
    ]
    for (const [line, status, stderr] of refusals) t.match(await admin.refused(line), { status, stderr }, line)
    for (const line of [`${profile} list`, `${zone} delete sunset`]) {
      t.match(await member.refused(line), { status: 1, stderr: /HTTP 403/ }, `a member: ${line}`)
    }
  })

  await t.test('delete', async t => {
    await member.done('loadbalancer delete --wait palace')
    for (const name of ['sunrise', 'sunset']) await admin.done(`${zone} delete ${name}`)
    for (const name of ['east', 'empty']) await admin.done(`${profile} delete ${name}`)
    t.same(await admin.list(`${zone} list`), [])
    t.same(await admin.list(`${profile} list`), [])
  })
}
