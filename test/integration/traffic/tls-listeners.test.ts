import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t from 'tap'
import { inspect } from '../../../x509/material/inspect.js'
import { aPolicy, aRule } from '../../golden/l7-models.js'
import { aListener, aPool, uuid } from '../../golden/models.js'
import { aLocalMember, serveOptions } from '../../support/clients/options-traffic.js'
import {
  certificateOf,
  fetchByCurl,
  keepMaterial,
  root,
  shakeHands,
  valuesOf,
} from '../../support/clients/tls-traffic.js'
import { makeBundle, makePair, opensslBytes, type Pair, type PairOptions } from '../../support/inputs/certificates.js'
import { fileOf } from '../../support/inputs/x509.js'
import { checkWithHaproxy } from '../../support/services/haproxy.js'
import { startTellingMember } from '../../support/services/telling-member.js'

/** What listeners that terminate TLS negotiate with curl and openssl. */

const kept = keepMaterial()
const CA = ['-addext', 'basicConstraints=critical,CA:TRUE']
const between = makePair({ subject: '/CN=between', issuer: root, args: CA })
const locked = certificateOf(['locked.example.com'], { kind: 'rsa' })
const passphrase = 'päss'
const lockedKey = opensslBytes(
  ...['pkcs8', '-topk8', '-in', fileOf(locked.privateKey), '-passout', `pass:${passphrase}`, '-v2', 'aes-256-cbc'],
).toString()
const both = (kind: 'rsa' | 'ec') => kept.certificate(certificateOf(['both.example.com'], { kind }))

const main = kept.certificate(certificateOf(['www.example.com'], { issuer: between }), {
  intermediates: `${root.certificate}${between.certificate}`,
})
const rsa = kept.certificate(certificateOf(['www.example.com'], { kind: 'rsa' }))
const sniContainerRefs = [
  kept.certificate(certificateOf(['exact.example.com'])),
  kept.certificate(certificateOf(['*.wild.example.com'])),
  kept.certificate(certificateOf(['exact.wild.example.com'])),
  kept.certificate(certificateOf(['one.example.com', 'two.example.org', '*.three.example.net'])),
  both('rsa'),
  both('ec'),
  kept.bundle(makeBundle(certificateOf(['bundle.example.com']))),
  kept.certificate({ ...locked, privateKey: lockedKey }, { passphrase }),
]

const member = await startTellingMember(t, 'member', {
  headers: ({ line }) => (line.includes('/hsts') ? ['Strict-Transport-Security: max-age=1'] : []),
})
const tls = { protocol: 'TERMINATED_HTTPS', defaultTlsContainerRef: main, defaultPoolId: uuid(3, 1) } as const
const policies = [
  aPolicy(1, { rules: [aRule(11, { type: 'PATH', compareType: 'EQUAL_TO', value: '/rejected' })] }),
  aPolicy(2, {
    action: 'REDIRECT_TO_URL',
    redirectUrl: 'https://other.example.com/',
    rules: [aRule(21, { type: 'PATH', compareType: 'EQUAL_TO', value: '/moved' })],
  }),
]
const { port } = await serveOptions(t, {
  material: kept.material,
  pools: [aPool(1, { members: [aLocalMember(1, member.port)] })],
  listeners: [
    aListener(1, { ...tls, sniContainerRefs, alpnProtocols: ['h2', 'http/1.1', 'http/1.0'], l7Policies: policies }),
    aListener(2, { ...tls, tlsVersions: ['TLSv1.2'], alpnProtocols: ['h2'] }),
    aListener(3, { ...tls, tlsVersions: ['TLSv1.3'], alpnProtocols: ['http/1.1', 'h2'] }),
    aListener(4, { ...tls, defaultTlsContainerRef: rsa, tlsVersions: ['TLSv1', 'TLSv1.1', 'TLSv1.2'] }),
    aListener(5, { ...tls, tlsCiphers: 'TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256:ECDHE+AESGCM:!AES128' }),
    aListener(6, { ...tls, tlsCiphers: 'ECDHE-ECDSA-CHACHA20-POLY1305', tlsVersions: ['TLSv1.2', 'TLSv1.3'] }),
    aListener(7, { ...tls, hstsMaxAge: 63_072_000 }),
    aListener(8, { ...tls, hstsMaxAge: 0, hstsIncludeSubdomains: true, hstsPreload: true, l7Policies: policies }),
    aListener(9, { ...tls, hstsMaxAge: 5, hstsIncludeSubdomains: true, defaultPoolId: null }),
    aListener(10, { ...tls, tlsCiphers: 'HIGH:@SECLEVEL=5' }),
    aListener(11, { protocol: 'TERMINATED_HTTPS', sniContainerRefs: [rsa, main], defaultPoolId: uuid(3, 1) }),
  ],
})
const [TLS12, TLS13] = [['-tls1_2'], ['-tls1_3']]

