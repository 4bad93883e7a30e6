import t from 'tap'
import { type CertificateState, planCertificate } from '../../../../controller/key-manager/renewals/plan.js'
import {
  chanceOf,
  leadOf,
  noticeDue,
  pauseAfterRollback,
  renewalTime,
  retryPause,
} from '../../../../controller/key-manager/renewals/schedule.js'

const MINUTE = 60_000
const HOUR = 60 * MINUTE
const DAY = 24 * HOUR

const lifeOf = (days: number) => ({ notBefore: 0, notAfter: days * DAY })

t.test('renewal begins at two thirds of the life, with 21 days left where the life allows it', async t => {
  for (const [days, left] of [
    [730, 730 / 3],
    [90, 30],
    [63, 21],
    [47, 21],
    [42, 21],
    [30, 15],
    [6, 3],
  ] as const) {
    t.equal(leadOf(lifeOf(days)), left * DAY, `${days} days`)
    const earliest = renewalTime(lifeOf(days), null, 1)
    t.equal(renewalTime(lifeOf(days), null, 0), (days - left) * DAY)
    t.equal(earliest, (days - left) * DAY - (days * DAY) / 50, 'jitter makes it earlier, by a fiftieth of the life')
  }
})

t.test('the CA chooses a window, but not one that leaves too little for an outage', async t => {
  const window = { start: 10 * DAY, end: 14 * DAY }
  t.equal(renewalTime(lifeOf(90), window, 0), 10 * DAY)
  t.equal(renewalTime(lifeOf(90), window, 0.5), 12 * DAY)
  t.equal(renewalTime(lifeOf(90), { start: 64 * DAY, end: 64 * DAY }, 0), 64 * DAY, 'later than two thirds')
  t.equal(renewalTime(lifeOf(90), { start: 80 * DAY, end: 82 * DAY }, 0), 69 * DAY, '21 days are left')
  t.equal(renewalTime(lifeOf(47), { start: 31 * DAY, end: 33 * DAY }, 0), 26 * DAY)
  t.equal(renewalTime(lifeOf(90), { start: -5 * DAY, end: -4 * DAY }, 0), 10 * MINUTE, 'at once, as after a revocation')
})

t.test('pauses after failures double up to six hours, and shrink with the time left', async t => {
  const pauses = [1, 2, 3, 9, 10, 50].map(attempts => retryPause(attempts, 300 * DAY, 0) / MINUTE)
  t.same(pauses, [1, 2, 4, 256, 360, 360])
  t.equal(retryPause(20, 10 * HOUR, 0), HOUR, 'a tenth of what is left')
  t.equal(retryPause(20, MINUTE, 0), MINUTE)
  t.equal(retryPause(20, -DAY, 0), HOUR, 'an expired certificate is tried every hour')
  t.equal(retryPause(3, 300 * DAY, 1), 3 * MINUTE)
})

t.test('notices come at 30, 14, 7, 3 and 1 days, and at the expiry', async t => {
  const life = lifeOf(365)
  const given: number[] = []
  let noticed: number | null = null
  for (let now = 0; now <= 366 * DAY; now += HOUR) {
    const { level, next } = noticeDue(life, false, noticed, now)
    if (level !== null) {
      given.push((life.notAfter - now) / DAY)
      noticed = level
    } else t.ok(next === null || next > now)
  }
  t.same(given, [30, 14, 7, 3, 1, 0])
  t.match(noticeDue(life, false, null, 363 * DAY), { level: 3, next: 364 * DAY }, 'after a pause, only the latest')
})

t.test('a certificate that is renewed gets notices only when its renewal is overdue', async t => {
  t.equal(noticeDue(lifeOf(47), true, null, 20 * DAY).level, null, '27 days left, not yet due for renewal')
  t.equal(noticeDue(lifeOf(47), true, null, 33 * DAY).level, 14)
  t.equal(noticeDue(lifeOf(90), true, null, 61 * DAY).level, null)
  t.equal(noticeDue(lifeOf(6), true, null, 3 * DAY).level, null)
  t.equal(noticeDue(lifeOf(6), true, null, 5 * DAY).level, 1)
  t.equal(noticeDue(lifeOf(6), false, null, 2 * DAY).level, null, 'a short life does not begin with a notice')
})

const STATE: CertificateState = {
  ...lifeOf(90),
  ...{
    id: 'c',
    renew: true,
    asked: false,
    window: null,
    infoAt: null,
    retryAt: null,
    holdUntil: null,
    noticedDays: null,
  },
}

t.test('a plan waits for the renewal, then renews', async t => {
  const at = renewalTime(STATE, null, chanceOf('c'))
  t.match(planCertificate(STATE, 0), { action: 'wait', renewAt: at, dueAt: at, notice: null })
  t.match(planCertificate(STATE, at), { action: 'renew' })
  t.match(planCertificate({ ...STATE, renew: false }, at), { action: 'wait', renewAt: null, dueAt: 60 * DAY })
  t.match(planCertificate({ ...STATE, renew: false, asked: true }, 5), { action: 'renew' })
})

t.test('pauses of ours and of the CA hold a renewal back, and the CA is asked for its window', async t => {
  t.match(planCertificate({ ...STATE, asked: true, retryAt: 9 * DAY }, 5), { action: 'wait', dueAt: 9 * DAY })
  t.match(planCertificate({ ...STATE, asked: true, retryAt: DAY, holdUntil: 3 * DAY }, 2 * DAY), { dueAt: 3 * DAY })
  t.match(planCertificate({ ...STATE, infoAt: DAY }, 5), { action: 'wait', dueAt: DAY })
  t.match(planCertificate({ ...STATE, infoAt: DAY }, DAY), { action: 'ask the CA' })
  t.match(planCertificate({ ...STATE, infoAt: DAY, renew: false }, DAY), { action: 'wait' })
})

t.test('a rollback lasts a day, or half of the time left', async t => {
  t.equal(pauseAfterRollback(40 * DAY), DAY)
  t.equal(pauseAfterRollback(6 * HOUR), 3 * HOUR)
  t.equal(pauseAfterRollback(-5), 0)
})

t.test('chances are spread evenly', async t => {
  const tenths = new Array<number>(10).fill(0)
  for (let each = 0; each < 10_000; each++) {
    const tenth = Math.floor(chanceOf(`10000000-0000-4000-8000-${String(each).padStart(12, '0')}`) * 10)
    tenths[tenth] = (tenths[tenth] ?? 0) + 1
  }
  t.ok(Math.min(...tenths) > 800, tenths.join(' '))
})
