import { randomBytes } from 'node:crypto'
import fc from 'fast-check'
import t from 'tap'
import {
  canonicalAddress,
  isForbiddenAddress,
  isOnNetwork,
} from '../../../controller/key-manager/acme-server/rules/addresses.js'
import { parseCertificateId, renewalWindow } from '../../../controller/key-manager/acme-server/rules/certificate-id.js'
import { challengesFor, reverseName } from '../../../controller/key-manager/acme-server/rules/identifiers.js'
import {
  type AuthorizationFacts,
  authorizationStatus,
  type ChallengeStatus,
  type OrderFacts,
  orderStatus,
} from '../../../controller/key-manager/acme-server/rules/state.js'
import { parseValidity } from '../../../controller/key-manager/acme-server/rules/validity.js'
import { timeOfNonce, writeNonce } from '../../../controller/key-manager/acme-server/signatures/nonces.js'
import { parseLocation } from '../../../controller/key-manager/acme-server/validation/http-01.js'
import { forbiddenAmong } from '../../../controller/key-manager/acme-server/validation/targets.js'

const HOUR = 3_600_000
const DAY = 24 * HOUR

t.test('nonces: only ours, within the hour, and each different', async t => {
  const key = randomBytes(32)
  const now = 1_800_000_000_000
  fc.assert(
    fc.property(
      fc.uint8Array({ minLength: 16, maxLength: 16 }),
      fc.integer({ min: 0, max: 2 * HOUR }),
      (random, age) => {
        const nonce = writeNonce(key, now - age, Buffer.from(random))
        return (timeOfNonce(key, nonce, now) !== null) === age < HOUR
      },
    ),
  )
  const nonce = writeNonce(key, now, randomBytes(16))
  t.equal(timeOfNonce(randomBytes(32), nonce, now), null, 'of another installation')
  t.equal(timeOfNonce(key, writeNonce(key, now + 5 * 60_000, randomBytes(16)), now), null, 'from the future')
  fc.assert(
    fc.property(fc.nat(nonce.length - 1), fc.constantFrom(...'AZaz09-_=+/ '), (at, character) => {
      const changed = nonce.slice(0, at) + character + nonce.slice(at + 1)
      return changed === nonce || timeOfNonce(key, changed, now) === null
    }),
  )
  fc.assert(fc.property(fc.string(), text => timeOfNonce(key, text, now) === null))
})

const NOW = new Date('2030-01-01T00:00:00Z')
const challengeStatus = fc.constantFrom<ChallengeStatus>('pending', 'processing', 'valid', 'invalid')
const time = fc.integer({ min: -5, max: 5 }).map(days => new Date(NOW.getTime() + days * DAY))
const authorization = fc.record<AuthorizationFacts>({
  challenges: fc.array(challengeStatus, { minLength: 1, maxLength: 3 }),
  deactivated: fc.boolean(),
  expiresAt: time,
})
const order = fc.record<OrderFacts>({
  authorizations: fc.array(authorization, { minLength: 1, maxLength: 4 }),
  expiresAt: time,
  issuance: fc.constantFrom<OrderFacts['issuance']>(null, 'PENDING', 'PROCESSING', 'ACTIVE', 'ERROR', 'gone'),
})

/** The transitions that RFC 8555, 7.1.6 draws, with those that lead over several. */
const ORDER_NEXT: Readonly<Record<string, readonly string[]>> = {
  pending: ['pending', 'ready', 'processing', 'valid', 'invalid'],
  ready: ['ready', 'processing', 'valid', 'invalid'],
  processing: ['processing', 'valid', 'invalid'],
  valid: ['valid'],
  invalid: ['invalid'],
}
const AUTHORIZATION_NEXT: Readonly<Record<string, readonly string[]>> = {
  pending: ['pending', 'valid', 'invalid', 'deactivated', 'expired'],
  valid: ['valid', 'deactivated', 'expired'],
  invalid: ['invalid', 'deactivated'],
  deactivated: ['deactivated'],
  expired: ['expired', 'deactivated'],
}

