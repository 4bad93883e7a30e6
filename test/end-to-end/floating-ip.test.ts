import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import t from 'tap'
import { openstackSession } from '../support/clients/openstack-session.js'
import { killIfThere, processesInside } from '../support/faults/crash-amphora.js'
import { createMember } from '../support/services/members.js'
import { createKrater, until } from '../support/worlds/krater.js'
import { interfaceState, namesWith } from '../support/worlds/lan.js'
import { takeForwardingTurn } from '../support/worlds/turns.js'

const run = promisify(execFile)

t.test('a floating IP leads to a pair of amphorae on a private network', async t => {
  await takeForwardingTurn(t)
  const before = await interfaceState('lo')
  const krater = await createKrater(t, { KRATER_LOAD_BALANCER_TOPOLOGY: 'ACTIVE_STANDBY' })
  const started = await krater.command('up', '--detach', '--yes')
  t.equal(started.status, 0, started.stderr)
  t.match(await krater.command('doctor'), { stdout: /outside +ok +load balancers reach what this machine reaches/ })
  const tenant = openstackSession(t, krater, 'krater')
  const operator = openstackSession(t, krater, 'krater-admin')
  const cli = tenant.done
  const shown = tenant.show as (line: string) => Promise<Record<string, string>>
  const member = await createMember(t, krater, 'one')
  const outside = async (...words: string[]) => krater.command('network', 'exec', 'outside', ...words)
  const curl = async (address: string) => (await outside('curl', '-s', '-m', '3', `http://${address}/`)).stdout
  t.equal((await krater.command('network', 'attach', 'public', 'outside')).status, 0)
  t.equal((await krater.command('network', 'attach', 'private', 'machine')).status, 0)
  const [client = ''] = (await krater.command('network', 'address', 'outside')).stdout.trim().split('\n')
  let floating = ''
  let fromNeighbour = async () => ''

  await t.test('by the commands of the documentation', async t => {
    await cli('loadbalancer create --name web --vip-subnet-id private-subnet')
    await until('ACTIVE', async () => (await shown('loadbalancer show web')).provisioning_status === 'ACTIVE')
    await cli('loadbalancer listener create --wait --name http --protocol HTTP --protocol-port 80 web')
    await cli('loadbalancer pool create --wait --name pool --protocol HTTP --lb-algorithm ROUND_ROBIN --listener http')
    await cli(`loadbalancer member create --wait --address ${member.address} --protocol-port ${member.port} pool`)
    await cli('router create edge')
    await cli('router set --external-gateway public edge')
    await cli('router add subnet edge private-subnet')
    const { vip_port_id: portId } = await shown('loadbalancer show web')
    const created = await shown(`floating ip create --port ${portId} public`)
    floating = created.floating_ip_address ?? ''
    await until('the VIP answers at its floating IP', async () => (await curl(floating)) === 'one')
    t.equal((await shown(`floating ip show ${created.id}`)).status, 'ACTIVE')
  })

  await t.test('from this host, from the project’s own network, and out of it', async t => {
    const { stdout } = await run('curl', ['-s', '-m', '10', `http://${floating}/`])
    t.equal(stdout, 'one', 'from this host')
    const inside = await krater.command('network', 'exec', 'machine', 'curl', '-s', '-m', '10', `http://${floating}/`)
    t.equal(inside.stdout, 'one', 'from the project’s own network')
    const ping = await krater.command('network', 'exec', 'machine', 'ping', '-c', '3', '-W', '3', client)
    t.match(ping.stdout, /bytes from/, 'a machine without floating IP reaches the outside')
  })

  await t.test('for whom the security groups of the load balancer let in', async t => {
    const api = await krater.api()
    const { id, vip_address: vip } = await shown('loadbalancer show web')
    const filter = async (groups: readonly (string | undefined)[]) => {
      await api.request('load-balancer', 'PUT', `/v2/lbaas/loadbalancers/${id}`, {
        loadbalancer: { vip_sg_ids: groups },
      })
      await until('ACTIVE', async () => (await shown(`loadbalancer show ${id}`)).provisioning_status === 'ACTIVE')
    }
    fromNeighbour = async () =>
      (await krater.command('network', 'exec', 'machine', 'curl', '-s', '-m', '3', `http://${vip}/`)).stdout
    t.equal(await fromNeighbour(), 'one', 'without groups, everybody')
    const group = await shown('security group create door')
    for (const { ID } of await tenant.list(`security group rule list ${group.id}`)) {
      await cli(`security group rule delete ${ID}`)
    }
    await filter([group.id])
    await until('a group without rules closes the VIP', async () => (await curl(floating)) === '')
    t.equal(await fromNeighbour(), '')
    const rule = `security group rule create --protocol tcp --dst-port 80 --remote-ip ${client}/32 door`
    const { id: ruleId } = await shown(rule)
    await until('its rule opens it, and answers need none', async () => (await curl(floating)) === 'one')
    t.equal(await fromNeighbour(), '', 'others stay outside')
    await cli(`security group rule delete ${ruleId}`)
    await until('without the rule it is closed', async () => (await curl(floating)) === '')
    await shown(rule)
    await until('open again', async () => (await curl(floating)) === 'one')

    await t.rejects(cli('security group delete door'), /Security Group .* in use/)
    await t.rejects(cli('loadbalancer listener set --allowed-cidr 192.0.2.0/24 http'), /has vip_sg_ids/)
    const { id: foreign } = await operator.show('security group create theirs')
    await t.rejects(filter([String(foreign)]), { status: 400, message: /Security Group .* not found/ })
  })

  await t.test('through the loss of the amphora that serves', async t => {
    const admin = await krater.api('krater-admin')
    const { amphorae } = (await admin.request('load-balancer', 'GET', '/v2/octavia/amphorae')) as {
      amphorae: { id: string; role: string }[]
    }
    const master = amphorae.find(({ role }) => role === 'MASTER')!
    for (const { pid } of await processesInside(`krater-${krater.instance()}-${master.id}`)) killIfThere(pid)
    await until('the other amphora answers at the floating IP', async () => (await curl(floating)) === 'one')
    t.equal(await fromNeighbour(), '', 'the groups filter it too')
  })

  await t.test('without the controllers, and through the death of the network worker', async t => {
    const pid = krater.kill('network-worker')
    t.equal(await curl(floating), 'one')
    await until(
      'it is back',
      () => krater.running().includes('network-worker') && krater.pidOf('network-worker') !== pid,
    )
    t.equal((await krater.command('down')).status, 0)
    t.equal(await curl(floating), 'one', 'after krater down')
    await krater.up()
    t.equal(await curl(floating), 'one', 'after krater up')
    await cli(`floating ip unset --port ${floating}`)
    await until('nothing answers any more', async () => (await curl(floating)) === '')
  })

  await t.test('and nothing of it is left on this host', async t => {
    await krater.command('network', 'detach', 'outside')
    t.equal((await krater.command('down', '--all', '--yes')).status, 0)
    const names = await namesWith(krater.instance())
    const left = names.filter(name => !name.startsWith('test-'))
    t.strictSame(left, [], 'no link, firewall table or namespace')
    t.strictSame(await interfaceState('lo'), before, 'no address, route or rule')
  })
})
