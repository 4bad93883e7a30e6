import fc from 'fast-check'
import t from 'tap'
import { extendedKeyUsage } from '../../../x509/extensions.js'
import { type OcspQuestion, readOcspQuestion } from '../../../x509/ocsp/certificate-id.js'
import { readOcspResponse } from '../../../x509/ocsp/response.js'
import {
  certificateWith,
  derOf,
  OCSP_SIGNING,
  ocspResponse,
  revokedAt,
  UNKNOWN,
  withOtherSignature,
} from '../../support/inputs/ocsp.js'
import { authority, DAY, keyOf, refusal } from '../../support/inputs/x509.js'

const URL = 'http://ocsp.example.com/ca'
const ca = authority('CN=Issuer,O=Test', keyOf('P-256'), 0, null)
const caDer = derOf(ca.pem)
const leaf = certificateWith(ca, keyOf('P-384'), { responders: [URL] })
const issuer = { key: ca.key, certificate: caDer }
const now = new Date()

function questionOf(chain: readonly Buffer[]): OcspQuestion {
  const found = readOcspQuestion(chain)
  if (found === null) throw new Error('no question')
  return found
}
const question = questionOf([leaf, caDer])

const responder = (wish: Parameters<typeof certificateWith>[2], by = ca) => ({
  key: keyOf('RSA 2048'),
  certificate: certificateWith(by, keyOf('RSA 2048'), { name: 'CN=Responder', ...wish }),
})
const read = (bytes: Buffer, at = now) => readOcspResponse(bytes, question, at)
const refused = (bytes: Buffer, at = now) => refusal(() => read(bytes, at))

t.test('the responder is the first one that is asked by HTTP', async t => {
  const urlOf = (...responders: string[]) =>
    readOcspQuestion([certificateWith(ca, keyOf('P-256'), { responders }), caDer])?.responder ?? null
  t.equal(question.responder, URL)
  t.equal(urlOf('ldap://x.test/', 'https://x.test/', 'http://second.test', 'http://third.test'), 'http://second.test/')
  for (const url of [
    'https://x.test/',
    'http://',
    'http://user@x.test/',
    'http://x.test/a b',
    `http://x.test/${'a'.repeat(1000)}`,
    'http://x\n.test/',
  ]) {
    t.equal(urlOf(url), null, url.slice(0, 40))
  }
  t.equal(urlOf(), null)
})

t.test('nothing is asked without the issuer', async t => {
  const other = authority('CN=Issuer,O=Test', keyOf('P-384'), 0, null)
  t.equal(readOcspQuestion([leaf]), null)
  t.equal(readOcspQuestion([leaf, leaf]), null)
  t.equal(readOcspQuestion([leaf, derOf(other.pem)]), null, 'the same name with another key')
})

t.test('a response by the issuer, by name or by key, and of a responder of the issuer', async t => {
  const nextUpdate = new Date(Math.floor(now.getTime() / 1000) * 1000 + DAY)
  for (const byName of [true, false]) {
    t.match(read(ocspResponse(question, { signer: issuer, byName, nextUpdate })), { status: 'good', nextUpdate })
    const signer = responder({ extensions: [OCSP_SIGNING] })
    t.match(read(ocspResponse(question, { signer, isDelegated: true, byName })), { status: 'good' })
  }
  t.match(read(ocspResponse(question, { signer: issuer, status: revokedAt(now) })), { status: 'revoked' })
  t.match(read(ocspResponse(question, { signer: issuer, status: UNKNOWN })), { status: 'unknown' })
})

t.test('a response that nobody may sign is refused', async t => {
  const stranger = authority('CN=Issuer,O=Test', keyOf('RSA 2048'), 0, null)
  const forged = [
    ['a changed signature', withOtherSignature(ocspResponse(question, { signer: issuer }))],
    ['another CA', ocspResponse(question, { signer: { key: stranger.key, certificate: derOf(stranger.pem) } })],
    [
      'another CA with its certificate',
      ocspResponse(question, { signer: { key: stranger.key, certificate: derOf(stranger.pem) }, isDelegated: true }),
    ],
    [
      'the issuer’s name, another key',
      ocspResponse(question, { signer: { key: keyOf('RSA 2048'), certificate: caDer } }),
    ],
    ['a certificate without a purpose', ocspResponse(question, { signer: responder({}), isDelegated: true })],
    [
      'a certificate for servers',
      ocspResponse(question, {
        signer: responder({ extensions: [extendedKeyUsage('serverAuth')] }),
        isDelegated: true,
      }),
    ],
    ['another identification', ocspResponse(question, { signer: { key: ca.key, certificate: leaf } })],
    [
      'a responder of another CA',
      ocspResponse(question, { signer: responder({ extensions: [OCSP_SIGNING] }, stranger), isDelegated: true }),
    ],
    ['a responder that is not there', ocspResponse(question, { signer: responder({ extensions: [OCSP_SIGNING] }) })],
    [
      'an expired responder',
      ocspResponse(question, {
        signer: responder({ extensions: [OCSP_SIGNING], notAfter: new Date(now.getTime() - DAY) }),
        isDelegated: true,
      }),
    ],
  ] as const
  for (const [name, bytes] of forged) t.match(refused(bytes), /is not signed by/, name)
})

