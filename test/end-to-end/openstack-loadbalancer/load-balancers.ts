import type { Test } from 'tap'
import { namesOf, type Scene, TIME, UUID } from './scene.js'

const PROVISIONING_STATUSES = ['ACTIVE', 'DELETED', 'ERROR', 'PENDING_CREATE', 'PENDING_UPDATE', 'PENDING_DELETE']
const OPERATING_STATUSES = ['ONLINE', 'DRAINING', 'OFFLINE', 'DEGRADED', 'ERROR', 'NO_MONITOR']

/** loadbalancer create, show, list, set, unset, status show, stats show, delete. */
export async function loadBalancers(t: Test, { member, admin }: Scene): Promise<void> {
  const projects = await admin.list('project list')
  const demo = projects.find(({ Name }) => Name === 'demo')?.ID
  const noop = 'loadbalancer create --provider noop_driver'

  await t.test('create, by subnet, network and port', async t => {
    const plain = await member.show(`${noop} --name edge --vip-subnet-id front --wait`)
    t.match(plain, {
      id: UUID,
      name: 'edge',
      description: '',
      admin_state_up: true,
      availability_zone: null,
      additional_vips: [],
      created_at: TIME,
      flavor_id: null,
      listeners: '',
      pools: '',
      tags: '',
      operating_status: 'OFFLINE',
      project_id: demo,
      provider: 'noop_driver',
      provisioning_status: 'ACTIVE',
      vip_address: /^203\.0\.113\./,
      vip_network_id: UUID,
      vip_port_id: UUID,
      vip_qos_policy_id: null,
      vip_subnet_id: UUID,
    })
    t.match(
      await member.show(
        `${noop} --name lobby --description 'a quiet place' --vip-network-id hall --vip-address 203.0.113.77 --vip-qos-policy-id None --disable --tag blue --tag quiet --wait`,
      ),
      {
        description: 'a quiet place',
        vip_address: '203.0.113.77',
        admin_state_up: false,
        provisioning_status: 'ACTIVE',
        tags: /^(blue\nquiet|quiet\nblue)$/,
      },
    )
    const port = await member.show('port show door')
    t.match(await member.show(`${noop} --name gate --vip-port-id door --enable --no-tag`), {
      vip_port_id: port.id,
      admin_state_up: true,
      provisioning_status: 'PENDING_CREATE',
      tags: '',
    })
    t.match(
      await admin.show(`${noop} --name given --project demo --vip-subnet-id front --wait`),
      { project_id: demo },
      'an administrator creates one for another project',
    )
  })

  await t.test('additional VIPs', async t => {
    const front = (await member.show('subnet show front')).id
    const second = (await member.show('subnet show second')).id
    const { additional_vips: vips } = await member.show(
      `${noop} --name wide --vip-subnet-id front --additional-vip subnet-id=second,ip-address=203.0.113.9 --additional-vip subnet-id=third --wait`,
    )
    t.match(vips, [{ subnet_id: second, ip_address: '203.0.113.9' }, { ip_address: /^203\.0\.113\./ }])
    t.match(await member.refused(`${noop} --vip-subnet-id front --additional-vip subnet-id=front`), {
      status: 1,
      stderr: /HTTP 400/,
    })
    t.match(await member.refused(`${noop} --vip-subnet-id ${front} --additional-vip subnet-id=second,ip-address=no`), {
      status: 1,
      stderr: /does not appear to be an IPv4 or IPv6 address/,
    })
    await member.done('loadbalancer delete --wait wide')
  })

  await t.test('list with each filter', async t => {
    const all = ['edge', 'gate', 'given', 'lobby']
    const listed = async (options: string) => namesOf(await member.list(`loadbalancer list ${options}`))
    t.match(
      (await member.list('loadbalancer list')).find(({ name }) => name === 'edge'),
      { id: UUID, project_id: demo, vip_address: /^203/, provisioning_status: 'ACTIVE', provider: 'noop_driver' },
    )
    const gate = await member.show('loadbalancer show gate')
    t.same(await listed('--name edge'), ['edge'])
    t.same(await listed('--enable'), ['edge', 'gate', 'given'])
    t.same(await listed('--disable'), ['lobby'])
    t.same(await listed(`--project ${demo}`), all)
    t.same(namesOf(await admin.list('loadbalancer list --project demo')), all)
    t.same(namesOf(await admin.list('loadbalancer list --project admin')), [])
    t.match(await member.refused('loadbalancer list --project admin'), { status: 1, stderr: /HTTP 403/ })
    t.same(await listed('--vip-network-id hall'), ['lobby'])
    t.same(await listed('--vip-subnet-id front'), ['edge', 'given'])
    t.same(await listed(`--vip-port-id ${gate.vip_port_id}`), ['gate'])
    t.same(await listed('--vip-qos-policy-id None'), all, '"None" is no filter')
    t.same(await listed('--provider noop_driver'), all)
    t.same(await listed('--provider amphora'), [])
    for (const status of PROVISIONING_STATUSES) {
      t.same(await listed(`--provisioning-status ${status}`), status === 'ACTIVE' ? all : [], status)
    }
    for (const status of OPERATING_STATUSES) {
      t.same(await listed(`--operating-status ${status}`), status === 'OFFLINE' ? all : [], status)
    }
    t.same(await listed('--tags blue,quiet'), ['lobby'])
    t.same(await listed('--tags blue,loud'), [])
    t.same(await listed('--any-tags blue,loud'), ['lobby'])
    t.same(await listed('--not-tags blue,quiet'), ['edge', 'gate', 'given'])
    t.same(await listed('--not-any-tags loud,quiet'), ['edge', 'gate', 'given'])
  })

  await t.test('set, unset and show', async t => {
    const { id } = await member.show('loadbalancer show edge')
    await member.done(
      'loadbalancer set --name brink --description far --vip-qos-policy-id None --disable --tag x --tag y --wait edge',
    )
    t.match(await member.show(`loadbalancer show ${id}`), {
      name: 'brink',
      description: 'far',
      admin_state_up: false,
      tags: /^(x\ny|y\nx)$/,
      updated_at: TIME,
    })
    await member.done('loadbalancer set --enable --tag z --no-tag --wait brink')
    t.match(await member.show('loadbalancer show brink'), { admin_state_up: true, tags: 'z' })
    await member.done('loadbalancer set --tag w --wait brink')
    t.match(await member.show('loadbalancer show brink'), { tags: /^(w\nz|z\nw)$/ }, 'tags are added to existing ones')
    await member.done('loadbalancer unset --tag w --description --vip-qos-policy-id --wait brink')
    t.match(await member.show('loadbalancer show brink'), { tags: 'z', description: '' })
    await member.done(`loadbalancer unset --name --all-tag --wait ${id}`)
    t.match(await member.show(`loadbalancer show ${id}`), { name: '', tags: '' })
    await member.done(`loadbalancer set --name edge --wait ${id}`)
  })

  await t.test('status show and stats show', async t => {
    const status = await member.run('loadbalancer status show lobby')
    t.match(JSON.parse(status.stdout), {
      loadbalancer: { id: UUID, name: 'lobby', provisioning_status: 'ACTIVE', listeners: [] },
    })
    t.same(await member.show('loadbalancer stats show lobby'), {
      active_connections: 0,
      bytes_in: 0,
      bytes_out: 0,
      request_errors: 0,
      total_connections: 0,
    })
  })

  await t.test('refused requests and their messages', async t => {
    const refusals: [string, number, RegExp][] = [
      ['loadbalancer create --name x', 1, /Requires one of --vip-subnet-id, --vip-network-id or --vip-port-id/],
      [`${noop} --vip-subnet-id front --vip-address 300.1.1.1`, 1, /vip_address.*\(HTTP 400\) \(Request-ID: req-/],
      ['loadbalancer create --vip-subnet-id front --provider nobody', 1, /Provider 'nobody' is not enabled.*HTTP 400/],
      [`${noop} --vip-subnet-id front --vip-qos-policy-id gold`, 1, /Unable to locate gold in policies/],
      [`${noop} --vip-subnet-id front --availability-zone moon`, 1, /HTTP 400/],
      [`${noop} --vip-subnet-id front --flavor large`, 1, /Unable to locate large in flavors/],
      [`${noop} --vip-subnet-id front --name ${'n'.repeat(256)}`, 1, /name.*HTTP 400/],
      [`${noop} --vip-subnet-id front --enable --disable`, 2, /not allowed with argument/],
      ['loadbalancer list --provisioning-status WELL', 2, /invalid choice: 'WELL'/],
      ['loadbalancer show nowhere', 1, /Unable to locate nowhere in loadbalancers/],
      ['loadbalancer show 11111111-2222-4333-8444-555555555555', 1, /Unable to locate 11111111-.* in loadbalancers/],
      ['loadbalancer set --name x nowhere', 1, /Unable to locate nowhere/],
      ['loadbalancer unset --name nowhere', 1, /Unable to locate nowhere/],
      ['loadbalancer delete nowhere', 1, /Unable to locate nowhere/],
      ['loadbalancer stats show nowhere', 1, /Unable to locate nowhere/],
      ['loadbalancer status show nowhere', 1, /Unable to locate nowhere/],
      [`loadbalancer set --description ${'n'.repeat(256)} edge`, 1, /description.*HTTP 400/],
    ]
    for (const [line, status, stderr] of refusals) t.match(await member.refused(line), { status, stderr }, line)
  })

  await t.test('an ambiguous name is refused', async t => {
    await member.done(`${noop} --name edge --vip-subnet-id front --wait`)
    t.match(await member.refused('loadbalancer show edge'), {
      status: 1,
      stderr: /2 loadbalancers found with name or ID of edge. Please try again with UUID/,
    })
    for (const { id } of await member.list('loadbalancer list --name edge')) {
      await member.done(`loadbalancer delete --wait ${id}`)
    }
  })

  await t.test('delete', async t => {
    await member.done('loadbalancer listener create --name hatch --protocol TCP --protocol-port 1 --wait lobby')
    t.match(await member.refused('loadbalancer delete lobby'), { status: 1, stderr: /has children.*HTTP 400/i })
    await member.done('loadbalancer delete --cascade --wait lobby')
    await member.done('loadbalancer delete gate')
    await member.done('loadbalancer delete --wait given')
    t.same(await member.list('loadbalancer listener list'), [])
    t.match(await member.refused('loadbalancer show lobby'), { status: 1 })
  })
}
