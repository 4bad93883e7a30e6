import type { Test } from 'tap'
import { namesOf, type Scene, TIME, UUID } from './scene.js'

const create = 'loadbalancer member create'

/** loadbalancer member create, show, list, set, unset, delete. */
export async function members(t: Test, { member }: Scene): Promise<void> {
  await member.done('loadbalancer create --name club --provider noop_driver --vip-subnet-id s --wait')
  const pool = await member.show(
    'loadbalancer pool create --name team --protocol HTTP --lb-algorithm ROUND_ROBIN --loadbalancer club --wait',
  )

  await t.test('create', async t => {
    t.match(await member.show(`${create} --name plain --address 192.0.2.1 --protocol-port 80 --wait team`), {
      id: UUID,
      name: 'plain',
      address: '192.0.2.1',
      admin_state_up: true,
      backup: false,
      created_at: TIME,
      monitor_address: null,
      monitor_port: null,
      operating_status: 'NO_MONITOR',
      protocol_port: 80,
      provisioning_status: 'ACTIVE',
      subnet_id: null,
      tags: '',
      updated_at: TIME,
      weight: 1,
    })
    const subnet = await member.show('subnet show bench')
    t.match(
      await member.show(
        `${create} --name full --address 192.0.2.2 --protocol-port 8080 --subnet-id bench --weight 256 --enable-backup --monitor-address 192.0.2.3 --monitor-port 81 --disable --tag blue --tag quiet --wait ${pool.id}`,
      ),
      {
        subnet_id: subnet.id,
        weight: 256,
        backup: true,
        monitor_address: '192.0.2.3',
        monitor_port: 81,
        admin_state_up: false,
        tags: /^(blue\nquiet|quiet\nblue)$/,
      },
    )
    t.match(
      await member.show(
        `${create} --name other --address 2001:db8::1 --protocol-port 80 --weight 0 --disable-backup --enable --no-tag team`,
      ),
      { address: '2001:db8::1', weight: 0, backup: false, provisioning_status: 'PENDING_CREATE', tags: '' },
    )
    t.equal((await member.show('loadbalancer pool show team')).members?.toString().split('\n').length, 3)
  })

  await t.test('list with each filter', async t => {
    const listed = async (options: string) => namesOf(await member.list(`loadbalancer member list ${options} team`))
    t.match(await member.list('loadbalancer member list --tags blue,quiet team'), [
      {
        id: UUID,
        name: 'full',
        project_id: /./,
        provisioning_status: 'ACTIVE',
        address: '192.0.2.2',
        protocol_port: 8080,
        operating_status: /^(NO_MONITOR|OFFLINE)$/,
        weight: 256,
      },
    ])
    t.same(await listed(''), ['full', 'other', 'plain'])
    t.same(await listed('--tags loud'), [])
    t.same(await listed('--any-tags loud,blue'), ['full'])
    t.same(await listed('--not-tags blue,quiet'), ['other', 'plain'])
    t.same(await listed('--not-any-tags blue,loud'), ['other', 'plain'])
  })

  await t.test('set, unset and show', async t => {
    await member.done(
      'loadbalancer member set --name whole --disable-backup --weight 7 --monitor-address 192.0.2.9 --monitor-port 9 --enable --tag red --wait team full',
    )
    const { id, ...set } = await member.show('loadbalancer member show team whole')
    t.match(set, {
      name: 'whole',
      backup: false,
      weight: 7,
      monitor_address: '192.0.2.9',
      monitor_port: 9,
      admin_state_up: true,
      tags: /red/,
      updated_at: TIME,
    })
    await member.done('loadbalancer member set --enable-backup --disable --no-tag --tag one --wait team whole')
    t.match(await member.show(`loadbalancer member show team ${id}`), {
      backup: true,
      admin_state_up: false,
      tags: 'one',
    })
    await member.done(
      'loadbalancer member unset --backup --monitor-address --monitor-port --weight --tag one --wait team whole',
    )
    t.match(await member.show(`loadbalancer member show ${pool.id} ${id}`), {
      backup: false,
      monitor_address: null,
      monitor_port: null,
      weight: 1,
      tags: '',
    })
    await member.done('loadbalancer member set --tag two --wait team whole')
    await member.done('loadbalancer member unset --name --all-tag --wait team whole')
    t.match(await member.show(`loadbalancer member show team ${id}`), { name: '', tags: '' })
  })

  await t.test('refused requests and their messages', async t => {
    const refusals: [string, number, RegExp][] = [
      [`${create} --address 192.0.2.1 --protocol-port 80 team`, 1, /192\.0\.2\.1.*80.*HTTP 409/],
      [`${create} --address host --protocol-port 80 team`, 1, /address.*host.*HTTP 400/],
      [`${create} --address 169.254.169.254 --protocol-port 80 team`, 1, /169\.254\.169\.254.*HTTP 400/],
      [`${create} --address 192.0.2.5 --protocol-port 0 team`, 1, /Value must be between 1 and 65535/],
      [`${create} --address 192.0.2.5 --protocol-port 80 --weight 257 team`, 1, /Value must be between 0 and 256/],
      [`${create} --address 192.0.2.5 --protocol-port 80 --monitor-port 70000 team`, 1, /monitor_port.*HTTP 400/],
      [`${create} --address 192.0.2.5 --protocol-port 80 --monitor-address x team`, 1, /monitor_address.*HTTP 400/],
      [`${create} --address 192.0.2.5 team`, 2, /required: --protocol-port/],
      [`${create} --address 192.0.2.5 --protocol-port 80 nowhere`, 1, /Unable to locate nowhere in pools/],
      ['loadbalancer member set --weight 257 team plain', 1, /weight.*HTTP 400|between 0 and 256/],
      ['loadbalancer member set --name x team nobody', 1, /Unable to locate nobody in members/],
      ['loadbalancer member unset --name team nobody', 1, /Unable to locate nobody in members/],
      ['loadbalancer member show team nobody', 1, /Unable to locate nobody in members/],
      ['loadbalancer member show nowhere plain', 1, /Unable to locate nowhere in pools/],
      ['loadbalancer member list nowhere', 1, /Unable to locate nowhere in pools/],
      ['loadbalancer member delete team nobody', 1, /Unable to locate nobody in members/],
    ]
    for (const [line, status, stderr] of refusals) t.match(await member.refused(line), { status, stderr }, line)
  })

  await t.test('delete', async t => {
    await member.done('loadbalancer member delete --wait team plain')
    await member.done('loadbalancer member delete team other')
    t.match(await member.refused('loadbalancer member show team plain'), {
      status: 1,
      stderr: /Unable to locate plain/,
    })
  })
  await member.done('loadbalancer delete --cascade --wait club')
}
