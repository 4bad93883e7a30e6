import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import t from 'tap'
import { HAPROXY_PEERS_PORT, HAPROXY_SOCKET } from '../../amphora-agent/protocol/paths.js'
import { ask, firstSuccess } from '../../controller/cli/commands/demo/traffic.js'
import { said } from '../support/clients/said.js'
import { killIfThere, processesInside } from '../support/faults/crash-amphora.js'
import { createMember } from '../support/services/members.js'
import { startKrater, until } from '../support/worlds/krater.js'

type Amphora = { id: string; vrrp_ip: string; role: string; status: string; loadbalancer_id: string }
type Balancer = { id: string; vip_address: string; provisioning_status: string; fault?: { text: string } }

t.test('the standby of a pair takes over the VIP, and the pair is completed again', async t => {
  const krater = await startKrater(t, { KRATER_LOAD_BALANCER_TOPOLOGY: 'ACTIVE_STANDBY' })
  const [api, admin] = await Promise.all([krater.api(), krater.api('krater-admin')])
  const member = await createMember(t, krater, 'one')
  const subnetId = async (name: string) => {
    const { subnets } = (await api.request('network', 'GET', `/v2.0/subnets?name=${name}`)) as {
      subnets: { id: string }[]
    }
    return subnets[0]?.id
  }
  const { loadbalancer } = (await api.request('load-balancer', 'POST', '/v2/lbaas/loadbalancers', {
    loadbalancer: {
      vip_subnet_id: await subnetId('public-subnet'),
      listeners: [
        {
          protocol: 'HTTP',
          protocol_port: 80,
          default_pool: {
            name: 'pool',
            protocol: 'HTTP',
            lb_algorithm: 'ROUND_ROBIN',
            session_persistence: { type: 'SOURCE_IP' },
            members: [
              { address: member.address, protocol_port: member.port, subnet_id: await subnetId('private-subnet') },
            ],
          },
        },
      ],
    },
  })) as { loadbalancer: Balancer }
  const url = `http://${loadbalancer.vip_address}/`
  const isActive = async () => {
    const shown = (await api.request('load-balancer', 'GET', `/v2/lbaas/loadbalancers/${loadbalancer.id}`)) as {
      loadbalancer: Balancer
    }
    return shown.loadbalancer.provisioning_status === 'ACTIVE'
  }
  const amphorae = async () => {
    const list = (await admin.request(
      'load-balancer',
      'GET',
      `/v2/octavia/amphorae?loadbalancer_id=${loadbalancer.id}`,
    )) as { amphorae: Amphora[] }
    return list.amphorae
  }
  const vipHolder = async () => {
    for (const { id } of await amphorae()) {
      const { stdout } = await krater.command('amphora', 'show', id)
      if (/holds the VIP\s+true/.test(stdout)) return id
    }
    return null
  }

  await until('ACTIVE', isActive)
  t.match(await firstSuccess(url, 20_000), { status: 200, body: 'one' })
  t.same((await amphorae()).map(({ role }) => role).sort(), ['BACKUP', 'MASTER'])
  let holder: string | null = null
  await until('one of the pair holds the VIP', async () => {
    holder = await vipHolder()
    return holder !== null
  })
  if (holder === null) throw new Error('No amphora holds the VIP')

  const insideOf = (id: string) => processesInside(`krater-${krater.instance()}-${id}`)
  for (const { id, vrrp_ip: address } of await amphorae()) {
    const first = (await insideOf(id)).find(({ isFirst }) => isFirst)
    const socket = `/proc/${first?.pid}/root${HAPROXY_SOCKET}`
    const tables = () => said({ path: socket }, 'show table\n', 10_000)
    await until('both stick tables contain the client', async () => / used:1\b/.test(await tables()))
    const stranger = await said({ host: address, port: HAPROXY_PEERS_PORT }, 'HAProxyS 2.1\n', 500).catch(String)
    t.match(stranger, /no answer/, 'a machine on the VIP’s network cannot reach the port of the stick tables')
  }

  const stranger = await createMember(t, krater, 'stranger', 'public-subnet')
  const script = readFileSync(join(import.meta.dirname, '../support/faults/vrrp-flood.pl'))
  const pair = (await amphorae()).map(amphora => amphora.vrrp_ip)
  for (const [source, whose] of [
    [stranger.address, 'its own address'],
    ...pair.map(own => [own, 'an address of theirs']),
  ]) {
    const claims = pair.map(async target => {
      const words = [
        'netns',
        'exec',
        stranger.namespace,
        'perl',
        '-',
        '2',
        source ?? '',
        target,
        loadbalancer.vip_address,
      ]
      const claim = execFile('ip', words, { timeout: 10_000 })
      claim.stdin?.end(script)
      const [status] = await once(claim, 'exit')
      t.equal(status, 0, 'the claims were sent')
    })
    await delay(1_500)
    t.equal(await vipHolder(), holder, `the amphorae do not yield the VIP to a neighbour that claims it from ${whose}`)
    t.match(await ask(url), { status: 200, body: 'one' })
    await Promise.all(claims)
  }

  const inside = await insideOf(holder)
  for (const { pid, isFirst } of inside) if (isFirst) killIfThere(pid)
  await until('the other amphora answers', async () => (await ask(url))?.status === 200)
  await until('both amphorae send heartbeats and the load balancer is ACTIVE', async () => {
    const { stdout } = await krater.command('amphora', 'list')
    return (await isActive()) && stdout.split('\n').filter(line => /ALLOCATED.* [0-2] s ago/.test(line)).length === 2
  })
  t.match(await ask(url), { status: 200 })
})
