import { readdirSync, writeFileSync } from 'node:fs'
import { getPriority } from 'node:os'
import { join } from 'node:path'
import forge from 'node-forge'
import t from 'tap'
import { createInspector } from '../../../controller/inspection/inspector.js'
import * as inspection from '../../../x509/material/inspect.js'
import type { Material } from '../../../x509/material/material.js'
import { buildInspectorThread, makeBundle, makePair, opensslBytes } from '../../support/inputs/certificates.js'
import { fileOf } from '../../support/inputs/x509.js'

/** PKCS#12 bundles that OpenSSL writes, and the thread that inspects them. */

const root = makePair({ subject: '/CN=root' })
const between = makePair({ subject: '/CN=between', issuer: root })
const rsa = makePair({ kind: 'rsa', issuer: between })
const ec = makePair({ issuer: between })
const chain = `${between.certificate}${root.certificate}`

const bytes = (text: string | Uint8Array) => Buffer.from(text)
const bundle = (content: Uint8Array): Material => ({ kind: 'bundle', bundle: content })
/** The same bundle with 8388607 iterations instead of 65536. */
const costlier = (content: Buffer) =>
  Buffer.from(content.toString('latin1').replaceAll('\x02\x03\x01\x00\x00', '\x02\x03\x7f\xff\xff'), 'latin1')
const UNREADABLE = /not a PKCS#12 bundle that can be read without a passphrase/

const NEVER = new AbortController().signal

/** What is wrong with it. */
const inspect = (material: Material) => inspection.inspect(material).wrong

t.test('valid PKCS#12 bundles are accepted', async t => {
  const withChain = ['-certfile', fileOf(chain)]
  for (const [name, pair] of Object.entries({ rsa, ec })) {
    t.equal(inspect(bundle(makeBundle(pair))), null, name)
    t.equal(inspect(bundle(makeBundle(pair, withChain))), null, `${name} with its chain`)
    t.equal(inspect(bundle(makeBundle(pair, ['-legacy']))), null, `${name} with legacy encryption`)
    t.equal(
      inspect(bundle(makeBundle(pair, ['-nomac', '-keypbe', 'NONE', '-certpbe', 'NONE']))),
      null,
      `${name}, unencrypted`,
    )
    t.equal(
      inspect(bundle(makeBundle(pair, ['-macalg', 'sha512', '-keypbe', 'AES-128-CBC']))),
      null,
      `${name}, SHA-512`,
    )
  }
  t.equal(inspect(bundle(makeBundle(rsa, ['-iter', '600000', '-nomac']))), null, "NSS's number of iterations")
  const key = forge.pki.privateKeyFromPem(rsa.privateKey)
  const certificate = forge.pki.certificateFromPem(rsa.certificate)
  const none = forge.asn1.toDer(forge.pkcs12.toPkcs12Asn1(key, [certificate], null)).getBytes()
  t.equal(inspect(bundle(Buffer.from(none, 'latin1'))), null, 'a null passphrase instead of an empty one')
  const onlyDns = makePair({ subject: '/O=Example', args: ['-addext', 'subjectAltName=DNS:www.example.com'] })
  t.equal(inspect(bundle(makeBundle(onlyDns))), null, 'a DNS name is enough')
})

t.test('invalid PKCS#12 bundles are refused with a reason', async t => {
  const good = makeBundle(ec, ['-certfile', fileOf(chain)])
  t.match(inspect(bundle(makeBundle(ec, [], 'secret'))), UNREADABLE, 'a bundle with a passphrase')
  t.match(inspect(bundle(Buffer.alloc(0))), UNREADABLE, 'no content')
  t.match(inspect(bundle(bytes(`${ec.certificate}${ec.privateKey}`))), UNREADABLE, 'PEM')
  t.match(inspect(bundle(good.subarray(0, good.length - 1))), UNREADABLE, 'a truncated bundle')
  t.match(inspect(bundle(Buffer.concat([good, good]))), UNREADABLE, 'two bundles')
  t.match(inspect(bundle(bytes(good.toString('base64')))), UNREADABLE, 'a bundle in base64')
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
  t.match(inspect(bundle(Buffer.from(mismatched, 'latin1'))), /belongs to none of its certificates/)
  const nobody = makePair({ subject: '/O=Example' })
  t.match(inspect(bundle(makeBundle(nobody))), /neither a common name nor a DNS name/)
})

t.test('bundles built to be expensive are refused quickly', async t => {
  // The last number of a bundle is the iteration count of its MAC.
  const withMac = forge.asn1.fromDer(makeBundle(ec).toString('latin1'))
  const [, , mac] = withMac.value as forge.asn1.Asn1[]
  const most = forge.asn1.create(forge.asn1.Class.UNIVERSAL, forge.asn1.Type.INTEGER, false, '\x7f\xff\xff\xff')
  if (mac !== undefined) mac.value = [...(mac.value as forge.asn1.Asn1[]).slice(0, 2), most]
  const costly: [string, Buffer][] = [
    ['in the MAC', Buffer.from(forge.asn1.toDer(withMac).getBytes(), 'latin1')],
    ['in PBKDF2', costlier(makeBundle(ec, ['-iter', '65536', '-nomac']))],
    ['in the legacy key derivation', costlier(makeBundle(rsa, ['-iter', '65536', '-legacy', '-nomac']))],
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
  t.match(inspect(bundle(nested)), UNREADABLE, 'nested sequences')
  t.match(inspect(bundle(Buffer.alloc(64 * 1024, Buffer.from([0x30, 0x80])))), UNREADABLE, 'sequences without an end')
})

t.test('the inspector thread yields to requests, wipes its input and has a CPU time limit', async t => {
  const program = await buildInspectorThread(t.testdir({}))
  const inspector = createInspector({ inspectionMilliseconds: 20_000, program })
  t.teardown(inspector.close)
  const content = makeBundle(rsa)
  t.equal((await inspector.inspect(bundle(content), NEVER)).wrong, null)
  const niceness = readdirSync('/proc/self/task').map(task => getPriority(Number(task)))
  t.equal(niceness.filter(nice => nice === getPriority() + 10).length, 1, 'it runs at a lower priority')
  t.ok(
    content.every(byte => byte === 0),
    'the inspected content is overwritten',
  )
  t.match((await inspector.inspect(bundle(Buffer.alloc(4)), NEVER)).wrong, UNREADABLE, 'the thread is reused')
  await inspector.close()
  t.equal((await inspector.inspect(bundle(makeBundle(ec)), NEVER)).wrong, null, 'a closed inspector starts again')

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
  t.match((await late.inspect(bundle(makeBundle(ec)), NEVER)).wrong, /too long/)
  const missing = createInspector({ inspectionMilliseconds: 1000, program: `${program}-away.js` })
  await t.rejects(missing.inspect(bundle(Buffer.alloc(4)), NEVER), /Cannot find/)

  // On a busy machine a thread waits to be scheduled, which does not depend on the bundle.
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
  t.equal((await busy.inspect(bundle(Buffer.alloc(300)), NEVER)).wrong, null, 'only CPU time counts')
  const cutOff = new AbortController()
  const inspected = t.rejects(busy.inspect(bundle(Buffer.alloc(60_000)), cutOff.signal), /enough/)
  cutOff.abort(new Error('enough'))
  await inspected
})