t.test('a name gets its certificate, and unknown ones and none get the default, with its intermediates', async t => {
  const expected: [string | null, string[]][] = [
    ['www.example.com', ['www.example.com', 'between']],
    ['unknown.example.com', ['www.example.com', 'between']],
    [null, ['www.example.com', 'between']],
    ['exact.example.com', ['exact.example.com']],
    ['EXACT.example.com', ['exact.example.com']],
    ['any.wild.example.com', ['*.wild.example.com']],
    ['exact.wild.example.com', ['exact.wild.example.com']],
    ['a.b.wild.example.com', ['www.example.com', 'between']],
    ['wild.example.com', ['www.example.com', 'between']],
    ['one.example.com', ['one.example.com']],
    ['two.example.org', ['one.example.com']],
    ['x.three.example.net', ['one.example.com']],
    ['bundle.example.com', ['bundle.example.com']],
    ['locked.example.com', ['locked.example.com']],
  ]
  for (const [name, sent] of expected) t.same((await shakeHands(port(1), name)).sent, sent, String(name))
  t.match(await fetchByCurl(port(1), 'www.example.com'), { status: 200, error: '' }, 'curl knows the root alone')
  t.match(await fetchByCurl(port(1), 'unknown.example.com'), { status: 0, error: /certificate|subject name/ })
  t.same((await shakeHands(port(11), null)).signature, 'rsa-pss', 'without a default, the first one')
})

t.test('one name has an RSA and an EC certificate, and each client gets the one it can use', async t => {
  const clients: [string[], string][] = [
    [[...TLS12, '-cipher', 'ECDHE-RSA-AES128-GCM-SHA256'], 'rsa'],
    [[...TLS12, '-cipher', 'ECDHE-ECDSA-AES128-GCM-SHA256'], 'ecdsa'],
    [[...TLS12, '-sigalgs', 'RSA+SHA256'], 'rsa'],
    [[...TLS13, '-sigalgs', 'RSA-PSS+SHA256:RSA+SHA256'], 'rsa'],
    [[...TLS13, '-sigalgs', 'ECDSA+SHA256'], 'ecdsa'],
    [[], 'ecdsa'],
  ]
  for (const [args, kind] of clients) {
    const { version, signature, sent } = await shakeHands(port(1), 'both.example.com', args)
    t.ok(version !== null && signature.startsWith(kind), `${args.join(' ')}: ${signature}`)
    t.same(sent, ['both.example.com'])
  }
})

t.test('tls_versions are the versions that are negotiated', async t => {
  const offers = { '-tls1': 'TLSv1', '-tls1_1': 'TLSv1.1', '-tls1_2': 'TLSv1.2', '-tls1_3': 'TLSv1.3' }
  const expected: [listener: number, versions: string[]][] = [
    [1, ['TLSv1.2', 'TLSv1.3']],
    [2, ['TLSv1.2']],
    [3, ['TLSv1.3']],
    [4, ['TLSv1', 'TLSv1.1', 'TLSv1.2']],
  ]
  for (const [listener, versions] of expected) {
    const taken: string[] = []
    for (const [offer, version] of Object.entries(offers)) {
      const args = [offer, '-cipher', 'ALL:@SECLEVEL=0']
      const { output } = await shakeHands(port(listener), null, args)
      if (new RegExp(`^ +Protocol *: ${version}$|^New, TLSv1.3`, 'm').test(output) && !/alert/.test(output)) {
        taken.push(version)
      }
    }
    t.same(taken, versions, `listener ${listener}`)
  }
})

t.test('tls_ciphers are the ciphers and suites that are negotiated', async t => {
  const negotiate = async (listener: number, args: string[]) => {
    const { version, cipher } = await shakeHands(port(listener), null, args)
    return version === null ? null : cipher
  }
  const suite = (name: string) => [...TLS13, '-ciphersuites', name]
  const old = (name: string) => [...TLS12, '-cipher', name]
  t.equal(await negotiate(5, suite('TLS_AES_128_GCM_SHA256')), null)
  t.equal(await negotiate(5, suite('TLS_CHACHA20_POLY1305_SHA256')), 'TLS_CHACHA20_POLY1305_SHA256')
  t.equal(await negotiate(5, old('ECDHE-ECDSA-AES128-GCM-SHA256')), null)
  t.equal(await negotiate(5, old('ECDHE-ECDSA-AES256-GCM-SHA384')), 'ECDHE-ECDSA-AES256-GCM-SHA384')
  t.equal(await negotiate(6, old('ECDHE-ECDSA-AES256-GCM-SHA384')), null)
  t.equal(await negotiate(6, old('ALL')), 'ECDHE-ECDSA-CHACHA20-POLY1305')
  t.equal(await negotiate(6, suite('TLS_AES_128_GCM_SHA256')), 'TLS_AES_128_GCM_SHA256', 'no suite is chosen')
  t.equal(await negotiate(1, old('ECDHE-ECDSA-AES256-SHA384')), null, 'not in the default')
  t.equal(await negotiate(10, []), null, 'a level that P-256 does not reach harms this listener alone')
})