/** What may happen to an authorization: a challenge goes on as the queue lets it, or the client gives it up. */
function step(facts: AuthorizationFacts, at: number): AuthorizationFacts {
  const isPending = !facts.deactivated && !facts.challenges.some(each => each === 'valid' || each === 'invalid')
  if (at % 7 === 6) return { ...facts, deactivated: true }
  const index = at % facts.challenges.length
  const next: Partial<Record<ChallengeStatus, ChallengeStatus>> = {
    pending: 'processing',
    processing: at % 2 ? 'valid' : 'invalid',
  }
  const challenges = facts.challenges.map((each, position) =>
    position === index && isPending ? (next[each] ?? each) : each,
  )
  return { ...facts, challenges }
}

const ISSUANCE: Readonly<Record<string, readonly OrderFacts['issuance'][]>> = {
  PENDING: ['PENDING', 'PROCESSING', 'ERROR', 'gone'],
  PROCESSING: ['PENDING', 'PROCESSING', 'ACTIVE', 'ERROR', 'gone'],
  ACTIVE: ['ACTIVE'],
  ERROR: ['ERROR'],
  gone: ['gone'],
}

t.test('whatever happens and in whatever order, statuses go only where RFC 8555 draws them', async () => {
  const fresh = fc.array(fc.integer({ min: 1, max: 3 }), { minLength: 1, maxLength: 4 })
  const events = fc.array(fc.tuple(fc.nat(100), fc.nat(100), fc.integer({ min: 0, max: 2 })), { maxLength: 30 })
  fc.assert(
    fc.property(fresh, events, (sizes, happened) => {
      let now = NOW
      const expiresAt = new Date(NOW.getTime() + 7 * DAY)
      let facts: OrderFacts = {
        authorizations: sizes.map(size => ({ challenges: Array(size).fill('pending'), deactivated: false, expiresAt })),
        expiresAt,
        issuance: null,
      }
      for (const [which, at, days] of happened) {
        const before = orderStatus(facts, now)
        const proofs = facts.authorizations.map(each => authorizationStatus(each, now))
        now = new Date(now.getTime() + days * (DAY / 2))
        const chosen = which % facts.authorizations.length
        const authorizations = facts.authorizations.map((each, index) => (index === chosen ? step(each, at) : each))
        // Only a ready order is finalized.
        const possible =
          facts.issuance === null
            ? before === 'ready'
              ? [null, 'PENDING' as const]
              : [null]
            : ISSUANCE[facts.issuance]
        facts = { ...facts, authorizations, issuance: possible?.[at % possible.length] ?? null }
        if (!ORDER_NEXT[before]?.includes(orderStatus(facts, now))) return false
        const after = facts.authorizations.map(each => authorizationStatus(each, now))
        if (!after.every((status, index) => AUTHORIZATION_NEXT[proofs[index] ?? '']?.includes(status))) return false
      }
      return true
    }),
  )
})

t.test('an order is ready only if every name is proven and nothing has expired', async () => {
  fc.assert(
    fc.property(order, facts => {
      const status = orderStatus(facts, NOW)
      const isProven = facts.authorizations.every(
        ({ challenges, deactivated, expiresAt }) => challenges.includes('valid') && !deactivated && expiresAt > NOW,
      )
      if (facts.issuance !== null) return (status === 'valid') === (facts.issuance === 'ACTIVE') && status !== 'ready'
      return (status === 'ready') === (isProven && facts.expiresAt > NOW)
    }),
  )
})

t.test('no spelling of a local address passes', async t => {
  for (const text of [
    '127.0.0.1',
    '127.9.9.9',
    '169.254.169.254',
    '0.0.0.0',
    '255.255.255.255',
    '224.0.0.1',
    '::',
    '::1',
    'fe80::1',
    'ff02::1',
    '::ffff:127.0.0.1',
    '::ffff:7f00:1',
    '0:0:0:0:0:ffff:a9fe:a9fe',
    '64:ff9b::7f00:1',
    '2002:7f00:1::',
    '2001::1',
  ]) {
    const address = canonicalAddress(text)
    t.ok(address !== null && isForbiddenAddress(address), text)
    t.equal(forbiddenAmong(['10.0.0.1', text], []), text)
  }
  for (const text of [
    '0177.0.0.1',
    '0x7f.1',
    '127.1',
    '2130706433',
    'fe80::1%eth0',
    'localhost',
    '',
    '1.2.3',
    '1.2.3.4.5',
    '10.0.0.1/8',
  ]) {
    t.equal(canonicalAddress(text), null, text)
    t.equal(forbiddenAmong([text], []), text, 'what cannot be read is forbidden')
  }
  t.equal(forbiddenAmong(['10.0.0.1', '2001:db8::1'], []), null)
  t.equal(
    forbiddenAmong(['10.0.0.1', '::ffff:10.0.3.9'], ['10.0.3.0/24']),
    '::ffff:10.0.3.9',
    'the management network, mapped',
  )
  t.equal(forbiddenAmong(['10.0.0.1'], ['10.0.0.1']), '10.0.0.1', 'an address of this machine')
  fc.assert(
    fc.property(
      fc.ipV4(),
      text => isForbiddenAddress(canonicalAddress(`::ffff:${text}`) ?? '') === isForbiddenAddress(text),
    ),
  )
  t.ok(isOnNetwork('2001:db8::5', '2001:db8::/32'))
  t.notOk(isOnNetwork('10.0.0.1', '::/0'))
})

