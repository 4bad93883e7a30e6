import { generateKeyPairSync } from 'node:crypto'
import t from 'tap'
import { usableTypes } from '../../../../controller/key-manager/certificate-authorities/acme/challenges.js'
import {
  oneLine,
  problemIn,
  retryAfterOf,
} from '../../../../controller/key-manager/certificate-authorities/acme/client/problem.js'
import {
  acmeAuthorization,
  identifiersOf,
} from '../../../../controller/key-manager/certificate-authorities/acme/order.js'
import { certificateIdOf } from '../../../../controller/key-manager/certificate-authorities/acme/renewal-info.js'
import { createShares } from '../../../../controller/key-manager/certificate-authorities/acme/shares.js'
import { writeCertificate } from '../../../../x509/certificate.js'
import { parseDistinguishedName } from '../../../../x509/encoding/distinguished-name.js'
import { encodeName } from '../../../../x509/encoding/name-encoding.js'
import { encodePem } from '../../../../x509/encoding/pem.js'
import { authorityKeyIdentifier } from '../../../../x509/extensions.js'
import { publicKeyOf } from '../../../../x509/public-key.js'

const ALL = ['http-01', 'tls-alpn-01', 'dns-01'] as const

t.test('the challenges that may prove a name', async t => {
  const rules = { preferred: ALL, isWildcard: false, isAddress: false, dnsAllowed: true }
  t.same(usableTypes(ALL, rules), ALL)
  t.same(usableTypes(['dns-01', 'http-01', 'other-01'], rules), ['http-01', 'dns-01'], 'in our order')
  t.same(usableTypes(ALL, { ...rules, preferred: ['dns-01', 'http-01'] }), ['dns-01', 'http-01'])
  t.same(usableTypes(ALL, { ...rules, isWildcard: true }), ['dns-01'])
  t.same(usableTypes(ALL, { ...rules, isAddress: true }), ['http-01', 'tls-alpn-01'])
  t.same(usableTypes(ALL, { ...rules, dnsAllowed: false }), ['http-01', 'tls-alpn-01'])
  t.same(usableTypes(ALL, { ...rules, isWildcard: true, dnsAllowed: false }), [])
})

t.test('Retry-After is a number of seconds or a date, at most a week', async t => {
  const now = Date.UTC(2026, 10, 25, 12)
  const read = (value: string | null) => retryAfterOf({ header: () => value }, now)
  t.equal(read(null), null)
  t.equal(read('120'), 120)
  t.equal(read('99999999'), 604_800)
  t.equal(read('Wed, 25 Nov 2026 12:01:00 GMT'), 60)
  t.equal(read('Wed, 25 Nov 2026 11:00:00 GMT'), 0)
  t.equal(read('soon'), null)
})

t.test('what a CA writes becomes one line of bounded length', async t => {
  t.equal(oneLine(' a\nb\u0000\u202ec  d '), 'a b c d')
  t.equal(oneLine('x'.repeat(1000)).length, 200)
  t.match(problemIn({ type: 'urn:ietf:params:acme:error:dns', detail: 'no\nrecord' }, 400, null), {
    ...{ kind: 'dns', message: 'no record', status: 400 },
  })
  t.match(problemIn('<html>', 502, 7), { kind: '', message: 'The CA answered with status 502.', retryAfter: 7 })
})

t.test('the names of a request, each once and in lower case', async t => {
  const names = (...alternativeNames: { kind: 'dns' | 'ip' | 'email'; value: string }[]) =>
    identifiersOf({ alternativeNames })
  t.same(
    names({ kind: 'dns', value: 'A.example' }, { kind: 'dns', value: 'a.example' }, { kind: 'ip', value: '192.0.2.1' }),
    [
      { type: 'dns', value: 'a.example' },
      { type: 'ip', value: '192.0.2.1' },
    ],
  )
  t.equal(names({ kind: 'email', value: 'a@example.com' }), null)
  t.equal(names(), null)
})

t.test('a CA cannot bring commands or paths into hooks and load balancers', async t => {
  const authorization = (value: string, token: string) =>
    acmeAuthorization.safeParse({
      status: 'pending',
      identifier: { type: 'dns', value },
      challenges: [{ type: 'http-01', url: 'https://ca.test/1', status: 'pending', token }],
    }).success
  t.ok(authorization('www.example.com', 'abc_-DEF'))
  t.notOk(authorization('$(reboot).example', 'abc'))
  for (const token of ['../x', 'a b', 'a\nb', '', 'ä']) t.notOk(authorization('www.example.com', token), token)
})

t.test('the name of a certificate in RFC 9773, 4.1', async t => {
  const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'prime256v1' })
  const subject = encodeName(parseDistinguishedName('CN=x'))
  const validity = { notBefore: new Date(0), notAfter: new Date(86_400_000) }
  const write = (extensions: Parameters<typeof writeCertificate>[0]['extensions']) => {
    const content = { ...validity, subject, issuer: subject, publicKey: publicKeyOf(privateKey), extensions }
    return encodePem(
      'CERTIFICATE',
      writeCertificate({ ...content, serial: Buffer.from('87654321', 'hex') }, privateKey),
    )
  }
  const issuer = Buffer.from('69885B6B87464041E1B37B847BA0AE2CDE01C8D4', 'hex')
  t.equal(certificateIdOf(write([authorityKeyIdentifier(issuer)])), 'aYhba4dGQEHhs3uEe6CuLN4ByNQ.AIdlQyE')
  t.equal(certificateIdOf(write([])), null)
})

t.test('turns at a CA are shared by project', async t => {
  const shares = createShares(3, 2)
  const [first, second] = [shares.take('a'), shares.take('a')]
  t.ok(first && second)
  t.equal(shares.take('a'), null)
  t.ok(shares.take('b'))
  t.equal(shares.take('c'), null, 'none is left')
  first?.()
  t.ok(shares.take('c'))
  second?.()
  t.ok(shares.take('a'))
})
