import type { Test } from 'tap'
import { openDatabase, openInstance } from '../../../controller/cli/wiring/instance.js'
import { until } from '../../support/worlds/krater.js'
import { type Scene, TIME, UUID } from './scene.js'

const STATISTICS = { bytes_in: 10, bytes_out: 20, active_connections: 3, total_connections: 40, request_errors: 5 }

/** loadbalancer failover; amphora list, show, stats show, configure, failover, delete. */
export async function amphorae(t: Test, { krater, member, admin }: Scene): Promise<void> {
  const amphora = 'loadbalancer amphora'
  const balancer = await member.show('loadbalancer create --name ship --provider amphora --vip-subnet-id s --wait')
  const listener = await member.show(
    'loadbalancer listener create --name deck --protocol HTTP --protocol-port 80 --wait ship',
  )
  await member.done('loadbalancer listener create --name hold --protocol TCP --protocol-port 81 --wait ship')
  const ofShip = async () => (await admin.list(`${amphora} list --loadbalancer ship`))[0] ?? {}

  await t.test('list with each filter', async t => {
    const [shown] = await admin.list(`${amphora} list --loadbalancer ship --long`)
    t.match(shown, {
      id: UUID,
      loadbalancer_id: balancer.id,
      status: 'ALLOCATED',
      role: 'STANDALONE',
      lb_network_ip: /^\d+\./,
      ha_ip: balancer.vip_address,
      compute_id: UUID,
    })
    const ids = async (options: string) => (await admin.list(`${amphora} list ${options}`)).map(({ id }) => id)
    t.ok((await ids('')).includes(shown?.id))
    t.same(await ids(`--compute-id ${shown?.compute_id}`), [shown?.id])
    for (const role of ['MASTER', 'BACKUP', 'STANDALONE']) {
      t.same(await ids(`--role ${role}`), role === 'STANDALONE' ? [shown?.id] : [], role)
    }
    for (const status of ['BOOTING', 'DELETED', 'ERROR', 'PENDING_CREATE', 'PENDING_DELETE', 'READY']) {
      t.notOk((await ids(`--status ${status}`)).includes(shown?.id), status)
    }
    t.same(await ids('--provisioning-status ALLOCATED'), [shown?.id])
    t.same(await ids('--status ALLOCATED'), [shown?.id])
  })

  await t.test('show', async t => {
    const { id } = await ofShip()
    t.match(await admin.show(`${amphora} show ${id}`), {
      id,
      loadbalancer_id: balancer.id,
      ha_port_id: balancer.vip_port_id,
      status: 'ALLOCATED',
      vrrp_ip: /./,
      vrrp_id: 1,
      compute_flavor: 'noop',
      cached_zone: 'local',
      cert_busy: false,
      created_at: TIME,
    })
  })

  await t.test('stats show', async t => {
    const { id } = await ofShip()
    const database = openDatabase(openInstance(krater.directory), 'load_balancer', 'test')
    const row = { amphora_id: id, epoch: 'first', ...STATISTICS }
    const hold = await member.show('loadbalancer listener show hold')
    await database('listener_statistics').insert([
      { ...row, listener_id: listener.id },
      { ...row, listener_id: hold.id },
    ])
    await database.destroy()
    t.same(await admin.show(`${amphora} stats show --listener deck ${id}`), STATISTICS)
    const double = Object.fromEntries(Object.entries(STATISTICS).map(([name, value]) => [name, value * 2]))
    t.same(await admin.show(`${amphora} stats show ${id}`), double)
    t.same(await member.show('loadbalancer listener stats show deck'), STATISTICS)
    t.same(await member.show('loadbalancer stats show ship'), double)
  })

  await t.test('configure', async t => {
    const { id } = await ofShip()
    await admin.done(`${amphora} configure --wait ${id}`)
    await admin.done(`${amphora} configure ${id}`)
    t.match(await admin.show(`${amphora} show ${id}`), { status: 'ALLOCATED' })
  })

  await t.test('failover of an amphora and of a load balancer', async t => {
    const first = await ofShip()
    await admin.done(`${amphora} failover --wait ${first.id}`)
    const second = await ofShip()
    t.match(second, { status: 'ALLOCATED', ha_ip: balancer.vip_address })
    t.not(second.id, first.id)
    await admin.done('loadbalancer failover --wait ship')
    const third = await ofShip()
    t.not(third.id, second.id)
    t.match(await member.show('loadbalancer show ship'), {
      provisioning_status: 'ACTIVE',
      vip_address: balancer.vip_address,
    })
    await admin.done(`${amphora} failover ${third.id}`)
    await until('the amphora is replaced', async () => ![undefined, third.id].includes((await ofShip()).id as string))
    await until(
      'the load balancer has settled',
      async () => (await member.show('loadbalancer show ship')).provisioning_status === 'ACTIVE',
    )
    await admin.done('loadbalancer failover ship')
  })

  await t.test('delete of an amphora in ERROR', async t => {
    await until(
      'the load balancer has settled',
      async () => (await member.show('loadbalancer show ship')).provisioning_status === 'ACTIVE',
    )
    const { id } = await ofShip()
    t.match(await admin.refused(`${amphora} delete ${id}`), { status: 1, stderr: /HTTP 409/ })
    const database = openDatabase(openInstance(krater.directory), 'load_balancer', 'test')
    await database('amphora').where({ id }).update({ status: 'ERROR' })
    await admin.done(`${amphora} delete --wait ${id}`)
    t.match(await admin.refused(`${amphora} show ${id}`), { status: 1, stderr: /HTTP 404/ })
    await until('another amphora takes its place', async () => (await ofShip()).status === 'ALLOCATED')
    await database.destroy()
  })

  await t.test('refused requests and their messages', async t => {
    const { id } = await ofShip()
    const nobody = '11111111-2222-4333-8444-555555555555'
    const refusals: [string, number, RegExp][] = [
      [`${amphora} show ${nobody}`, 1, /HTTP 404/],
      [`${amphora} show nobody`, 1, /HTTP 404/],
      [`${amphora} stats show ${nobody}`, 1, /HTTP 404/],
      [`${amphora} delete ${nobody}`, 1, /HTTP 404/],
      [`${amphora} failover ${nobody}`, 1, /HTTP 400|Unable to locate/],
      [`${amphora} configure ${nobody}`, 1, /HTTP 400|Unable to locate/],
      [`${amphora} list --role CAPTAIN`, 2, /invalid choice: 'CAPTAIN'/],
      ['loadbalancer failover nowhere', 1, /Unable to locate nowhere/],
    ]
    for (const [line, status, stderr] of refusals) t.match(await admin.refused(line), { status, stderr }, line)
    for (const line of [`${amphora} list`, `${amphora} show ${id}`, 'loadbalancer failover ship']) {
      t.match(await member.refused(line), { status: 1, stderr: /HTTP 403/ }, `a member: ${line}`)
    }
    await member.done('loadbalancer create --name raft --provider noop_driver --vip-subnet-id s --wait')
    await member.done('loadbalancer delete --wait raft')
  })
  await member.done('loadbalancer delete --cascade --wait ship')
}
