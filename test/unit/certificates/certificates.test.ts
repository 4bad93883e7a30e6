import { randomBytes } from 'node:crypto'
import { readdirSync, writeFileSync } from 'node:fs'
import { getPriority } from 'node:os'
import { join } from 'node:path'
import fc from 'fast-check'
import forge from 'node-forge'
import t from 'tap'
import { readReference } from '../../../controller/certificates/barbican/reference.js'
import { inspect } from '../../../controller/certificates/inspection/inspect.js'
import { createInspector } from '../../../controller/certificates/inspection/inspector.js'
import type { Material } from '../../../controller/certificates/inspection/material.js'
import { derivePkcs12Key } from '../../../controller/certificates/inspection/pkcs12-derivation.js'
import {
  changedListenerReferences,
  changedPoolReferences,
  newReferences,
} from '../../../controller/load-balancer/tree/certificate-references.js'
import {
  buildInspectorThread,
  makeBundle,
  makePair,
  makeRevocationList,
  opensslBytes,
} from '../../support/inputs/certificates.js'
import { fileOf } from '../../support/inputs/x509.js'

const root = makePair({ subject: '/CN=root' })
const between = makePair({ subject: '/CN=between', issuer: root })
const rsa = makePair({ kind: 'rsa', issuer: between })
const ec = makePair({ issuer: between })
const other = makePair()
const chain = `${between.certificate}${root.certificate}`

const bytes = (text: string | Uint8Array) => Buffer.from(text)
const bundle = (content: Uint8Array): Material => ({ kind: 'bundle', bundle: content })
const container = (parts: { [K in 'certificate' | 'privateKey' | 'intermediates' | 'passphrase']?: string | Buffer }) =>
  inspect({
    kind: 'certificate',
    certificate: bytes(parts.certificate ?? ec.certificate),
    privateKey: bytes(parts.privateKey ?? ec.privateKey),
    intermediates: parts.intermediates === undefined ? null : bytes(parts.intermediates),
    passphrase: parts.passphrase === undefined ? null : bytes(parts.passphrase),
  })
const der = (pem: string) => Buffer.from(pem.replace(/-----[^-]+-----|\s/g, ''), 'base64')
/** The same with 8388607 iterations where there were 65536. */
const costlier = (content: Buffer) =>
  Buffer.from(content.toString('latin1').replaceAll('\x02\x03\x01\x00\x00', '\x02\x03\x7f\xff\xff'), 'latin1')
const UNREADABLE = /no PKCS#12 bundle that can be read without a passphrase/

t.test('PKCS#12 bundles that are good', async t => {
  const withChain = ['-certfile', fileOf(chain)]
  for (const [name, pair] of Object.entries({ rsa, ec })) {
    t.equal(inspect(bundle(makeBundle(pair))), null, name)
    t.equal(inspect(bundle(makeBundle(pair, withChain))), null, `${name} with its chain`)
    t.equal(inspect(bundle(makeBundle(pair, ['-legacy']))), null, `${name} in the older way`)
    t.equal(inspect(bundle(makeBundle(pair, ['-nomac', '-keypbe', 'NONE', '-certpbe', 'NONE']))), null, `${name}, open`)
    t.equal(
      inspect(bundle(makeBundle(pair, ['-macalg', 'sha512', '-keypbe', 'AES-128-CBC']))),
      null,
      `${name}, SHA-512`,
    )
  }
  t.equal(inspect(bundle(makeBundle(rsa, ['-iter', '600000', '-nomac']))), null, 'as many iterations as NSS takes')
  const key = forge.pki.privateKeyFromPem(rsa.privateKey)
  const certificate = forge.pki.certificateFromPem(rsa.certificate)
  const none = forge.asn1.toDer(forge.pkcs12.toPkcs12Asn1(key, [certificate], null)).getBytes()
  t.equal(inspect(bundle(Buffer.from(none, 'latin1'))), null, 'no passphrase instead of an empty one')
  const onlyDns = makePair({ subject: '/O=Example', args: ['-addext', 'subjectAltName=DNS:www.example.com'] })
  t.equal(inspect(bundle(makeBundle(onlyDns))), null, 'a DNS name is enough')
})

