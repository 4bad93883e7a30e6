import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import t, { type Test } from 'tap'
import { plug } from '../../controller/cli/host/plug.js'
import { fabricOf } from '../../controller/cli/wiring/drivers.js'
import { loadConfiguration } from '../../controller/config/load.js'
import { connect } from '../../controller/database/connection.js'
import { createKrater, type Krater, startKrater, until } from '../support/worlds/krater.js'

const run = promisify(execFile)

/** For certificates that were issued or renewed. */
async function passAnHour(t: Test, krater: Krater): Promise<void> {
  const { database } = loadConfiguration(krater.directory, krater.environment)
  const opened = connect({ url: database.key_manager ?? '', applicationName: 'demo test' })
  t.teardown(() => opened.destroy())
  const earlier = opened.raw("now() - interval '1 hour'")
  await opened('certificate').update({ attempted_at: earlier, checked_at: earlier, asked_at: earlier })
}

type LoadBalancer = { id: string; vip_address: string; provisioning_status: string; operating_status: string }

t.test('krater demo, from an empty machine to traffic and back', async t => {
  const krater = await createKrater(t)
  const loadBalancer = async (): Promise<LoadBalancer> => {
    const api = await krater.api()
    const { loadbalancers } = (await api.request('load-balancer', 'GET', '/v2.0/lbaas/loadbalancers')) as {
      loadbalancers: LoadBalancer[]
    }
    t.equal(loadbalancers.length, 1, 'repeated demos create one load balancer')
    return loadbalancers[0]!
  }
  const amphoraId = async () => {
    const { stdout } = await krater.command('amphora', 'list')
    return /^(\S+) +ALLOCATED/m.exec(stdout)?.[1] ?? stdout
  }

  await t.test('demo creates a load balancer that both members serve', async t => {
    const { status, stdout, stderr } = await krater.command('demo')
    t.equal(status, 0, stderr)
    t.match(stdout, /POST \/v2\.0\/lbaas\/loadbalancers +answered after \d+ ms/)
    t.match(stdout, /provisioning_status ACTIVE/)
    t.match(stdout, /first 200 through the VIP/)
    t.match(stdout, /web-1 +answered 10 times\n +web-2 +answered 10 times/)
    t.match(stdout, /krater explain [0-9a-f-]{36}\n/)
    t.match(stdout, `source ${join(krater.directory, 'openrc')}`)
    t.notMatch(stdout, '\u001b', 'the output is plain text without a terminal')
    t.same(krater.running(), [
      'acme-validator',
      'health-manager',
      'identity-api',
      'key-manager-api',
      'key-manager-worker',
      'load-balancer-api',
      'network-api',
      'network-worker',
      'up',
      'worker',
    ])
  })

  await t.test('a second demo finds everything in place', async t => {
    const { status, stdout } = await krater.command('demo')
    t.equal(status, 0)
    t.match(stdout, /already running on/)
    t.match(stdout, /web-1 .* already running/)
    t.match(stdout, 'Everything already exists.')
    await loadBalancer()
  })

  await t.test('demo --tls adds HTTPS, also the second time; `certificates order` prints a reference', async t => {
    const { vip_address: vip } = await loadBalancer()
    for (const isFirst of [true, false]) {
      const { status, stdout, stderr } = await krater.command('demo', '--tls')
      t.equal(status, 0, stderr)
      t.equal(/certificate ordered and issued/.test(stdout), isFirst)
      t.match(
        stdout,
        new RegExp(`requests to https://${vip}/\\n +web-1 +answered 10 times\\n +web-2 +answered 10 times`),
      )
      const words = /curl (--cacert \S+ --connect-to \S+ https:\S+)/.exec(stdout)?.[1]?.split(' ') ?? []
      t.match((await run('curl', ['-s', '-m', '5', ...words])).stdout, /^web-[12]$/m)
    }
    t.match((await krater.command('certificates')).stdout, /krater-demo\.test .*CN=Krater Root CA/)
    const ordered = await krater.command('certificates', 'order', 'a.example.org', 'b.example.org', '192.0.2.7')
    t.match(ordered.stdout, /^http:\S+\/v1\/containers\/[0-9a-f-]{36}\n$/)
    t.match((await krater.command('certificates', 'order', 'localhost')).stderr, /The name localhost is reserved/)
    t.match((await krater.command('certificates', 'order')).stderr, /Give the names of the certificate/)
    t.match(
      (await krater.command('certificates', 'order', 'c.example', '--ca', 'none')).stderr,
      /no certificate authority "none"/,
    )
  })

  await t.test('`certificates renew` waits for the new certificate, `certificates rollback` undoes it', async t => {
    const { stdout: ref } = await krater.command('certificates', 'order', 'shop.example.org')
    const certificates = (...words: string[]) => krater.command('certificates', ...words)
    t.match((await certificates('rollback', ref.trim())).stderr, /has not been renewed: there is no former version/)
    t.match((await certificates('renew', ref.trim())).stderr, /less than a minute ago/)
    t.match((await certificates('renew', 'nonsense')).stderr, /No order of the project has issued .* "nonsense"/)
    await passAnHour(t, krater)
    const renewed = await certificates('renew', ref.trim().slice(-36))
    t.match(renewed.stdout, /^Renewed: shop\.example\.org, version 2, until \S+\n$/, renewed.stderr)
    const back = await certificates('rollback', ref.trim())
    t.match(back.stdout, /^The former certificate is back: shop\.example\.org, version 3, until \S+\n$/, back.stderr)
  })

  await t.test('the openstack command works with openrc and with clouds.yaml', async t => {
    const { stdout } = await run(
      'bash',
      [
        '-c',
        '. "$1" && openstack loadbalancer list -f value -c name -c provisioning_status',
        '-',
        join(krater.directory, 'openrc'),
      ],
      { env: { PATH: process.env.PATH, HOME: krater.environment.HOME }, timeout: 60_000 },
    )
    t.equal(stdout.trim(), 'krater-demo ACTIVE')
    t.match(await krater.openstack(['loadbalancer', 'amphora', 'list', '-f', 'json'], 'krater-admin'), [
      { status: /ALLOCATED|READY/ },
    ])
  })

  await t.test('amphora show, ssh, logs and support-bundle', async t => {
    const id = await amphoraId()
    await until('the amphora sends heartbeats', async () =>
      /last heartbeat +\d+ s ago/.test((await krater.command('amphora', 'show', id)).stdout),
    )
    const shown = (await krater.command('amphora', 'show', id.slice(0, 8))).stdout
    t.match(shown, /machine +running/)
    t.match(shown, /haproxy +2\.\d.* running/)
    const shell = await krater.command('amphora', 'ssh', id, '--', 'hostname; id -u; exit 7')
    t.equal(shell.stdout, `amphora-${id}\n0\n`)
    t.equal(shell.status, 7, 'ssh exits with the command’s status')
    t.match((await krater.command('amphora', 'logs', id)).stdout, /haproxy|agent/i)
    const file = join(t.testdir({}), 'bundle.tar.gz')
    const bundle = await krater.command('amphora', 'support-bundle', id, '--output', file)
    t.equal(bundle.status, 0, bundle.stderr)
    const { stdout: text } = await run('tar', ['-xzOf', file], { maxBuffer: 64 * 1024 * 1024 })
    t.match(text, 'frontend')
    t.match(text, /web-1|8080/)
    const secrets = ['controller-ssh', 'operator-ssh', 'amphora-master'].map(name =>
      readFileSync(join(krater.directory, 'keys', name), 'utf8'),
    )
    t.notMatch(text, /PRIVATE KEY/)
    for (const secret of secrets) t.notOk(text.includes(secret.trim()), 'the bundle contains no secret')
    t.match((await krater.command('amphora', 'show', 'ffffffff')).stderr, 'There is no amphora ffffffff')
  })

  await t.test('the doctor finds no problem', async t => {
    const well = await krater.command('doctor')
    t.equal(well.status, 0, well.stdout)
    t.match(well.stdout, /heartbeats +ok +1 of 1/)
    t.match(well.stdout, /agent answers, HAProxy is running/)
  })

  await t.test('down leaves the amphora serving; up adopts it', async t => {
    const { vip_address: vip } = await loadBalancer()
    const before = await amphoraId()
    t.match((await krater.command('down')).stdout, /keeps? serving/)
    const { stdout } = await run('curl', ['-s', '-m', '5', `http://${vip}/`])
    t.match(stdout, /web-[12]/)
    await krater.up()
    t.equal(await amphoraId(), before)
    t.match(await loadBalancer(), { provisioning_status: 'ACTIVE' })
  })

  await t.test('after a kill -9 of everything, demo restores it', async t => {
    await krater.killEverything()
    const { status, stdout, stderr } = await krater.command('demo')
    t.equal(status, 0, stderr)
    t.match(stdout, /web-1 .* started/)
    t.match(stdout, /web-1 +answered 10 times\n +web-2 +answered 10 times/)
    await loadBalancer()
  })

  await t.test('down --all leaves nothing', async t => {
    const instance = krater.instance()
    const { status, stderr } = await krater.command('down', '--all', '--yes')
    t.equal(status, 0, stderr)
    t.notOk(existsSync(krater.directory))
    t.notOk(existsSync(`/run/netns/krater-${instance}`))
    t.match((await krater.command('down', '--all', '--yes')).stdout, 'holds no Krater instance', 'it can be repeated')
  })
})

