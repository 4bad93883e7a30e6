import t, { type Test } from 'tap'
import { type CertificateState, planCertificate } from '../../../../controller/key-manager/renewals/plan.js'
import { chanceOf, retryPause } from '../../../../controller/key-manager/renewals/schedule.js'
import { randomOf } from '../../../support/inputs/random.js'

/**
 * Five years of a 47-day regime with 200 certificates, under a clock of the test: the decisions are those of the worker,
 * the CA and the database are played.
 */

const MINUTE = 60_000
const DAY = 24 * 60 * MINUTE
const YEARS = 5 * 365 * DAY
const CERTIFICATES = 200
const LIFE = 47 * DAY
/** The longest outage, and so the least that any rule must have left: 27 days between orders. */
const OUTAGE = 20 * DAY

type Outage = { from: number; to: number }

type Played = CertificateState & { orders: number; failures: number; expiredFor: number; notices: number }

/** Outages at random times, at least 30 days apart; every third takes the whole 20 days. */
function outagesOf(random: () => number): Outage[] {
  const outages: Outage[] = []
  for (let from = 30 * DAY * (1 + random()); from < YEARS; ) {
    const to = from + (outages.length % 3 === 0 ? OUTAGE : random() * OUTAGE)
    outages.push({ from, to })
    from = to + (30 + 60 * random()) * DAY
  }
  return outages
}

/** Plays the life of one certificate: what the worker does whenever it is due. */
function play(id: string, issuedAt: number, isAway: (time: number) => boolean): Played {
  const certificate: Played = {
    ...{ id, renew: true, asked: false, window: null, infoAt: null, retryAt: null, holdUntil: null, noticedDays: null },
    ...{ notBefore: issuedAt, notAfter: issuedAt + LIFE, orders: 0, failures: 0, expiredFor: 0, notices: 0 },
  }
  let attempts = 0
  for (let now = issuedAt; now < YEARS; ) {
    const plan = planCertificate(certificate, now)
    if (plan.notice !== null) {
      certificate.notices++
      certificate.noticedDays = plan.notice
    }
    if (plan.action === 'wait') {
      // The worker's clock has no more than milliseconds.
      now = Math.max(now + 1, plan.dueAt ?? YEARS)
    } else if (isAway(now)) {
      attempts++
      certificate.failures++
      certificate.retryAt = now + retryPause(attempts, certificate.notAfter - now, chanceOf(`${id} ${attempts}`))
    } else {
      attempts = 0
      certificate.orders++
      certificate.expiredFor += Math.max(0, now - certificate.notAfter)
      Object.assign(certificate, { notBefore: now, notAfter: now + LIFE, retryAt: null, noticedDays: null })
    }
  }
  certificate.expiredFor += Math.max(0, YEARS - certificate.notAfter)
  return certificate
}

function playAll(t: Test, name: string, outages: readonly Outage[], issuedAt: (at: number) => number): Played[] {
  const isAway = (time: number) => outages.some(({ from, to }) => time >= from && time < to)
  const played = Array.from({ length: CERTIFICATES }, (_, at) => play(`certificate ${at}`, issuedAt(at), isAway))
  const orders = played.reduce((sum, each) => sum + each.orders, 0)
  const failures = played.reduce((sum, each) => sum + each.failures, 0)
  const ideal = (CERTIFICATES * YEARS) / (LIFE - OUTAGE)
  const days = outages.reduce((sum, { from, to }) => sum + (to - from) / DAY, 0)
  t.comment(
    `${name}: ${orders} orders, ${((100 * orders) / ideal).toFixed(1)} % of the ideal ${Math.round(ideal)}; ` +
      `${outages.length} outages of ${days.toFixed(0)} days altogether, ${failures} failed attempts`,
  )
  t.equal(played.filter(({ expiredFor }) => expiredFor > 0).length, 0, 'no certificate is ever expired while served')
  t.ok(orders <= ideal * 1.08, `${orders} orders are near the ideal of ${Math.round(ideal)}`)
  t.ok(failures <= 90 * CERTIFICATES * outages.length, 'attempts during an outage are few')
  return played
}

t.test('five years without an outage, all certificates issued at once', async t => {
  const played = playAll(t, 'no outage', [], () => 0)
  t.ok(new Set(played.map(({ notBefore }) => notBefore)).size > 190, 'they do not stay together')
  t.equal(
    played.reduce((sum, { notices }) => sum + notices, 0),
    0,
    'nobody gets a notice while all is well',
  )
})

for (const seed of [1, 2, 3, 4, 5]) {
  t.test(`five years with outages of up to 20 days (${seed})`, async t => {
    const draw = randomOf(seed)
    const random = () => draw(1_000_000) / 1_000_000
    const outages = outagesOf(random)
    playAll(t, `seed ${seed}`, outages, () => random() * 20 * DAY)
  })
}

t.test('an outage of 20 days that begins at the worst moment for each certificate', async t => {
  for (let hour = 0; hour < 24 * 47; hour += 3) {
    const from = (hour / 24) * DAY
    const { expiredFor } = play(`certificate ${hour}`, 0, time => time >= from && time < from + OUTAGE)
    t.equal(expiredFor, 0, `from hour ${hour}`)
  }
})