t.test('PKCS#12 bundles that are not', async t => {
  const good = makeBundle(ec, ['-certfile', fileOf(chain)])
  t.match(inspect(bundle(makeBundle(ec, [], 'secret'))), UNREADABLE, 'one with a passphrase')
  t.match(inspect(bundle(Buffer.alloc(0))), UNREADABLE, 'nothing')
  t.match(inspect(bundle(bytes(`${ec.certificate}${ec.privateKey}`))), UNREADABLE, 'PEM')
  t.match(inspect(bundle(good.subarray(0, good.length - 1))), UNREADABLE, 'one that is cut off')
  t.match(inspect(bundle(Buffer.concat([good, good]))), UNREADABLE, 'two')
  t.match(inspect(bundle(bytes(good.toString('base64')))), UNREADABLE, 'its base64')
  t.match(inspect(bundle(makeBundle(ec, ['-nokeys']))), /holds no private key/)
  const withoutCertificate = opensslBytes(
    'pkcs12',
    '-export',
    '-nocerts',
    '-inkey',
    fileOf(ec.privateKey),
    '-passout',
    'pass:',
  )
  t.match(inspect(bundle(withoutCertificate)), /holds no certificate/)
  const key = forge.pki.privateKeyFromPem(rsa.privateKey)
  const wrong = forge.pki.certificateFromPem(makePair({ kind: 'rsa' }).certificate)
  const mismatched = forge.asn1.toDer(forge.pkcs12.toPkcs12Asn1(key, [wrong], '')).getBytes()
  t.match(inspect(bundle(Buffer.from(mismatched, 'latin1'))), /belongs to none of the certificates/)
  const nobody = makePair({ subject: '/O=Example' })
  t.match(inspect(bundle(makeBundle(nobody))), /neither a common name nor a DNS name/)
})

t.test('bundles that are made to cost much are refused at once', async t => {
  // The last number of a bundle tells how often the key of its integrity code is derived.
  const withMac = forge.asn1.fromDer(makeBundle(ec).toString('latin1'))
  const [, , mac] = withMac.value as forge.asn1.Asn1[]
  const most = forge.asn1.create(forge.asn1.Class.UNIVERSAL, forge.asn1.Type.INTEGER, false, '\x7f\xff\xff\xff')
  if (mac !== undefined) mac.value = [...(mac.value as forge.asn1.Asn1[]).slice(0, 2), most]
  const costly: [string, Buffer][] = [
    ['in the code of integrity', Buffer.from(forge.asn1.toDer(withMac).getBytes(), 'latin1')],
    ['in the newer derivation', costlier(makeBundle(ec, ['-iter', '65536', '-nomac']))],
    ['in the older derivation', costlier(makeBundle(rsa, ['-iter', '65536', '-legacy', '-nomac']))],
  ]
  for (const [name, bomb] of costly) {
    const started = performance.now()
    t.match(inspect(bundle(bomb)), /too many iterations/, name)
    t.ok(performance.now() - started < 5000, `${name} in time`)
  }
  const nested = Array.from({ length: 5000 }).reduce<Buffer>(inner => {
    const length = inner.length
    const head =
      length < 128 ? [0x30, length] : length < 256 ? [0x30, 0x81, length] : [0x30, 0x82, length >> 8, length & 255]
    return Buffer.concat([Buffer.from(head), inner])
  }, Buffer.alloc(0))
  t.match(inspect(bundle(nested)), UNREADABLE, 'boxes in boxes')
  t.match(inspect(bundle(Buffer.alloc(64 * 1024, Buffer.from([0x30, 0x80])))), UNREADABLE, 'boxes without an end')
})

