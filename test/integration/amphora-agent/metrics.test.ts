import { spawn, spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t from 'tap'
import type { Desired } from '../../../amphora-agent/protocol/desired.js'
import { renderDesired } from '../../../controller/provider/amphora/rendering/desired.js'
import { aListener, aMember, aPool, aTree, aVipInterface, someFacts, uuid } from '../../golden/models.js'
import { createAmphora, until } from '../../support/worlds/amphora.js'

const OCTAVIA_NAMES = readFileSync(join(import.meta.dirname, '../../golden/octavia-metrics.txt'), 'utf8')
const WEB = 'http://127.0.0.1:8080/'
const METRICS = 'http://127.0.0.1:8081/metrics'

const amphora = await createAmphora()
t.teardown(amphora.destroy)
const { traffic } = amphora
const agent = await amphora.connect()
for (const number of [1, 2]) await traffic.ask('member', { port: 9000 + number, name: `member-${number}` })

const web = aListener(1, { protocolPort: 8080, defaultPoolId: uuid(3, 1) })
const prometheus = aListener(2, { protocol: 'PROMETHEUS', protocolPort: 8081 })
const forSome = aListener(3, { protocol: 'PROMETHEUS', protocolPort: 8082, allowedCidrs: ['127.0.0.2/32'] })
let generation = 0

/** The VIP is on the loopback device, which needs no interface. */
function desire(listeners: (typeof web)[], facts: Parameters<typeof someFacts>[0] = {}): Desired {
  const members = [1, 2].map(number => aMember(number, { address: '127.0.0.1', protocolPort: 9000 + number }))
  const tree = aTree({ generation: ++generation, listeners, pools: [aPool(1, { members })] })
  const onLoopback = { ...tree, vip: { ...tree.vip, address: '127.0.0.1' } }
  const desired = renderDesired(onLoopback, someFacts({ interfaces: [aVipInterface()], fence: generation, ...facts }))
  return { ...desired, interfaces: [] }
}

const scrape = async (url = METRICS, from?: string) => {
  const { status, body } = await traffic.get(url, from)
  return { status, body, lines: body.split('\n') }
}

/** The value of one sample, such as `octavia_listener_status{...}`. */
const sampleOf = (lines: readonly string[], sample: string) =>
  lines.find(line => line.startsWith(`${sample} `))?.slice(sample.length + 1)

t.test('a PROMETHEUS listener comes without one failed request', async t => {
  await agent.apply(desire([web]))
  await traffic.ask('startLoad', { name: 'load', url: WEB, clients: 4 })
  t.match(await agent.apply(desire([web, prometheus, forSome], { answersMetrics: false })), { transition: 'reload' })
  const before = await scrape()
  t.ok(
    before.lines.some(line => line.startsWith('haproxy_frontend_status{')),
    'as an older agent left it',
  )
  t.match(await agent.apply(desire([web, prometheus, forSome])), { transition: 'reload' })
  t.equal((await scrape()).status, 200)
  const { ok, errors } = await traffic.ask<{ ok: number; errors: string[] }>('endLoad', { name: 'load' })
  t.same(errors, [])
  t.ok(ok > 20, `${ok} requests`)
  t.match(await agent.ask('hello'), { answersMetrics: true })
})

t.test('it shows all of Octavia’s metrics and no others', async t => {
  const { lines } = await scrape()
  const names = lines.filter(line => line !== '' && !line.startsWith('#')).map(line => line.split(/[{ ]/, 1)[0] ?? '')
  t.strictSame([...new Set(names)].sort(), OCTAVIA_NAMES.trim().split('\n'))
  t.notMatch(lines.join('\n'), /haproxy_|prometheus-exporter|proxy="|server="/)
})

t.test('listeners, pools and members are named by their ids', async t => {
  const before = await scrape()
  for (let request = 0; request < 6; request++) await traffic.get(WEB)
  const after = await scrape()
  const more = (sample: string) => Number(sampleOf(after.lines, sample)) - Number(sampleOf(before.lines, sample))
  const pool = `pool="${uuid(3, 1)}:${web.id}"`
  t.equal(more(`octavia_listener_http_requests_total{listener="${web.id}"}`), 6)
  t.equal(more(`octavia_listener_http_responses_total{listener="${web.id}",code="2xx"}`), 6)
  t.equal(more(`octavia_pool_http_requests_total{${pool}}`), 6)
  t.equal(more(`octavia_member_sessions_total{${pool},member="${uuid(4, 1)}"}`), 3)
  t.equal(sampleOf(after.lines, `octavia_member_status{${pool},member="${uuid(4, 2)}",state="UP"}`), '1')
  t.equal(sampleOf(after.lines, `octavia_pool_active_members{${pool}}`), '2')
  t.equal(sampleOf(after.lines, `octavia_listener_status{listener="${prometheus.id}",state="UP"}`), '1')
  t.match(sampleOf(after.lines, 'octavia_loadbalancer_cpu'), /^\d{1,3}\.\d$/)
  t.match(sampleOf(after.lines, 'octavia_loadbalancer_memory'), /^\d{1,3}\.\d$/)
  t.ok(after.lines.includes('# TYPE octavia_pool_member_aborts_total counter'))
})

t.test('promtool can read the metrics', async t => {
  const { stderr, status } = spawnSync('promtool', ['check', 'metrics'], {
    input: (await scrape()).body,
    encoding: 'utf8',
  })
  // HAProxy's, and so Octavia's, names of some metrics are against its conventions.
  const complaints = stderr.split('\n').filter(line => line !== '' && !/ should(n't| not)? /.test(line))
  t.same(complaints, [])
  t.ok(status === 0 || status === 3, 'readable')
})

t.test('Prometheus collects them', { timeout: 60_000 }, async t => {
  const directory = mkdtempSync(join(tmpdir(), 'krater-prometheus-'))
  t.teardown(() => rmSync(directory, { recursive: true, force: true }))
  writeFileSync(
    join(directory, 'prometheus.yml'),
    'scrape_configs: [{job_name: octavia, scrape_interval: 1s, static_configs: [{targets: ["127.0.0.1:8081"]}]}]',
  )
  const options = ['config.file=prometheus.yml', 'storage.tsdb.path=data', 'web.listen-address=127.0.0.1:9090']
  const child = spawn(
    'nsenter',
    ['-t', String(amphora.initPid), '-n', 'prometheus', ...options.map(option => `--${option}`)],
    { cwd: directory, stdio: 'ignore' },
  )
  const ended = new Promise(resolve => child.once('exit', resolve))
  t.teardown(async () => {
    child.kill('SIGKILL')
    await ended
  })
  const query = async (expression: string): Promise<unknown> => {
    const url = `http://127.0.0.1:9090/api/v1/query?query=${encodeURIComponent(expression)}`
    const { status, body } = await traffic.get(url).catch(() => ({ status: 0, body: '' }))
    return status === 200 ? (JSON.parse(body).data.result[0] ?? null) : null
  }
  const found = await until(() => query(`octavia_pool_active_members{pool="${uuid(3, 1)}:${web.id}"} and on() up == 1`))
  t.match(found, { metric: { job: 'octavia' }, value: [Number, '2'] })
})

t.test('nothing else is served, and only to allowed_cidrs', async t => {
  for (const path of ['', 'stats', 'metrics/x', 'metrics;csv']) {
    t.match(await scrape(`http://127.0.0.1:8081/${path}`), { status: 404 }, path)
  }
  t.equal((await scrape('http://127.0.0.1:8081/metrics?scope=server')).status, 200)
  t.match(await scrape('http://127.0.0.1:8082/metrics', '127.0.0.2'), { status: 200 })
  await t.rejects(scrape('http://127.0.0.1:8082/metrics'), /hang up|ECONNRESET/)
  const socket = '/run/krater/haproxy-metrics.sock'
  t.equal(amphora.inside('stat', '-c', '%a %U', socket), '600 root\n', 'HAProxy’s own metrics are for root')
})

t.test('many scrapes at once are answered one after another', async t => {
  const answers = await Promise.all(Array.from({ length: 12 }, () => scrape()))
  t.same(
    answers.map(({ status }) => status),
    answers.map(() => 200),
  )
})

t.test('without the agent there is traffic, but no metrics; both are back with it', async t => {
  amphora.freezeAgent()
  t.equal((await traffic.get(WEB)).status, 200)
  await t.rejects(scrape(), /timeout/)
  await amphora.killAgent()
  t.equal((await traffic.get(WEB)).status, 200)
  const { lines } = await until(() =>
    scrape().then(
      answer => (answer.status === 200 ? answer : null),
      () => null,
    ),
  )
  t.ok(lines.some(line => line.startsWith('octavia_listener_status{')))
})

t.test('the listener goes, and its proxies with it', async t => {
  const again = await amphora.connect()
  await again.apply(desire([web]))
  await t.rejects(scrape(), /ECONNREFUSED/)
  t.notMatch(amphora.inside('bash', '-c', 'cat /run/krater/config*/current/haproxy.cfg'), /prometheus-exporter/)
  again.end()
})
