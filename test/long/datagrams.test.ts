import { execFile } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'
import { askWho, keepAsking, MONITOR_PATH, tally } from '../support/clients/name-client.js'
import { killIfThere, processesInside } from '../support/faults/crash-amphora.js'
import { type NameServer, startKnot } from '../support/services/knot.js'
import { createMember, type Member } from '../support/services/members.js'
import { type Krater, startKrater, until } from '../support/worlds/krater.js'

const run = promisify(execFile)

type Stats = Record<'bytes_in' | 'bytes_out' | 'active_connections' | 'total_connections' | 'request_errors', number>
type Shown = { id: string; operating_status: string; operating_reason: unknown; provisioning_status: string }

/** The words of the real client. */
const clientOf = (krater: Krater, cloud?: 'krater-admin') => ({
  done: (line: string) => krater.openstack(`loadbalancer ${line}`.split(' '), cloud),
  json: async <T>(line: string) => (await krater.openstack(`loadbalancer ${line} -f json`.split(' '), cloud)) as T,
})

/** What the API shows, more cheaply than a client that is started for each question. */
async function observerOf(krater: Krater) {
  const api = await krater.api()
  const list = async (path: string) => {
    const answer = (await api.request('load-balancer', 'GET', `/v2/lbaas/${path}`)) as Record<string, Shown[]>
    return Object.values(answer)[0] ?? []
  }
  /** @param named such as `listeners UDP`, or `members dns1 UDPs` with the name of the pool */
  const show = async (named: string): Promise<Shown> => {
    const [kind, name, poolName] = named.split(' ')
    const pool = poolName === undefined ? null : await show(`pools ${poolName}`)
    const [found] = await list(`${pool === null ? '' : `pools/${pool.id}/`}${kind}?name=${name}`)
    if (found === undefined) throw new Error(`There is no ${named}`)
    return found
  }
  return {
    show,
    is: (named: string, status: string) =>
      until(`${named} is ${status}`, async () => (await show(named)).operating_status === status),
    stats: async (named: string) => {
      const { id } = await show(named)
      const path = `/v2/lbaas/${named.split(' ')[0]}/${id}/stats`
      return ((await api.request('load-balancer', 'GET', path)) as { stats: Stats }).stats
    },
    create: async (loadbalancer: object) => {
      const answer = await api.request('load-balancer', 'POST', '/v2/lbaas/loadbalancers', { loadbalancer })
      return (answer as { loadbalancer: Shown & { vip_address: string } }).loadbalancer
    },
  }
}

/** Asks with dnsperf for some seconds. @returns how many questions it asked and lost */
async function perform(directory: string, address: string, seconds: number, protocol: 'udp' | 'tcp' = 'udp') {
  const questions = join(directory, 'questions')
  writeFileSync(questions, 'who.test A\n')
  const limits = ['-l', String(seconds), '-c', '4', '-T', '1', '-Q', '500']
  const argv = ['-s', address, '-p', '53', '-d', questions, '-m', protocol, ...limits]
  const { stdout } = await run('dnsperf', argv, { timeout: 60_000 })
  const count = (name: string) => Number(new RegExp(`${name}: +(\\d+)`).exec(stdout)?.[1])
  return { asked: count('Queries sent'), lost: count('Queries lost') }
}

const perServer = (counts: Map<number | string, number>) => [counts.get(1) ?? 0, counts.get(2) ?? 0]