t.test('containers', async t => {
  const encrypted = (cipher: string, ...more: string[]) =>
    opensslBytes('pkcs8', '-topk8', '-in', fileOf(ec.privateKey), '-passout', 'pass:päss', '-v2', cipher, ...more)
  const pkcs7 = opensslBytes('crl2pkcs7', '-nocrl', '-certfile', fileOf(chain)).toString()
  t.equal(container({}), null)
  t.equal(container({ certificate: rsa.certificate, privateKey: rsa.privateKey }), null, 'RSA')
  t.equal(container({ certificate: der(ec.certificate), privateKey: der(ec.privateKey) }), null, 'DER')
  t.equal(container({ certificate: `Subject: x\n${ec.certificate}${chain}` }), null, 'with its chain, and words')
  t.equal(container({ intermediates: chain }), null, 'intermediates in PEM')
  t.equal(container({ intermediates: pkcs7 }), null, 'intermediates in PKCS#7')
  t.equal(container({ intermediates: der(pkcs7) }), null, 'intermediates in PKCS#7 as DER')
  t.equal(container({ privateKey: encrypted('aes-256-cbc'), passphrase: 'päss' }), null, 'a passphrase')
  t.equal(container({ privateKey: opensslBytes('ec', '-in', fileOf(ec.privateKey)) }), null, 'the older form of a key')
  t.equal(container({ passphrase: 'for nothing' }), null, 'a passphrase that is not needed')

  t.match(container({ privateKey: other.privateKey }), /does not belong to the certificate/)
  t.match(container({ privateKey: rsa.privateKey }), /does not belong to the certificate/)
  t.match(container({ privateKey: ec.certificate }), /private key/)
  t.match(container({ privateKey: encrypted('aes-256-cbc') }), /no passphrase/)
  t.match(container({ privateKey: encrypted('aes-256-cbc'), passphrase: 'pass' }), /cannot be read/)
  t.match(container({ privateKey: encrypted('aes-256-cbc'), passphrase: Buffer.of(0xff) }), /no text/)
  const costly = costlier(der(encrypted('aes-256-cbc', '-iter', '65536').toString()))
  t.match(container({ privateKey: costly, passphrase: 'päss' }), /iterations/)
  t.match(container({ certificate: 'none' }), /no X.509 certificate/)
  t.match(container({ certificate: ec.certificate.replace('MII', '!!!') }), /PEM block "CERTIFICATE" is damaged/)
  t.match(container({ certificate: ec.certificate.replace(/-----END.*/s, '') }), /is damaged/)
  t.match(container({ intermediates: '' }), /neither certificates in PEM nor PKCS#7/)
  t.match(container({ intermediates: ec.privateKey }), /neither certificates in PEM nor PKCS#7/)
  t.match(container({ intermediates: opensslBytes('crl2pkcs7', '-nocrl') }), /hold no certificate/)
  t.match(container({ certificate: makePair({ subject: '/O=x' }).certificate }), /belong/)
})

t.test('authorities and revocation lists', async t => {
  const authority = (text: string) => inspect({ kind: 'authority', authority: bytes(text) })
  t.equal(authority(root.certificate), null)
  t.equal(authority(chain), null, 'several')
  for (const wrong of ['', 'x', root.privateKey, der(root.certificate).toString('latin1')]) {
    t.match(authority(wrong), /no X.509 certificate in PEM/)
  }
  t.match(authority(`${root.certificate}${root.certificate.replace('MII', 'MIJ')}`), /no X.509 certificate/)
  t.match(authority(root.certificate.repeat(65)), /more than 64 certificates/)

  const pem = makeRevocationList(root)
  const list = (text: string, by: string | null) =>
    inspect({ kind: 'revocation list', list: bytes(text), authority: by === null ? null : bytes(by) })
  t.equal(list(pem, root.certificate), null)
  t.equal(list(pem, chain), null, 'one of several authorities')
  t.equal(list(pem, null), null, 'without an authority')
  t.equal(list(pem, 'no certificate'), null, 'of an authority that is not good that one is told')
  t.match(list(pem, other.certificate), /is not signed by the authority/)
  t.match(list(pem, rsa.certificate), /is not signed by the authority/, 'a key of another kind')
  t.match(list('', root.certificate), /no revocation list in PEM/)
  t.match(list(root.certificate, root.certificate), /no revocation list in PEM/)
  t.match(list(der(pem).toString('latin1'), root.certificate), /no revocation list in PEM/)
  const named = (text: string) => text.replaceAll('CERTIFICATE', 'X509 CRL')
  t.match(
    list(named(opensslBytes('asn1parse', '-genstr', 'UTF8:x', '-noout', '-out', '-').toString('latin1')), null),
    /./,
  )
  const damaged = der(pem)
  damaged[damaged.length - 1] = (damaged.at(-1) ?? 0) ^ 1
  const damagedPem = `-----BEGIN X509 CRL-----\n${damaged.toString('base64')}\n-----END X509 CRL-----\n`
  t.match(list(damagedPem, root.certificate), /is not signed by the authority/)
})

t.test('anything at all is refused in words, and fast', async () => {
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

const NEVER = new AbortController().signal

t.test('the thread', async t => {
  const program = await buildInspectorThread(t.testdir({}))
  const inspector = createInspector({ inspectionMilliseconds: 20_000, program })
  t.teardown(inspector.close)
  const content = makeBundle(rsa)
  t.equal(await inspector.inspect(bundle(content), NEVER), null)
  const niceness = readdirSync('/proc/self/task').map(task => getPriority(Number(task)))
  t.equal(niceness.filter(nice => nice === getPriority() + 10).length, 1, 'it gives way to requests')
  t.ok(
    content.every(byte => byte === 0),
    'what was looked at is overwritten',
  )
  t.match(await inspector.inspect(bundle(Buffer.alloc(4)), NEVER), UNREADABLE, 'the same thread goes on')
  await inspector.close()
  t.equal(await inspector.inspect(bundle(makeBundle(ec)), NEVER), null, 'a closed one starts anew')

  const endless = join(t.testdir({}), 'endless.mjs')
  writeFileSync(
    endless,
    `import { readlinkSync } from 'node:fs'
     import { parentPort } from 'node:worker_threads'
     parentPort.on('message', () => {
       for (;;) {}
     })
     parentPort.postMessage({ task: readlinkSync('/proc/thread-self') })`,
  )
  const late = createInspector({ inspectionMilliseconds: 50, program: endless })
  t.teardown(late.close)
  t.match(await late.inspect(bundle(makeBundle(ec)), NEVER), /too long/)
  const missing = createInspector({ inspectionMilliseconds: 1000, program: `${program}-away.js` })
  await t.rejects(missing.inspect(bundle(Buffer.alloc(4)), NEVER), /Cannot find/)

  // On a busy machine a thread waits for its turn: that says nothing about the bundle.
  const held = join(t.testdir({}), 'held.mjs')
  writeFileSync(
    held,
    `import { readlinkSync } from 'node:fs'
     import { parentPort } from 'node:worker_threads'
     parentPort.on('message', ({ bundle }) => {
       Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, bundle.length)
       parentPort.postMessage({ wrong: null })
     })
     parentPort.postMessage({ task: readlinkSync('/proc/thread-self') })`,
  )
  const busy = createInspector({ inspectionMilliseconds: 100, program: held })
  t.teardown(busy.close)
  t.equal(await busy.inspect(bundle(Buffer.alloc(300)), NEVER), null, 'only processor time counts')
  const cutOff = new AbortController()
  const inspected = t.rejects(busy.inspect(bundle(Buffer.alloc(60_000)), cutOff.signal), /enough/)
  cutOff.abort(new Error('enough'))
  await inspected
})

t.test('a key of PKCS#12 is derived as node-forge derives it, in a fraction of the time', async t => {
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

t.test('references', async t => {
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

t.test('what a request makes an object refer to', async t => {
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
  t.equal(changedListenerReferences(full, { ...full, sni_container_refs: ['d'] }), null, 'what stands is not looked at')
  t.equal(changedListenerReferences(full, none), null, 'nor is what goes')
  t.same(changedListenerReferences(full, { sni_container_refs: ['s', 'n'] }), desired(['n'], [], []))
  t.same(changedListenerReferences(none, { default_tls_container_ref: 'n' }), desired(['n'], [], []))
  t.same(changedListenerReferences(full, { client_ca_tls_container_ref: 'b' }), desired([], ['b'], [['l', 'b']]))
  t.same(changedListenerReferences(full, { client_crl_container_ref: 'm' }), desired([], [], [['m', 'a']]))
  t.same(changedPoolReferences(noPool, pool), desired(['p'], ['pa'], [['pl', 'pa']]))
  t.equal(changedPoolReferences(pool, { tls_container_ref: 'p' }), null)
})