const BROKEN_SERVER = `require('node:http')
  .createServer((_, response) => response.writeHead(500).end())
  .listen(8081, () => console.log('listening'))`

/** A web server's port and namespace, as the demo made them before attachments existed. @returns its address */
async function createEarlierServer(krater: Krater, name: string): Promise<string> {
  const api = await krater.api()
  const { networks } = (await api.request('network', 'GET', '/v2.0/networks?name=private')) as {
    networks: { id: string; mtu: number }[]
  }
  const network = networks[0]!
  const { port } = (await api.request('network', 'POST', '/v2.0/ports', {
    // Before there were security groups, no group filtered it.
    port: { name: `krater-demo-${name}`, network_id: network.id, port_security_enabled: false },
  })) as { port: { id: string; mac_address: string; fixed_ips: { ip_address: string }[] } }
  const address = port.fixed_ips.map(({ ip_address }) => ip_address).find(text => !text.includes(':'))!
  await plug(fabricOf(krater.directory), {
    network,
    port: { id: port.id, macAddress: port.mac_address },
    addresses: [`${address}/20`],
    place: { kind: 'namespace', namespace: `krater-${krater.instance()}-${name}`, created: true },
  })
  return address
}

t.test('places on a network', async t => {
  const krater = await startKrater(t)
  const interfacesOf = async (namespace: string) =>
    (await run('ip', ['-n', namespace, '-json', 'link', 'show', 'type', 'veth'])).stdout.match(/"ifname"/g)?.length

  await t.test('the demo adopts the web servers of an earlier version', async t => {
    const addresses = [await createEarlierServer(krater, 'web-1'), await createEarlierServer(krater, 'web-2')]
    const { status, stdout, stderr } = await krater.command('demo')
    t.equal(status, 0, stderr)
    for (const [at, name] of ['web-1', 'web-2'].entries()) {
      t.match(stdout, `${name}  ${addresses[at]}:8080`)
      t.equal(await interfacesOf(`krater-${krater.instance()}-${name}`), 1, 'the namespace keeps its one interface')
      t.equal((await krater.command('network', 'address', name)).stdout.split('\n')[0], addresses[at])
    }
  })

  await t.test('no second interface on a subnet in one namespace', async t => {
    const namespace = `krater-${krater.instance()}-web-1`
    const ports = async () =>
      (await (await krater.api()).request('network', 'GET', '/v2.0/ports?device_id=second')) as { ports: unknown[] }
    const { status, stderr } = await krater.command('network', 'attach', 'private', 'second', '--namespace', namespace)
    t.equal(status, 1)
    t.match(stderr, /already has [\d.]+\/20 on the same subnet.* krater network detach web-1\n/)
    t.same(await ports(), { ports: [] }, 'nothing is left of the attempt')
    t.notMatch((await krater.command('network', 'list')).stdout, 'second')
    const other = await krater.command('network', 'attach', 'public', 'second', '--namespace', namespace)
    t.equal(other.status, 0, other.stderr)
    t.equal((await krater.command('network', 'detach', 'second')).status, 0)
  })

  await t.test('the list tells how to attach again what has ended', async t => {
    const container = spawn('unshare', ['--net', 'sh', '-c', 'echo ready; exec sleep 600'])
    t.teardown(() => container.kill('SIGKILL'))
    await once(container.stdout, 'data')
    const attached = await krater.command('network', 'attach', 'private', 'box', '--pid', String(container.pid))
    t.equal(attached.status, 0, attached.stderr)
    t.notMatch((await krater.command('network', 'list')).stdout, /has ended/)
    const ended = once(container, 'exit')
    container.kill('SIGKILL')
    await ended
    const { stdout } = await krater.command('network', 'list')
    t.match(stdout, /\nbox has ended\. .*: krater network attach private box --pid PID\n$/)
  })

  await t.test('the demo fails when requests get no answer', async t => {
    const api = await krater.api()
    const get = async (path: string) => (await api.request('load-balancer', 'GET', `/v2.0/lbaas/${path}`)) as object
    const { pools } = (await get('pools')) as { pools: { id: string }[] }
    const server = krater.start('network', 'exec', 'web-1', process.execPath, '-e', BROKEN_SERVER)
    await once(server.stdout!, 'data')
    const { stdout: address } = await krater.command('network', 'address', 'web-1')
    // Its health monitor asks the server that works.
    const member = { name: 'broken', address: address.trim(), protocol_port: 8081, monitor_port: 8080 }
    const members = `pools/${pools[0]!.id}/members`
    await api.request('load-balancer', 'POST', `/v2.0/lbaas/${members}`, { member })
    await until('the broken member gets requests', async () => {
      const listed = (await get(`${members}?name=broken`)) as { members: { operating_status: string }[] }
      return listed.members[0]?.operating_status === 'ONLINE'
    })
    const { status, stdout, stderr } = await krater.command('demo')
    t.equal(status, 1)
    t.match(stdout, /\n {2}status 500 {2}[67] times\n/)
    t.match(
      stderr,
      /^[67] of 20 requests got no answer from a web server\. `krater explain [0-9a-f-]{36}` says why\.\n$/,
    )
  })
})
