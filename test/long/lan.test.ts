import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { type Asked, askSteadily, startIn } from '../support/clients/steady-asker.js'
import { killIfThere, processesInside } from '../support/faults/crash-amphora.js'
import { createFlavor } from '../support/inputs/flavor.js'
import { inhabit } from '../support/worlds/inhabitant.js'
import { createKrater, until } from '../support/worlds/krater.js'
import { createLan, hostState, outputIn } from '../support/worlds/lan.js'
import { takeForwardingTurn } from '../support/worlds/turns.js'

const root = join(import.meta.dirname, '../..')

type Balancer = { id: string; vip_address: string; provisioning_status: string }
type Amphora = { id: string; status: string; role: string }

const WEB = `require('node:http').createServer((_, response) => response.end('web')).listen(8000, '::', () => console.log('ready'))`

t.test('machines on a LAN use load balancers there through failovers, and never lose the host', async t => {
  t.setTimeout(1_100_000)
  await takeForwardingTurn(t)
  const lan = await createLan(t)
  const [client, server] = [await lan.machine(11), await lan.machine(12)]
  const krater = await createKrater(t, {
    KRATER_NETWORK_PHYSICAL_NETWORKS: `lan:${lan.interfaceName}`,
  })
  const before = await hostState(lan.interfaceName, lan.interfaceName)
  const ping = startIn(client)('ping', ['-i', '0.1', '-W', '1', lan.address.v4(1)])
  t.teardown(() => ping.kill('SIGKILL'))
  let pinged = ''
  ping.stdout?.on('data', (chunk: Buffer) => (pinged += chunk.toString()))

  const web = startIn(server)(process.execPath, ['-e', WEB])
  t.teardown(() => web.kill('SIGKILL'))
  const echo: { kill: () => void }[] = []
  t.teardown(() => echo.map(child => child.kill()))
  await inhabit('server', (name, args) => {
    const child = startIn(server)(name, args)
    echo.push({ kill: () => child.kill('SIGKILL') })
    return child
  })

  await t.test('the first start on a terminal asks whether load balancers may leave their networks', async t => {
    const terminal = `${process.execPath} ${join(root, 'dist/krater.js')} up --detach`
    const child = spawn('script', ['-qec', terminal, '/dev/null'], { env: krater.environment })
    t.teardown(() => child.kill('SIGKILL'))
    let output = ''
    child.stdout.on('data', (chunk: Buffer) => {
      const isAsked = output.includes('(yes/no)')
      output += chunk.toString()
      if (!isAsked && output.includes('(yes/no)')) child.stdin.write('no\n')
    })
    const [status] = await once(child, 'exit')
    t.equal(status, 0, output)
    t.match(readFileSync(join(krater.directory, 'krater.yaml'), 'utf8'), /^network:\n(.*\n)* {2}outside: false$/m)
    t.notMatch(output, /network\.outside=true/, 'it is settled')
  })
  const admin = await krater.api('krater-admin')
  const network = async (kind: string, values: object) => {
    const answer = await admin.request('network', 'POST', `/v2.0/${kind}s`, { [kind]: values })
    return (answer as Record<string, { id: string }>)[kind]!.id
  }
  const provider = { 'provider:network_type': 'flat', 'provider:physical_network': 'lan' }
  const networkId = await network('network', { name: 'lan', shared: true, ...provider })
  const pool = (of: (host: number) => string, from: number, to: number) => ({
    allocation_pools: [{ start: of(from), end: of(to) }],
  })
  const v4 = { network_id: networkId, ip_version: 4, cidr: `${lan.address.v4(0)}/24`, gateway_ip: lan.address.v4(11) }
  const v6 = { network_id: networkId, ip_version: 6, cidr: `${lan.address.v6(0)}/64`, gateway_ip: null }
  const subnet4 = await network('subnet', { name: 'lan-4', ...v4, ...pool(lan.address.v4, 100, 150) })
  const subnet6 = await network('subnet', { name: 'lan-6', ...v6, ...pool(lan.address.v6, 100, 250) })

  const api = await krater.api()
  const call = (method: string, path: string, body?: object) =>
    api.request('load-balancer', method, `/v2/lbaas/${path}`, body)
  const pairFlavorId = await createFlavor(admin, 'pair', { loadbalancer_topology: 'ACTIVE_STANDBY' })
  const listener = (protocol: string, port: number, memberPort: number, address: string) => ({
    name: `${protocol}-${port}`,
    protocol,
    protocol_port: port,
    default_pool: {
      name: `${protocol}-${port}`,
      protocol,
      lb_algorithm: 'ROUND_ROBIN',
      members: [{ address, protocol_port: memberPort, subnet_id: subnet4 }],
    },
  })
  const create = async (name: string, more: object): Promise<Balancer> => {
    const { loadbalancer } = (await call('POST', 'loadbalancers', {
      loadbalancer: {
        name,
        vip_subnet_id: subnet4,
        additional_vips: [{ subnet_id: subnet6, ip_address: lan.address.v6(name === 'pair' ? 202 : 201) }],
        listeners: [
          listener('HTTP', 80, 8000, lan.address.v4(12)),
          listener('TCP', 8080, 8080, lan.address.v4(12)),
          listener('UDP', 8080, 8080, lan.address.v4(12)),
        ],
        ...more,
      },
    })) as { loadbalancer: Balancer }
    return loadbalancer
  }
  const single = await create('single', {})
  const pair = await create('pair', { flavor_id: pairFlavorId })
  const active = async ({ id }: Balancer) =>
    ((await call('GET', `loadbalancers/${id}`)) as { loadbalancer: Balancer }).loadbalancer.provisioning_status ===
    'ACTIVE'
  for (const balancer of [single, pair]) await until('ACTIVE', () => active(balancer))
  const { stdout: examined } = await krater.command('doctor')
  t.match(examined, new RegExp(`physical networks +ok +lan is ${lan.interfaceName}`))
  t.match(examined, `the network of ${lan.interfaceName} delivers to VIPs`)
  t.notMatch(examined, /physical networks +fault|in use twice/)

  await t.test('a tenant gets neither the address of this machine nor of another one on the LAN', async t => {
    const claim = (vip_address: string) =>
      call('POST', 'loadbalancers', { loadbalancer: { vip_subnet_id: subnet4, vip_address } })
    await t.rejects(claim(lan.address.v4(1)), /belongs to another machine/)
    await t.rejects(claim(lan.address.v4(12)), /outside the allocation pools/)
  })

  await t.test('a restart of the firewall takes the walls away for a moment only', async t => {
    const tables = async () =>
      (await outputIn(null, 'nft', 'list', 'tables')).split('\n').filter(line => line.includes(krater.instance()))
    const whole = (await tables()).sort()
    t.equal(whole.length, 4, 'two legs, the way out, and the LAN')
    for (const table of whole) await outputIn(null, 'nft', 'delete', ...table.split(' '))
    await until('the rules are back', async () => (await tables()).length === whole.length, 30)
    t.same((await tables()).sort(), whole)
  })

  const targets = ({ vip_address }: Balancer, v6Host: number): Asked[] => [
    { protocol: 'http', host: vip_address, port: 80 },
    { protocol: 'tcp', host: vip_address, port: 8080 },
    { protocol: 'udp', host: vip_address, port: 8080 },
    { protocol: 'http', host: lan.address.v6(v6Host), port: 80 },
  ]
  /** What the client on the LAN sees while something happens. */
  const during = async (what: string, asked: readonly Asked[], work: () => Promise<void>, mayMiss = false) => {
    const stop = await askSteadily(t, startIn(client), asked)
    await work()
    const gaps = await stop()
    gaps.forEach(({ answered, missed, longestMs, ends }, at) => {
      const { protocol, host } = asked[at]!
      t.ok(
        answered > 10,
        `${what}: ${protocol} ${host}: ${answered} answered, ${missed} not; longest gap ${longestMs} ms`,
      )
      if (!mayMiss) t.same(ends, [], `${what}: every request by ${protocol} to ${host} is answered in time`)
    })
  }
  const amphorae = async ({ id }: Balancer) =>
    (
      (await admin.request('load-balancer', 'GET', `/v2/octavia/amphorae?loadbalancer_id=${id}`)) as {
        amphorae: Amphora[]
      }
    ).amphorae
  const failOver = async (balancer: Balancer) => {
    const old = new Set((await amphorae(balancer)).map(({ id }) => id))
    await admin.request('load-balancer', 'PUT', `/v2/lbaas/loadbalancers/${balancer.id}/failover`)
    await until('failed over', async () => {
      const now = await amphorae(balancer)
      return now.every(({ id, status }) => !old.has(id) && status === 'ALLOCATED') && (await active(balancer))
    })
  }

  await during('a single amphora', targets(single, 201), async () => undefined)
  await during('a requested failover of a single one', targets(single, 201), () => failOver(single))
  await during('a requested failover of a pair', targets(pair, 202), () => failOver(pair))
  const dies = async () => {
    for (const { id } of await amphorae(pair)) {
      const { stdout } = await krater.command('amphora', 'show', id)
      if (!/holds the VIP\s+true/.test(stdout)) continue
      for (const { pid, isFirst } of await processesInside(`krater-${krater.instance()}-${id}`))
        if (isFirst) killIfThere(pid)
      await until('the pair is complete again', async () => {
        const { stdout: list } = await krater.command('amphora', 'list')
        const beating = list.split('\n').filter(line => /ALLOCATED.* [0-3] s ago/.test(line))
        return beating.length === 3 && (await active(pair))
      })
      return
    }
    throw new Error('no amphora holds the VIP')
  }
  await during('the death of the VIP’s holder', targets(pair, 202), dies, true)

  await krater.command('down')
  await during('the controllers are down', [...targets(single, 201), ...targets(pair, 202)], async () => undefined)
  await t.test('ports of this host are opened and closed by one command each', async t => {
    const ports = async (...words: string[]) => (await krater.command('network', ...words)).stdout
    t.match(await ports('open'), /^Load balancers reach no port of this host\. .*: krater network open PORT\n$/)
    t.match(
      await ports('open', '8081', '53/udp'),
      /the next start has[\s\S]*this host, at \S+ and \S+: 8081\/tcp, 53\/udp\n$/,
    )
    t.match(
      await ports('open', '8081'),
      /^Load balancers reach these .*: 8081\/tcp, 53\/udp\n$/,
      'again: nothing to do',
    )
    t.match(await ports('close', '8081', '9'), /: 53\/udp\n$/)
    const wrong = await krater.command('network', 'open', '70000')
    t.match(wrong, { status: 2, stderr: /from 1 to 65535, with \/udp for UDP/ })
  })
  const removed = await krater.command('down', '--all', '--yes')
  t.equal(removed.status, 0, removed.stderr)
  const ended = once(ping, 'close')
  ping.kill('SIGINT')
  await ended
  const summary = pinged.split('\n').at(-3) ?? ''
  t.match(summary, / 0% packet loss/, `the host answered all along: ${summary}`)
  t.same(await hostState(lan.interfaceName, lan.interfaceName), before, 'links, addresses and routes are as before')
  t.notMatch(await outputIn(null, 'nft', 'list', 'tables'), krater.instance(), 'no rules are left')
})
