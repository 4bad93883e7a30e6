import { once } from 'node:events'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer, type IncomingHttpHeaders, request } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import fc from 'fast-check'
import t from 'tap'
import type { LoadBalancerTree } from '../../../controller/load-balancer/tree/tree.js'
import { renderDesired } from '../../../controller/provider/amphora/rendering/desired.js'
import { goldenCases } from '../../golden/cases.js'
import { nastyText, stringFields } from '../../golden/hostile.js'
import { aListener, aMember, aMonitor, aPool, aTree, aVipInterface, someFacts, uuid } from '../../golden/models.js'
import { parseConfiguration } from '../../support/inputs/haproxy-words.js'
import { ownPorts } from '../../support/ports.js'
import { asOneFile, checkWithHaproxy, run, startHaproxy, until } from '../../support/services/haproxy.js'

const directory = mkdtempSync(join(tmpdir(), 'krater-rendering-'))
t.teardown(() => rmSync(directory, { recursive: true }))

for (const { name, tree, facts } of goldenCases) {
  const { haproxy, keepalived } = renderDesired(tree, facts)
  if (haproxy !== null) {
    t.test(`haproxy accepts ${name} without a warning`, async t => {
      t.same(await checkWithHaproxy(directory, haproxy.text, haproxy), { code: 0, complaints: [] })
    })
  }
  if (keepalived !== null) {
    t.test(`keepalived accepts ${name} without a warning`, async t => {
      const file = join(directory, 'keepalived.conf')
      writeFileSync(file, keepalived.text)
      // the check needs the interface, so the command runs in a network namespace that ends with it
      const script = `ip link add eth-a1b2c3d4 type veth peer name other && exec keepalived -t -f ${file}`
      t.same(await run('unshare', ['--net', 'sh', '-c', script]), { code: 0, output: '' })
    })
  }
}

t.test('the check finds errors and warnings', async t => {
  const { haproxy } = renderDesired(aTree({ listeners: [aListener(1)] }), someFacts())
  const text = haproxy?.text ?? ''
  t.match(await checkWithHaproxy(directory, text.replace('mode http', 'mode htttp')), { code: 1 })
  t.match(await checkWithHaproxy(directory, text.replace(/timeout client .*/, '')), {
    code: 0,
    complaints: [/WARNING/],
  })
})

t.test('haproxy accepts every tenant text that the API does not refuse', async t => {
  const accepted: LoadBalancerTree[] = []
  for (const { treeWith, isValid } of stringFields.filter(({ name }) => !name.endsWith(' id'))) {
    for (const text of fc.sample(nastyText(), { numRuns: 150, seed: 20 })) {
      const tree = treeWith(text)
      if (isRendered(tree) && isValid?.(text) !== false) accepted.push(tree)
    }
  }
  t.ok(accepted.length > 300, `${accepted.length} texts are not refused`)
  // one file with all of them: haproxy reads each as a separate frontend and backend
  const file = asOneFile(
    accepted.flatMap((tree, index) => renderDesired(renumbered(tree, index + 1), someFacts()).haproxy ?? []),
  )
  t.same(await checkWithHaproxy(directory, file.text, file), { code: 0, complaints: [] })
  t.equal(parseConfiguration(file.text).filter(([word]) => word === 'frontend').length, accepted.length)
})