t.test('redirects stay with HTTP on its two ports', async t => {
  const from = { tls: false, host: 'a.example', port: 80, path: '/x/y' }
  t.same(parseLocation('/z?q=1', from), { ...from, path: '/z?q=1' })
  t.same(parseLocation('https://b.example/z', from), { tls: true, host: 'b.example', port: 443, path: '/z' })
  t.same(
    parseLocation('http://[::1]/', from),
    { tls: false, host: '::1', port: 80, path: '/' },
    'checked when it is resolved',
  )
  t.same(parseLocation('http://127.1/', from), { tls: false, host: '127.0.0.1', port: 80, path: '/' })
  for (const text of [
    null,
    '',
    'http://',
    'ftp://b.example/',
    'file:///etc/passwd',
    'http://b.example:22/',
    'http://u:p@b.example/',
    'http://b_c.example/',
    'gopher://x',
    'http://a b/',
  ]) {
    const found = parseLocation(text, from)
    t.equal(typeof found, text === '' ? 'object' : 'string', String(text))
  }
})

t.test('challenges by identifier', async t => {
  t.same(challengesFor({ type: 'dns', value: '*.a.example' }), ['dns-01'])
  t.same(challengesFor({ type: 'ip', value: '10.0.0.1' }), ['http-01', 'tls-alpn-01'])
  t.equal(reverseName('192.0.2.1'), '1.2.0.192.in-addr.arpa')
  t.equal(reverseName('2001:db8::1'), `1.${'0.'.repeat(23)}8.b.d.0.1.0.0.2.ip6.arpa`)
})

t.test('certificate ids: the example of RFC 9773, and serial numbers with their first bit set', async t => {
  t.same(parseCertificateId('aYhba4dGQEHhs3uEe6CuLN4ByNQ.AIdlQyE'), {
    keyIdentifier: '69885b6b87464041e1b37b847ba0ae2cde01c8d4',
    serial: '87654321'.padStart(32, '0'),
  })
  fc.assert(
    fc.property(fc.uint8Array({ minLength: 16, maxLength: 16 }), bytes => {
      const serial = Buffer.from(bytes)
      const integer = (serial[0] ?? 0) >= 0x80 ? Buffer.concat([Buffer.from([0]), serial]) : serial
      return parseCertificateId(`AAAA.${integer.toString('base64url')}`)?.serial === serial.toString('hex')
    }),
  )
  for (const text of ['', '.', 'A', 'A.', '.A', 'A.B.C', 'A=.AA', `AA.${'A'.repeat(41)}`])
    t.equal(parseCertificateId(text), null, text)
})

t.test('a renewal window lies within the life, or in the past', async () => {
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 800 }), days => {
      const notAfter = new Date(NOW.getTime() + days * DAY)
      const { start, end } = renewalWindow({ issuedAt: NOW, notAfter, revokedAt: null })
      return start > NOW && start < end && end < notAfter
    }),
  )
})

t.test('validities', async t => {
  t.same(parseValidity({}, NOW, 90), { notBefore: null, notAfter: null })
  t.same(parseValidity({ notAfter: '2030-01-02T00:00:00+02:00' }, NOW, 90), {
    notBefore: null,
    notAfter: new Date('2030-01-01T22:00:00Z'),
  })
  for (const notAfter of ['2030-01-01T00:30:00Z', '2031-01-01T00:00:00Z', '2030-02-01', 'x']) {
    t.throws(() => parseValidity({ notAfter }, NOW, 90), /must be/, notAfter)
  }
})
