import t from 'tap'
import { mayContact } from '../../../amphora-agent/ocsp/addresses.js'
import { isServable, nextAt } from '../../../amphora-agent/ocsp/schedule.js'
import { isServed } from '../../../amphora-agent/protocol/tls.js'
import { planStaples, planTlsUpdate } from '../../../amphora-agent/tls/plan-update.js'

const MINUTE = 60_000
const NOW = 1_800_000_000_000

t.test('a responder is asked at once, then at half of the life of its response, hourly at the latest', async t => {
  t.equal(nextAt(null, null), 0)
  const pauseAt = (minutes: number) => (nextAt({ failures: 0, at: NOW }, NOW + minutes * MINUTE) - NOW) / MINUTE
  t.same([1, 10, 40, 119, 120, 10_000].map(pauseAt), [5, 5, 20, 59.5, 60, 60])
})

t.test('a responder that is away is asked with growing pauses', async t => {
  const pauses = [1, 2, 3, 8, 9, 1000].map(failures => (nextAt({ failures, at: NOW }, NOW + 600 * MINUTE) - NOW) / 1000)
  t.same(pauses, [10, 20, 40, 1280, 1800, 1800])
})

t.test('a response is shown until five minutes before its end, as HAProxy does', async t => {
  t.ok(isServable(NOW + 5 * MINUTE + 1, NOW))
  t.notOk(isServable(NOW + 5 * MINUTE, NOW))
})

t.test('addresses of this machine, its links and nobody are not contacted', async t => {
  const never = ['127.0.0.1', '127.9.9.9', '0.0.0.0', '169.254.169.254', '224.0.0.1', '255.255.255.255', '::1', '::']
  for (const address of [
    ...never,
    'fe80::1',
    'fe80::1%eth0',
    '::ffff:10.0.0.1',
    'ff02::1',
    '64:ff9b::a00:1',
    'a.test',
    '',
  ]) {
    t.notOk(mayContact(address), address)
  }
  for (const address of ['10.1.2.3', '198.51.100.7', '100.64.0.1', 'fd00::1', '2001:4860::1'])
    t.ok(mayContact(address), address)
})

t.test('certificates that clients see are stapled to, and no others', async t => {
  const id = '22222222-0000-4000-8000-000000000001'
  for (const path of [`tls/${id}.pem`, `tls/${id}.default.pem`]) t.ok(isServed(path), path)
  const others = [`tls/${id}.client.pem`, `tls/${id}.ca.pem`, `tls/${id}.list`, `tls/${'2'.repeat(64)}.challenge.pem`]
  for (const path of others) t.notOk(isServed(path), path)
})

const staple = (text: string) => Buffer.from(text)
const linesOf = (commands: readonly { text: string }[]) =>
  commands.map(({ text }) => text.split(' <<\n').join(' | ').trim())
const contentOf = (path: string) => `PEM of ${path}`

t.test('a first response is set with its certificate, a later one alone, and one that has ended leaves', async t => {
  const loaded = new Map([
    ['tls/same.pem', staple('same')],
    ['tls/renewed.pem', staple('old')],
    ['tls/ended.pem', staple('ended')],
  ])
  const desired = new Map([
    ['tls/same.pem', staple('same')],
    ['tls/renewed.pem', staple('new')],
    ['tls/first.pem', staple('first')],
  ])
  const base64 = (text: string) => staple(text).toString('base64')
  t.same(linesOf(planStaples(loaded, desired, contentOf)), [
    `set ssl ocsp-response | ${base64('new')}`,
    `set ssl cert tls/first.pem.ocsp | ${base64('first')}`,
    'commit ssl cert tls/first.pem',
    'set ssl cert tls/ended.pem | PEM of tls/ended.pem',
    'commit ssl cert tls/ended.pem',
  ])
  t.equal(planStaples(null, desired, contentOf).length, 6, 'all are set if nothing is known')
  t.same(planStaples(desired, desired, contentOf), [])
})

t.test('a changed certificate takes its own response along, or none', async t => {
  const state = (digest: string) => ({ files: { 'tls/a.pem': digest }, lists: {} })
  const plan = (found: Buffer | null) => {
    const commands = planTlsUpdate(state('old'), state('new'), contentOf, () => found)
    return typeof commands === 'string' ? commands : linesOf(commands)
  }
  t.same(plan(null), ['set ssl cert tls/a.pem | PEM of tls/a.pem', 'commit ssl cert tls/a.pem'])
  t.same(plan(staple('new')), [
    'set ssl cert tls/a.pem | PEM of tls/a.pem',
    `set ssl cert tls/a.pem.ocsp | ${staple('new').toString('base64')}`,
    'commit ssl cert tls/a.pem',
  ])
})