t.test('a running haproxy', async t => {
  const member = await startMember()
  t.teardown(member.stop)
  const monitors = [
    { urlPath: `/it's?q="#%20$HOME\\%[src]&x={{y}};z`, domainName: `100%[src]'s "#\\ $HOME` },
    { urlPath: '/%41%%{+Q}r', domainName: 'www.example.org', httpMethod: 'OPTIONS' },
    { urlPath: '/plain', domainName: null, httpMethod: 'HEAD' },
    { urlPath: '/old', httpVersion: 1 },
    ...fc
      .sample(nastyText(), { numRuns: 200, seed: 7 })
      .map(text => ({ urlPath: `/${text}` }))
      .filter(monitor => isRendered(monitored(monitor))),
  ].map((monitor, index) => aMonitor(index + 1, { httpVersion: 1.1, domainName: 'x', delay: 1, ...monitor }))
  const ports = await ownPorts(monitors.length + 2)
  const lastPort = ports.at(-1) ?? 0
  const listeners = monitors.map((_, index) =>
    aListener(index + 1, { protocolPort: ports[index] ?? 0, defaultPoolId: uuid(3, index + 1) }),
  )
  const pools = monitors.map((healthMonitor, index) =>
    aPool(index + 1, {
      healthMonitor,
      members: [
        aMember(1, { address: '127.0.0.1', protocolPort: member.port }),
        aMember(251, {
          address: '::1',
          protocolPort: 1,
          monitorAddress: '::1',
          monitorPort: member.port,
          backup: true,
        }),
        aMember(250, { adminStateUp: false }),
      ],
    }),
  )
  const withHeaders = aListener(900, {
    protocolPort: ports.at(-2) ?? 0,
    defaultPoolId: uuid(3, 1),
    insertHeaders: Object.fromEntries(
      ['For', 'Port', 'Proto', 'IP'].map(name => [`X-Forwarded-${name}`, 'true']).concat([['X-Real-IP', 'true']]),
    ),
  })
  const tree = onLoopback(
    aTree({ listeners: [...listeners, withHeaders, aListener(901, { protocolPort: lastPort })], pools }),
  )
  const facts = someFacts({ interfaces: [loopbackInterface()] })
  const { haproxy } = renderDesired(tree, facts)
  const running = await startHaproxy(directory, haproxy?.text ?? '')
  t.teardown(running.stop)

  await t.test('sends every health check exactly as configured', async t => {
    const expected = monitors.map(({ httpMethod, urlPath, httpVersion, domainName }) =>
      [
        httpMethod,
        urlPath,
        `HTTP/${httpVersion?.toFixed(1)}`,
        domainName ?? (httpVersion === 1.1 ? '127.0.0.1' : '-'),
      ].join(' '),
    )
    await until(() => expected.every(check => member.seen.has(check)), 5_000)
    for (const check of expected.filter(check => !member.seen.has(check))) t.fail(check)
    t.same(
      [...member.seen].filter(check => !expected.includes(check)),
      [],
      'it sends no other checks',
    )
  })

  await t.test('has the rendered servers and ids', async t => {
    const rows = (await running.command('show servers state')).trim().split('\n').slice(2)
    const columns = rows.map(row => row.split(' '))
    t.equal(columns.length, (monitors.length + 1) * 3)
    const backup = columns.find(column => column[3] === uuid(4, 251))
    t.match(
      backup,
      { 2: '251', 4: '::1', 18: '1', 21: String(member.port), 22: '::1' },
      'name, address, port, check port, check address',
    )
    const statuses = (await running.command('show stat')).split('\n').map(line => line.split(','))
    const disabled = statuses.filter(([, server]) => server === uuid(4, 250))
    t.ok(disabled.length > 0)
    t.same([...new Set(disabled.map(column => column[17]))], ['MAINT'])
  })

  await t.test('inserts headers, and answers 503 if there is no pool', async t => {
    const { headers } = JSON.parse((await get(withHeaders.protocolPort)).body) as { headers: IncomingHttpHeaders }
    t.match(headers, {
      'x-forwarded-for': '127.0.0.1',
      'x-forwarded-port': String(withHeaders.protocolPort),
      'x-forwarded-proto': 'http',
      'x-forwarded-ip': '127.0.0.1',
      'x-real-ip': '127.0.0.1',
    })
    t.notOk('x-client-ip' in headers)
    t.equal((await get(lastPort)).status, 503)
  })
})

function isRendered(tree: LoadBalancerTree): boolean {
  try {
    renderDesired(tree, someFacts())
    return true
  } catch {
    return false
  }
}

const monitored = (monitor: Parameters<typeof aMonitor>[1]) =>
  aTree({
    listeners: [aListener(1, { defaultPoolId: uuid(3, 1) })],
    pools: [aPool(1, { healthMonitor: aMonitor(1, monitor) })],
  })

/** The same load balancer with new ids and a new port, so that many fit into one file. */
function renumbered(tree: LoadBalancerTree, number: number): LoadBalancerTree {
  return {
    ...tree,
    listeners: tree.listeners.map(listener => ({
      ...listener,
      id: uuid(2, number),
      defaultPoolId: uuid(3, number),
      protocolPort: number,
    })),
    pools: tree.pools.map(pool => ({ ...pool, id: uuid(3, number) })),
  }
}

function onLoopback(tree: LoadBalancerTree): LoadBalancerTree {
  return { ...tree, vip: { ...tree.vip, address: '127.0.0.1' } }
}

function loopbackInterface() {
  return { ...aVipInterface(), mtu: 65_535 }
}

/** A web server on both loopback addresses that records health checks and echoes the headers of other requests. */
async function startMember() {
  const seen = new Set<string>()
  const servers = ['127.0.0.1', '::1'].map(() =>
    createServer((req, res) => {
      const host = Buffer.from(req.headers.host ?? '-', 'latin1').toString()
      if (req.headers['user-agent'] !== 'test') seen.add(`${req.method} ${req.url} HTTP/${req.httpVersion} ${host}`)
      res.end(JSON.stringify({ headers: req.headers }))
    }),
  )
  const [first, second] = servers
  if (first === undefined || second === undefined) throw new Error('two servers')
  const [port] = await ownPorts(1)
  first.listen(port, '127.0.0.1')
  second.listen(port, '::1')
  await Promise.all([once(first, 'listening'), once(second, 'listening')])
  return {
    port,
    seen,
    stop: async () => {
      for (const server of servers) {
        server.closeAllConnections()
        await new Promise(resolve => server.close(resolve))
      }
    },
  }
}

function get(port: number): Promise<{ status: number; body: string }> {
  return new Promise((resolve, reject) => {
    request({ port, host: '127.0.0.1', headers: { 'User-Agent': 'test' }, timeout: 5_000 }, response => {
      const chunks: Buffer[] = []
      response.on('data', (chunk: Buffer) => chunks.push(chunk))
      response.once('end', () => resolve({ status: response.statusCode ?? 0, body: Buffer.concat(chunks).toString() }))
    })
      .once('error', reject)
      .end()
  })
}