t.test('UDP listeners before real name servers', async t => {
  const directory = t.testdir({})
  const krater = await startKrater(t)
  const [tenant, admin] = [clientOf(krater), clientOf(krater, 'krater-admin')]
  const { show, is, stats, create } = await observerOf(krater)
  const hosts: Member[] = []
  const servers: NameServer[] = []
  for (const number of [1, 2]) {
    const host = await createMember(t, krater, `dns${number}`)
    hosts.push(host)
    servers.push(await startKnot(t, { ...host, number }))
  }
  const [first, second] = hosts as [Member, Member]
  const [, secondServer] = servers as [NameServer, NameServer]
  const { vip_address: vip } = await tenant.json<{ vip_address: string }>(
    'create --name dns --vip-subnet-id public-subnet --wait',
  )
  const member = (host: Member, more = '') =>
    `member create --name ${host.name} --subnet-id private-subnet --address ${host.address} --protocol-port 53 ${more}--wait`

  await t.test('UDP and TCP share a port, and each server gets its turn', async t => {
    for (const protocol of ['UDP', 'TCP']) {
      await tenant.done(`listener create --name ${protocol} --protocol ${protocol} --protocol-port 53 --wait dns`)
      const pool = `pool create --name ${protocol}s --protocol ${protocol} --lb-algorithm ROUND_ROBIN`
      await tenant.done(`${pool} --listener ${protocol} --wait`)
    }
    t.match(await askWho(vip), /ECONNREFUSED|no answer/, 'a pool without a member refuses')
    for (const host of hosts) for (const pool of ['UDPs', 'TCPs']) await tenant.done(`${member(host)} ${pool}`)
    await until('the members serve', async () => typeof (await askWho(vip)) === 'number')
    t.same(perServer(await tally(vip, 20)), [10, 10], 'servers take turns')
    for (const protocol of ['udp', 'tcp'] as const) {
      const { asked, lost } = await perform(directory, vip, 1, protocol)
      t.ok(asked > 100 && lost === 0, `${protocol}: ${asked} questions of dnsperf, ${lost} lost`)
    }
    t.match(await show(`members ${first.name} UDPs`), { operating_status: 'NO_MONITOR' })
  })

  await t.test('a monitor asks a question, and a dead server gets no clients', async t => {
    const monitor = 'healthmonitor create --name ask --type UDP-CONNECT --delay 3 --timeout 2 --max-retries 1'
    await tenant.done(`${monitor} --url-path ${MONITOR_PATH} --wait UDPs`)
    for (const host of hosts) await is(`members ${host.name} UDPs`, 'ONLINE')
    for (const what of ['loadbalancers dns', 'listeners UDP', 'pools UDPs']) await is(what, 'ONLINE')
    const asking = await keepAsking(vip)
    await secondServer.kill()
    await is(`members ${second.name} UDPs`, 'ERROR')
    t.same(perServer(await tally(vip, 10)), [10, 0], 'only the living server gets clients')
    const { lost, servers } = await asking.stop()
    t.equal(servers.at(-1), 1, `a flow of the dead server has moved (${lost} questions lost)`)
    await is('pools UDPs', 'DEGRADED')
    // A server that dies with a question in hand lets it time out; the next question is refused.
    await until('the last question was refused', async () =>
      JSON.stringify((await show(`members ${second.name} UDPs`)).operating_reason).includes('refused'),
    )
    const { stdout, status } = await krater.command('explain', 'dns')
    t.equal(status, 1)
    t.match(
      stdout,
      new RegExp(`member .*${second.address}:53: ERROR since .*: Layer4 connection problem: Connection refused`),
    )
    t.match(stdout, new RegExp(`First cause: nothing listens on ${second.address}:53.*\nWhat to do: .*ss -lun`))
    await secondServer.start()
    await is(`members ${second.name} UDPs`, 'ONLINE')
    t.same(perServer(await tally(vip, 10)), [5, 5], 'both servers get clients')
  })

  await t.test('changes of members cost no question', async t => {
    const performing = perform(directory, vip, 12)
    await tenant.done(`member set --weight 3 --wait UDPs ${first.name}`)
    t.same(perServer(await tally(vip, 20)), [15, 5], 'turns are by weight')
    await tenant.done(`member set --weight 0 --wait UDPs ${first.name}`)
    t.same(perServer(await tally(vip, 10)), [0, 10], 'weight 0 gets no new clients')
    await is(`members ${first.name} UDPs`, 'DRAINING')
    await tenant.done(`member set --weight 1 --wait UDPs ${first.name}`)
    await tenant.done(`member set --disable --wait UDPs ${second.name}`)
    t.same(perServer(await tally(vip, 10)), [10, 0], 'neither does a disabled member')
    await tenant.done(`member set --enable --wait UDPs ${second.name}`)
    const { asked, lost } = await performing
    t.ok(asked > 1_000 && lost === 0, `${asked} questions of dnsperf, ${lost} lost`)
  })

  await t.test('what clients may do, and what is counted', async t => {
    const before = await tenant.json<Stats>('listener stats show UDP')
    t.ok(before.total_connections > 60 && before.bytes_out > before.bytes_in && before.bytes_in > 10_000)
    await tenant.done('listener set --allowed-cidr 203.0.113.0/24 --wait UDP')
    t.equal(await askWho(vip, { limitMs: 500 }), 'no answer')
    await tenant.done('listener unset --allowed-cidrs --wait UDP')
    await tenant.done('listener set --connection-limit 0 --wait UDP')
    t.not(typeof (await askWho(vip, { limitMs: 500 })), 'number', 'a limit of 0 admits nobody')
    await tenant.done('listener unset --connection-limit --wait UDP')
    t.equal(typeof (await askWho(vip)), 'number')
    await until('statistics have grown', async () => {
      const after = await stats('listeners UDP')
      return after.total_connections > before.total_connections && after.request_errors > before.request_errors
    })
    const { total_connections: all } = await stats('loadbalancers dns')
    t.ok(all > before.total_connections, 'the load balancer has the sum')
    await tenant.done('listener set --disable --wait UDP')
    t.not(typeof (await askWho(vip, { limitMs: 500 })), 'number')
    await is('listeners UDP', 'OFFLINE')
    t.equal((await perform(directory, vip, 1, 'tcp')).lost, 0, 'TCP goes on')
    await tenant.done('listener set --enable --wait UDP')
  })

  await t.test('a single amphora hands its flows to its successor', async t => {
    const before = await stats('listeners UDP')
    const moving = await keepAsking(vip)
    await admin.done('failover --wait dns')
    const { asked, lost, longestGapMs } = await moving.stop()
    t.comment(`failover: ${lost} of ${asked} questions lost, longest gap ${longestGapMs} ms`)
    t.same(perServer(await tally(vip, 10)), [5, 5], 'both servers get clients')
    await until('statistics go on', async () => {
      const after = await stats('listeners UDP')
      return after.total_connections > before.total_connections && after.bytes_in > before.bytes_in
    })
  })

  await t.test('a pair keeps clients with their server, through failovers', async t => {
    const flavor = 'flavorprofile create --name pair --provider amphora --flavor-data'
    await admin.done(`${flavor} {"loadbalancer_topology":"ACTIVE_STANDBY"}`)
    await admin.done('flavor create --name pair --flavorprofile pair --enable')
    const flavorId = (await admin.json<{ id: string }>('flavor show pair')).id
    const subnetId = async (name: string) =>
      ((await krater.openstack(['subnet', 'show', name, '-f', 'json'])) as { id: string }).id
    const subnet_id = await subnetId('private-subnet')
    const { id, vip_address: shared } = await create({
      ...{ name: 'two', flavor_id: flavorId, vip_subnet_id: await subnetId('public-subnet') },
      listeners: [{ name: 'pair', protocol: 'UDP', protocol_port: 53, default_pool: { name: 'pairs' } }],
      pools: [
        {
          ...{ name: 'pairs', protocol: 'UDP', lb_algorithm: 'SOURCE_IP' },
          session_persistence: { type: 'SOURCE_IP', persistence_timeout: 60 },
          healthmonitor: { type: 'UDP-CONNECT', delay: 3, timeout: 2, max_retries: 1, url_path: MONITOR_PATH },
          members: hosts.map(({ address }) => ({ address, protocol_port: 53, subnet_id })),
        },
      ],
    })
    await is('loadbalancers two', 'ONLINE')
    const [server] = (await tally(shared, 20)).keys()
    t.equal((await tally(shared, 20)).get(server ?? ''), 20, 'every question of a client comes to one server')

    const { stdout: doctor } = await krater.command('doctor')
    t.match(doctor, /agent answers, HAProxy is not running, 1 UDP or SCTP listener, last/, 'the doctor expects no more')

    const holder = async () => {
      const { stdout } = await krater.command('amphora', 'list')
      for (const [amphora] of stdout.matchAll(/^[0-9a-f-]{36}/gm)) {
        const shown = await krater.command('amphora', 'show', amphora)
        if (shown.stdout.includes(id) && /holds the VIP\s+true/.test(shown.stdout)) return amphora
      }
      return null
    }
    const whole = async () => {
      const shown = await show('loadbalancers two')
      return shown.provisioning_status === 'ACTIVE' && shown.operating_status === 'ONLINE'
    }
    const before = await stats('listeners pair')
    const former = await holder()
    const [init] = (await processesInside(`krater-${krater.instance()}-${former}`)).filter(one => one.isFirst)
    if (init === undefined) throw new Error('No amphora holds the VIP')
    const crashing = await keepAsking(shared)
    killIfThere(init.pid)
    await until('the other amphora has the VIP', async () => ![null, former].includes(await holder()))
    t.equal(typeof (await askWho(shared)), 'number')
    const crash = await crashing.stop()
    t.comment(`crash: ${crash.lost} of ${crash.asked} questions lost, longest gap ${crash.longestGapMs} ms`)
    t.same(crash.servers, [server], 'both amphorae choose the same server')
    await until('the pair is whole', whole)

    const moving = await keepAsking(shared)
    await admin.done('failover --wait two')
    await until('the pair is whole again', whole)
    const move = await moving.stop()
    t.comment(`failover: ${move.lost} of ${move.asked} questions lost, longest gap ${move.longestGapMs} ms`)
    t.same(move.servers, [server], 'its server stays the same')
    t.equal(typeof (await askWho(shared)), 'number')
    await until('statistics go on', async () => {
      const after = await stats('listeners pair')
      return after.total_connections > before.total_connections && after.bytes_in > before.bytes_in
    })
    await tenant.done('delete --cascade --wait two')
  })
})
