import { randomBytes } from 'node:crypto'
import fc from 'fast-check'
import forge from 'node-forge'
import t from 'tap'
import {
  changedListenerReferences,
  changedPoolReferences,
  newReferences,
} from '../../../controller/load-balancer/tree/certificate-references.js'
import { assemble } from '../../../x509/material/assemble.js'
import * as inspection from '../../../x509/material/inspect.js'
import type { Material } from '../../../x509/material/material.js'
import { derivePkcs12Key } from '../../../x509/material/pkcs12-derivation.js'
import { readReference } from '../../../x509/material/reference.js'
import { makeBundle, makePair, makeRevocationList, opensslBytes } from '../../support/inputs/certificates.js'
import { fileOf } from '../../support/inputs/x509.js'

const root = makePair({ subject: '/CN=root' })
const between = makePair({ subject: '/CN=between', issuer: root })
const rsa = makePair({ kind: 'rsa', issuer: between })
const ec = makePair({ issuer: between })
const other = makePair()
const chain = `${between.certificate}${root.certificate}`

const bytes = (text: string | Uint8Array) => Buffer.from(text)
const bundle = (content: Uint8Array): Material => ({ kind: 'bundle', bundle: content })
/** What is wrong with it. */
const inspect = (material: Material) => inspection.inspect(material).wrong
const container = (parts: { [K in 'certificate' | 'privateKey' | 'intermediates' | 'passphrase']?: string | Buffer }) =>
  inspect({
    kind: 'certificate',
    certificate: bytes(parts.certificate ?? ec.certificate),
    privateKey: bytes(parts.privateKey ?? ec.privateKey),
    intermediates: parts.intermediates === undefined ? null : bytes(parts.intermediates),
    passphrase: parts.passphrase === undefined ? null : bytes(parts.passphrase),
  })
const der = (pem: string) => Buffer.from(pem.replace(/-----[^-]+-----|\s/g, ''), 'base64')
/** The same content with 8388607 instead of 65536 iterations. */
const costlier = (content: Buffer) =>
  Buffer.from(content.toString('latin1').replaceAll('\x02\x03\x01\x00\x00', '\x02\x03\x7f\xff\xff'), 'latin1')