t.test('a response is about the certificate, and of now', async t => {
  const other = questionOf([certificateWith(ca, keyOf('P-256'), { responders: [URL] }), caDer])
  t.match(refused(ocspResponse(other, { signer: issuer })), /another certificate/)
  for (const part of ['nameHash', 'keyHash', 'serial'] as const) {
    const changed = { ...question, [part]: Buffer.from(question[part]).fill(7) }
    t.match(refused(ocspResponse(changed, { signer: issuer })), /another certificate/, part)
  }
  t.match(
    refused(ocspResponse(question, { signer: issuer, algorithm: '2.16.840.1.101.3.4.2.1' })),
    /another certificate/,
  )
  t.match(refused(ocspResponse(question, { signer: issuer, copies: 2 })), /several certificates/)
  t.match(refused(ocspResponse(question, { signer: issuer, nextUpdate: null })), /until when/)
  t.match(refused(ocspResponse(question, { signer: issuer, nextUpdate: new Date(now.getTime() - DAY) })), /until when/)
  const response = ocspResponse(question, { signer: issuer, thisUpdate: now })
  const at = (ms: number) => new Date(now.getTime() + ms)
  t.match(refused(response, at(-301_000)), /not valid yet/)
  t.equal(refused(response, at(-299_000)), 'accepted', 'the clocks differ a little')
  t.equal(refused(response, at(DAY - 2000)), 'accepted')
  t.match(refused(response, at(DAY)), /has expired/)
})

t.test('errors of a responder, and what is not a response', async t => {
  t.match(refused(Buffer.from('30030a0106', 'hex')), /error 6/)
  t.match(refused(Buffer.from('30030a0100', 'hex')), /cannot be read/)
  t.match(refused(Buffer.alloc(65_537)), /at most 65536 bytes/)
  t.match(refused(Buffer.from('<html>')), /not valid DER/)
})

t.test('arbitrary bytes, and arbitrary changes of a response, are refused and nothing else', async () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 400 }), bytes => refused(Buffer.from(bytes)) !== 'accepted'),
    { numRuns: 500 },
  )
  const signer = responder({ extensions: [OCSP_SIGNING] })
  const response = ocspResponse(question, { signer: issuer })
  const delegated = ocspResponse(question, { signer, isDelegated: true })
  fc.assert(
    fc.property(fc.nat(response.length - 1), fc.integer({ min: 1, max: 255 }), (index, change) => {
      const changed = Buffer.from(response)
      changed.writeUInt8(changed.readUInt8(index) ^ change, index)
      return refused(changed) !== 'accepted'
    }),
    { numRuns: 500 },
  )
  fc.assert(
    fc.property(fc.nat(delegated.length - 1), fc.integer({ min: 1, max: 255 }), (index, change) => {
      const changed = Buffer.from(delegated)
      changed.writeUInt8(changed.readUInt8(index) ^ change, index)
      // The responder's certificate has parts that mean nothing here; no change of it crashes the reader.
      refused(changed)
    }),
    { numRuns: 500 },
  )
  fc.assert(
    fc.property(
      fc.nat(leaf.length - 1),
      fc.nat(caDer.length - 1),
      fc.integer({ min: 1, max: 255 }),
      (at, also, change) => {
        const chain = [Buffer.from(leaf), Buffer.from(caDer)] as const
        chain[0].writeUInt8(leaf.readUInt8(at) ^ change, at)
        refusal(() => readOcspQuestion([chain[0], caDer]))
        chain[1].writeUInt8(caDer.readUInt8(also) ^ change, also)
        refusal(() => readOcspQuestion([leaf, chain[1]]))
      },
    ),
    { numRuns: 300 },
  )
})
