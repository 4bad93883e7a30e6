import { execFile } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { promisify } from 'node:util'
import t from 'tap'
import { METRICS_PORT } from '../../amphora-agent/protocol/paths.js'
import { said } from '../support/clients/said.js'
import { processesInside } from '../support/faults/crash-amphora.js'
import { openDatabases } from '../support/faults/crash-inventory.js'
import { makeBundle, makePair } from '../support/inputs/certificates.js'
import { authority, certificateFor, createHttpsSite } from '../support/worlds/https-site.js'
import { startKrater, until } from '../support/worlds/krater.js'

/** Somebody tampers with what one amphora of a pair serves, past Krater. Each time there is exactly one alarm. */

/** Three (without a name, and two names) with each amphora, and with the VIP. */
const HANDSHAKES = 9
const LIMIT_MS = 10_000
const NAME = 'www.example.com'
const OTHER = 'other.example.com'

const krater = await startKrater(t, {
  KRATER_HOUSEKEEPING_CERTIFICATE_PROOF_INTERVAL: '5',
  KRATER_LOAD_BALANCER_TOPOLOGY: 'ACTIVE_STANDBY',
})
const { loadBalancer: database } = openDatabases(t, krater)

const CA = ['-addext', 'basicConstraints=critical,CA:TRUE']
const intermediate = makePair({ subject: '/CN=intermediate', issuer: authority, args: CA })
const impostor = makePair({ subject: '/CN=intermediate', issuer: authority, args: CA })
const leaf = certificateFor(NAME, { issuer: intermediate })
const former = certificateFor(NAME, { issuer: intermediate })
const other = certificateFor(OTHER)

const site = await createHttpsSite(t, krater, former)
const bundleOf = (pair: typeof leaf, chain: string) =>
  makeBundle({ ...pair, certificate: `${pair.certificate}${chain}` })
const scraped = { loadbalancer_id: site.id, protocol: 'PROMETHEUS', protocol_port: 8088 }
await site.send('POST', 'listeners', { listener: scraped })
const otherRef = await site.store(other)
await site.update({
  default_tls_container_ref: await site.storeBytes(bundleOf(leaf, intermediate.certificate)),
  sni_container_refs: [otherRef],
})

type Event = {
  kind: string
  created_at: string
  certificate: { notice: string; text: string; amphora_id: string } | null
}
const alarms = async () =>
  (await site.send<{ events: Event[] }>('GET', `loadbalancers/${site.id}/events`)).events.filter(
    ({ kind, certificate }) => kind === 'certificate' && certificate?.notice === 'mismatch',
  )
const isProvenSince = async (time: Date) => {
  const rows: { checked_at: Date; problem: string | null }[] = await database('certificate_proof')
    .where({ load_balancer_id: site.id })
    .select('checked_at', 'problem')
  return rows.length >= HANDSHAKES && rows.every(({ checked_at, problem }) => checked_at > time && problem === null)
}
const changed = new Date()
await until('both amphorae are seen to serve both names', () => isProvenSince(changed))

const [amphora = ''] = await database('amphora').where({ load_balancer_id: site.id }).orderBy('id').pluck('id')
const inside = await processesInside(`krater-${krater.instance()}-${amphora}`)
const first = inside.find(({ isFirst }) => isFirst)?.pid
const root = `/proc/${first}/root/run/krater`
const METRICS = ['-t', String(first), '-n', 'curl', '-sS', '-m', '5', `http://127.0.0.1:${METRICS_PORT}/metrics`]
const metrics = async () => (await promisify(execFile)('nsenter', METRICS)).stdout
const say = (command: string) => said({ path: `${root}/haproxy.sock` }, `${command}\n`, 10_000)
const file = `tls/${site.listener}.default.pem`
const list = `tls/${site.listener}.list`
const put = async (pem: string) => {
  await say(`set ssl cert ${file} <<\n${pem.trim()}\n`)
  t.match(await say(`commit ssl cert ${file}`), /Success/)
}
const pemOf = (pair: typeof leaf, chain: string) => `${pair.certificate}${pair.privateKey}${chain}`

/** Five ways; the last one shows the agent what it looks for, so that it says that all is well. */
const SABOTAGES: Record<string, () => Promise<unknown>> = {
  'a wrong certificate in HAProxy': () => put(pemOf(makePair({ subject: '/CN=wrong' }), '')),
  'an old file put back': async () => writeFileSync(`${root}/config/current/${file}`, pemOf(former, '')),
  'a name missing from the list': () =>
    say(`del ssl crt-list ${list} tls/${otherRef.slice(-36)}.pem`).then(answer => t.match(answer, /deleted/)),
  'a chain cut short': () => put(pemOf(leaf, '')),
  'an agent that says that all is well': () => put(pemOf(leaf, impostor.certificate)),
}

t.same(await alarms(), [], 'no alarm so far')
let expected = 0
for (const [what, sabotage] of Object.entries(SABOTAGES)) {
  await t.test(what, async t => {
    await sabotage()
    const at = Date.now()
    expected += 1
    await until(`an alarm about ${what}`, async () => (await alarms()).length >= expected)
    const took = Date.now() - at
    t.ok(took < LIMIT_MS, `${took} ms`)
    t.equal((await alarms())[0]?.certificate?.amphora_id, amphora)
    if (expected === 5) {
      await until('a metric counts it', async () => /^krater_certificate_mismatches [1-9]/m.test(await metrics()))
      await until('the fault names it', async () => {
        const rows = await database('load_balancer').where({ id: site.id }).pluck('fault')
        return /certificate-mismatch/.test(JSON.stringify(rows))
      })
      await put(pemOf(leaf, intermediate.certificate))
    }
    const mended = new Date()
    await until('both amphorae are seen to serve what they should', () => isProvenSince(mended))
    t.equal((await alarms()).length, expected, 'one alarm')
  })
}

t.test('afterwards all is well, and the log has as many alarms', async t => {
  await until('no metric counts a mismatch', async () => /^krater_certificate_mismatches 0$/m.test(await metrics()))
  t.match(await metrics(), /^krater_certificates_taken_back_total [1-9]/m)
  await until('the fault is gone', async () => {
    const [fault] = await database('load_balancer').where({ id: site.id }).pluck('fault')
    return fault === null
  })
  const log = ['worker', 'health-manager'].map(name => readFileSync(`${krater.directory}/log/${name}.log`, 'utf8'))
  t.ok((log.join('').match(/another certificate than it should/g) ?? []).length >= 5)
})