t.test('certificate containers are accepted if their parts fit, and refused with a reason otherwise', async t => {
  const encrypted = (cipher: string, ...more: string[]) =>
    opensslBytes('pkcs8', '-topk8', '-in', fileOf(ec.privateKey), '-passout', 'pass:päss', '-v2', cipher, ...more)
  const pkcs7 = opensslBytes('crl2pkcs7', '-nocrl', '-certfile', fileOf(chain)).toString()
  t.equal(container({}), null)
  t.equal(container({ certificate: rsa.certificate, privateKey: rsa.privateKey }), null, 'RSA')
  t.equal(container({ certificate: der(ec.certificate), privateKey: der(ec.privateKey) }), null, 'DER')
  t.equal(container({ certificate: `Subject: x\n${ec.certificate}${chain}` }), null, 'with its chain and a comment')
  t.equal(container({ intermediates: chain }), null, 'intermediates in PEM')
  t.equal(container({ intermediates: pkcs7 }), null, 'intermediates in PKCS#7')
  t.equal(container({ intermediates: der(pkcs7) }), null, 'intermediates in PKCS#7 as DER')
  t.equal(container({ privateKey: encrypted('aes-256-cbc'), passphrase: 'päss' }), null, 'a passphrase')
  t.equal(container({ privateKey: opensslBytes('ec', '-in', fileOf(ec.privateKey)) }), null, 'a key in traditional PEM')
  t.equal(container({ passphrase: 'for nothing' }), null, 'an unnecessary passphrase')

  t.match(container({ privateKey: other.privateKey }), /does not belong to the certificate/)
  t.match(container({ privateKey: rsa.privateKey }), /does not belong to the certificate/)
  t.match(container({ privateKey: ec.certificate }), /private key/)
  t.match(container({ privateKey: encrypted('aes-256-cbc') }), /no passphrase/)
  t.match(container({ privateKey: encrypted('aes-256-cbc'), passphrase: 'pass' }), /cannot be read/)
  t.match(container({ privateKey: encrypted('aes-256-cbc'), passphrase: Buffer.of(0xff) }), /not UTF-8/)
  const costly = costlier(der(encrypted('aes-256-cbc', '-iter', '65536').toString()))
  t.match(container({ privateKey: costly, passphrase: 'päss' }), /iterations/)
  t.match(container({ certificate: 'none' }), /not an X.509 certificate/)
  t.match(container({ certificate: ec.certificate.replace('MII', '!!!') }), /PEM block "CERTIFICATE" is damaged/)
  t.match(container({ certificate: ec.certificate.replace(/-----END.*/s, '') }), /is damaged/)
  t.match(container({ intermediates: '' }), /neither certificates in PEM nor PKCS#7/)
  t.match(container({ intermediates: ec.privateKey }), /neither certificates in PEM nor PKCS#7/)
  t.match(container({ intermediates: opensslBytes('crl2pkcs7', '-nocrl') }), /hold no certificate/)
  t.match(container({ certificate: makePair({ subject: '/O=x' }).certificate }), /belong/)
})

t.test('a certificate is assembled with the ones above it in order, without the root', async t => {
  const pkcs7 = opensslBytes('crl2pkcs7', '-nocrl', '-certfile', fileOf(`${root.certificate}${between.certificate}`))
  const parts = { kind: 'certificate' as const, privateKey: bytes(ec.privateKey), passphrase: null }
  const expected = [ec.certificate, between.certificate].map(pem => pem.trim()).join('\n')
  const forms: [string, Material][] = [
    [
      'intermediates in the wrong order',
      {
        ...parts,
        certificate: bytes(ec.certificate),
        intermediates: bytes(`${root.certificate}${other.certificate}${between.certificate}`),
      },
    ],
    ['PKCS#7', { ...parts, certificate: bytes(ec.certificate), intermediates: pkcs7 }],
    ['all in one part', { ...parts, certificate: bytes(`${ec.certificate}${chain}`), intermediates: null }],
    ['a bundle', bundle(makeBundle(ec, ['-certfile', fileOf(chain)]))],
  ]
  const digests = new Set<string>()
  for (const [name, material] of forms) {
    const { pem, digest, facts } = assemble(material)
    t.ok(pem.startsWith(`${expected}\n-----BEGIN PRIVATE KEY-----`), name)
    t.notMatch(pem, root.certificate.slice(100, 200), `${name}, without the root`)
    t.match(facts, { names: ['www.example.com'], issuer: 'CN=between', keyType: 'ec' })
    digests.add(digest)
  }
  t.equal(digests.size, 1, 'every form has the same digest')
  const alone = assemble({ ...parts, certificate: bytes(ec.certificate), intermediates: null })
  t.notOk(digests.has(alone.digest), 'a shorter chain has another digest')
})

t.test('CA certificates and CRLs are accepted if valid and signed, and refused with a reason otherwise', async t => {
  const authority = (text: string) => inspect({ kind: 'authority', authority: bytes(text) })
  t.equal(authority(root.certificate), null)
  t.equal(authority(chain), null, 'several certificates')
  for (const wrong of ['', 'x', root.privateKey, der(root.certificate).toString('latin1')]) {
    t.match(authority(wrong), /not an X.509 certificate in PEM/)
  }
  t.match(authority(`${root.certificate}${root.certificate.replace('MII', 'MIJ')}`), /not an X.509 certificate/)
  t.match(authority(root.certificate.repeat(65)), /more than 64 certificates/)

  const pem = makeRevocationList(root)
  const list = (text: string, by: string | null) =>
    inspect({ kind: 'revocation list', list: bytes(text), authority: by === null ? null : bytes(by) })
  t.equal(list(pem, root.certificate), null)
  t.equal(list(pem, chain), null, 'signed by one of several CAs')
  t.equal(list(pem, null), null, 'without a CA')
  t.equal(list(pem, 'no certificate'), null, 'an invalid CA is reported by its own check')
  t.match(list(pem, other.certificate), /is not signed by the CA/)
  t.match(list(pem, rsa.certificate), /is not signed by the CA/, 'a key of another type')
  t.match(list('', root.certificate), /not a revocation list in PEM/)
  t.match(list(root.certificate, root.certificate), /not a revocation list in PEM/)
  t.match(list(der(pem).toString('latin1'), root.certificate), /not a revocation list in PEM/)
  const named = (text: string) => text.replaceAll('CERTIFICATE', 'X509 CRL')
  t.match(
    list(named(opensslBytes('asn1parse', '-genstr', 'UTF8:x', '-noout', '-out', '-').toString('latin1')), null),
    /./,
  )
  const damaged = der(pem)
  damaged[damaged.length - 1] = (damaged.at(-1) ?? 0) ^ 1
  const damagedPem = `-----BEGIN X509 CRL-----\n${damaged.toString('base64')}\n-----END X509 CRL-----\n`
  t.match(list(damagedPem, root.certificate), /is not signed by the CA/)
  t.equal(assemble({ kind: 'revocation list', list: bytes(`x\n${pem}`), authority: null }).pem, pem)
})

t.test('arbitrary material is refused quickly and with a printable reason', async () => {
  const good = [makeBundle(ec), bytes(ec.certificate), bytes(ec.privateKey), bytes(makeRevocationList(root))]
  const changedBytes = fc
    .tuple(fc.constantFrom(...good), fc.array(fc.tuple(fc.nat(4000), fc.nat(255)), { maxLength: 4 }))
    .map(([from, changes]) => {
      const copy = Buffer.from(from)
      for (const [at, value] of changes) copy[at % copy.length] = value
      return copy
    })
  const anything = fc.oneof(fc.uint8Array({ maxLength: 300 }), changedBytes)
  const material: fc.Arbitrary<Material> = fc.oneof(
    anything.map(bundle),
    fc.record({
      kind: fc.constant('certificate' as const),
      certificate: anything,
      privateKey: anything,
      intermediates: fc.option(anything),
      passphrase: fc.option(anything),
    }),
    anything.map((content): Material => ({ kind: 'authority', authority: content })),
    fc.record({ kind: fc.constant('revocation list' as const), list: anything, authority: fc.option(anything) }),
  )
  fc.assert(
    fc.property(material, tried => {
      const wrong = inspect(tried)
      return wrong === null || /^[\x20-\x7e]{1,200}$/.test(wrong)
    }),
    { numRuns: 300, interruptAfterTimeLimit: 20_000, markInterruptAsFailure: false },
  )
})

t.test('the PKCS#12 key derivation gives node-forge’s results', async t => {
  const salt = randomBytes(20)
  for (const name of ['sha1', 'sha256', 'sha384', 'sha512'] as const) {
    const digest = forge.md[name].create()
    for (const passphrase of [null, '', 'pässphrase of some length']) {
      for (const [id, bytes] of [[1, 24] as const, [2, 8] as const, [3, 100] as const]) {
        const expected = forge.pbe.generatePkcs12Key(
          passphrase,
          forge.util.createBuffer(salt.toString('latin1')),
          ...([id, 3, bytes, digest] as const),
        )
        const own = derivePkcs12Key({ digest, passphrase, salt, id, iterations: 3, bytes })
        t.equal(own.toString('hex'), expected.toHex(), `${name}, ${passphrase}, ${bytes} bytes`)
      }
    }
  }
})

t.test('a reference is the URL of a secret or container and nothing else', async t => {
  const id = '8f7a6b5c-4d3e-2f1a-0b9c-8d7e6f5a4b3c'
  const cases: [string, ReturnType<typeof readReference>][] = [
    [`http://key.example:9311/v1/secrets/${id}`, { kind: 'secrets', id }],
    [`https://key.example/key-manager/v1/containers/${id}/`, { kind: 'containers', id }],
    [`http://169.254.169.254/secrets/${id.toUpperCase()}`, { kind: 'secrets', id }],
    [`http://key.example/v1/secrets/${id}/payload`, null],
    [`http://key.example/v1/secrets/${id}?x=1`, null],
    [`http://key.example/v1/secrets/${id}#x`, null],
    [`http://key.example/v1/orders/${id}`, null],
    ['http://key.example/v1/secrets/../containers', null],
    [`http://key.example/v1/secrets/${id}0`, null],
    [`secrets/${id}`, null],
    [id, null],
    ['', null],
  ]
  for (const [ref, target] of cases) t.same(readReference(ref), target, ref)
})

t.test('a request reports only the certificate references that it adds or changes', async t => {
  const none = {
    default_tls_container_ref: null,
    sni_container_refs: [],
    client_ca_tls_container_ref: null,
    client_crl_container_ref: null,
  }
  const full = {
    default_tls_container_ref: 'd',
    sni_container_refs: ['s', 'd'],
    client_ca_tls_container_ref: 'a',
    client_crl_container_ref: 'l',
  }
  const pool = { tls_container_ref: 'p', ca_tls_container_ref: 'pa', crl_container_ref: 'pl' }
  const noPool = { tls_container_ref: null, ca_tls_container_ref: null, crl_container_ref: null }
  t.equal(newReferences([none], [noPool]), null)
  t.same(newReferences([none, full], [pool]), {
    certificates: ['d', 's', 'd', 'p'],
    authorities: ['a', 'pa'],
    revocationLists: [
      { ref: 'l', authority: 'a' },
      { ref: 'pl', authority: 'pa' },
    ],
  })
  const desired = (certificates: string[], authorities: string[], pairs: [string, string][]) => ({
    certificates,
    authorities,
    revocationLists: pairs.map(([ref, authority]) => ({ ref, authority })),
  })
  t.equal(changedListenerReferences(full, {}), null)
  t.equal(
    changedListenerReferences(full, { ...full, sni_container_refs: ['d'] }),
    null,
    'unchanged references are not checked',
  )
  t.equal(changedListenerReferences(full, none), null, 'removed references are not checked')
  t.same(changedListenerReferences(full, { sni_container_refs: ['s', 'n'] }), desired(['n'], [], []))
  t.same(changedListenerReferences(none, { default_tls_container_ref: 'n' }), desired(['n'], [], []))
  t.same(changedListenerReferences(full, { client_ca_tls_container_ref: 'b' }), desired([], ['b'], [['l', 'b']]))
  t.same(changedListenerReferences(full, { client_crl_container_ref: 'm' }), desired([], [], [['m', 'a']]))
  t.same(changedPoolReferences(noPool, pool), desired(['p'], ['pa'], [['pl', 'pa']]))
  t.equal(changedPoolReferences(pool, { tls_container_ref: 'p' }), null)
})