t.test('alpn_protocols are what is offered, in their order', async t => {
  const expected: [listener: number, alpn: (string | null)[]][] = [
    [1, ['h2', 'http/1.1', 'http/1.0', 'h2']],
    [2, ['h2', null, null, 'h2']],
    [3, ['h2', 'http/1.1', null, 'http/1.1']],
    [4, [null, null, null, null]],
  ]
  for (const [listener, alpn] of expected) {
    const chosen: (string | null)[] = []
    for (const offer of ['h2', 'http/1.1', 'http/1.0', 'h2,http/1.1']) {
      chosen.push((await shakeHands(port(listener), null, ['-alpn', offer])).alpn)
    }
    t.same(chosen, alpn, `listener ${listener}`)
  }
  const versions = async (listener: number, args: string[] = []) =>
    (await fetchByCurl(port(listener), 'www.example.com', '/', ['--insecure', ...args])).version
  t.equal(await versions(1), '2')
  t.equal(await versions(1, ['--http1.1']), '1.1')
  t.equal(await versions(4, ['--tls-max', '1.2']), '1.1')
})

t.test('HSTS is on every response once, also on those of HAProxy itself', async t => {
  const hsts = async (listener: number, path = '/') => {
    const fetched = await fetchByCurl(port(listener), 'www.example.com', path)
    return [fetched.status, ...valuesOf(fetched, 'strict-transport-security')]
  }
  t.same(await hsts(7), [200, 'max-age=63072000'])
  t.same(await hsts(7, '/hsts'), [200, 'max-age=63072000'], 'instead of the member’s')
  const all = 'max-age=0; includeSubDomains; preload'
  t.same(await hsts(8), [200, all])
  t.same(await hsts(8, '/rejected'), [403, all])
  t.same(await hsts(8, '/moved'), [302, all])
  t.same(await hsts(9), [503, 'max-age=5; includeSubDomains'])
  t.same(await hsts(1), [200])
  t.same(await hsts(1, '/hsts'), [200, 'max-age=1'], 'a member’s own')
})

t.test('material is refused if HAProxy would refuse its whole configuration', async t => {
  const directory = mkdtempSync(join(tmpdir(), 'krater-weak-'))
  t.teardown(() => rmSync(directory, { recursive: true }))
  const short = ['-algorithm', 'RSA', '-pkeyopt', 'rsa_keygen_bits:1024']
  const issuing = (subject: string, options: PairOptions = {}) =>
    makePair({ subject, issuer: root, ...options, args: [...CA, ...(options.args ?? [])] })
  const weakCa = issuing('/CN=weak', { key: short })
  const oddCa = issuing('/CN=odd', { key: ['-algorithm', 'EC', '-pkeyopt', 'ec_paramgen_curve:prime192v1'] })
  const oldCa = issuing('/CN=old', { args: ['-sha1'] })
  const rsaCa = issuing('/CN=rsa', { kind: 'rsa' })
  const pss = ['-sigopt', 'rsa_padding_mode:pss']
  const bySha1 = /^the signature of the certificate is over MD5, SHA-1 or a weaker digest$/
  const cases: [string, RegExp | null, Pair, Pair?][] = [
    ['RSA-1024', /^an RSA key must have 2048 to 8192 bits/, makePair({ key: short })],
    ['SHA-1', bySha1, makePair({ issuer: root, args: ['-sha1'] })],
    ['SHA-1 by RSA', bySha1, makePair({ issuer: rsaCa, args: ['-sha1'] })],
    ['SHA-1 by RSA-PSS', bySha1, makePair({ issuer: rsaCa, args: ['-sha1', ...pss] })],
    ['SHA-256 by RSA-PSS', null, makePair({ issuer: rsaCa, args: ['-sha256', ...pss] })],
    ['SHA-1 by itself', null, makePair({ args: ['-sha1'] })],
    ['above RSA-1024', /^the key of an intermediate certificate has 1024 bits/, makePair({ issuer: weakCa }), weakCa],
    ['above P-192', /^the key of an intermediate certificate is not on/, makePair({ issuer: oddCa }), oddCa],
    ['above SHA-1', /^the signature of an intermediate certificate/, makePair({ issuer: oldCa }), oldCa],
    ['above a good one', null, makePair({ issuer: between }), between],
  ]
  for (const [name, expected, { certificate, privateKey }, above] of cases) {
    const chain = `${certificate}${above?.certificate ?? ''}`
    const parts = { certificate: Buffer.from(chain), privateKey: Buffer.from(privateKey) }
    const { wrong } = inspect({ kind: 'certificate', ...parts, intermediates: null, passphrase: null })
    if (expected === null) t.equal(wrong, null, name)
    else t.match(wrong, expected, name)
    const bind = `bind abns@weak ssl crt ${fileOf(`${chain}${privateKey}`)}`
    const text = `global\n  default-path config\nfrontend f\n  mode http\n  timeout client 1s\n  ${bind}\n`
    const { code } = await checkWithHaproxy(directory, text)
    t.equal(code === 0, expected === null, `${name}: HAProxy`)
  }
})
