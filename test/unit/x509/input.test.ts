import fc from 'fast-check'
import t from 'tap'
import { readCertificateRequest, writeCertificateRequest } from '../../../x509/certificate-request.js'
import {
  type Asn1,
  integer,
  objectIdentifier,
  readDer,
  sequence,
  sequenceIn,
  setOf,
  tagged,
  writeDer,
} from '../../../x509/encoding/asn1.js'
import { formatDistinguishedName, parseDistinguishedName } from '../../../x509/encoding/distinguished-name.js'
import type { GeneralName } from '../../../x509/encoding/general-names.js'
import { decodeName } from '../../../x509/encoding/name-encoding.js'
import { decodePem } from '../../../x509/encoding/pem.js'
import { subjectAltName } from '../../../x509/extensions.js'
import { publicKeyOf } from '../../../x509/public-key.js'
import { signed } from '../../../x509/signing.js'
import { anyText } from '../../support/inputs/any-text.js'
import { authority, issue, keyOf, NAMES, refusal, SUBJECT } from '../../support/inputs/x509.js'

const p256 = keyOf('P-256')

t.test('hostile requests are refused in bounded time and memory', async t => {
  const nested = (levels: number): Buffer => {
    // Each level's length covers everything after it.
    const header = Buffer.alloc(4 * levels)
    for (let level = 0; level < levels; level++) {
      header.writeUInt16BE(0x3082, 4 * level)
      header.writeUInt16BE(4 * (levels - level - 1), 4 * level + 2)
    }
    return header
  }
  const indefinite = Buffer.concat([Buffer.alloc(16_000, Buffer.of(0x30, 0x80)), Buffer.alloc(16_000)])
  const wide = writeDer(sequence(...Array.from({ length: 9000 }, () => sequence())))
  const hugeModulus = Buffer.concat([Buffer.from('3082', 'hex'), Buffer.alloc(30_000, 0x30)])
  const bombs: [string, Buffer][] = [
    ['nested sequences', nested(8000)],
    ['nested sequences without an end', indefinite],
    ['many empty sequences', wide],
    ['a length of four gigabytes', Buffer.from('3084ffffffff', 'hex')],
    ['a length of 126 bytes', Buffer.concat([Buffer.of(0x30, 0xfe), Buffer.alloc(200, 0xff)])],
    ['garbage', hugeModulus],
    ['PEM without an end', Buffer.from(`-----BEGIN CERTIFICATE REQUEST-----\n${'A'.repeat(60_000)}`)],
    ['many PEM headers', Buffer.from('-----BEGIN CERTIFICATE REQUEST-----'.repeat(1700))],
    [
      'PEM of line breaks',
      Buffer.from(`-----BEGIN CERTIFICATE REQUEST-----${'\n'.repeat(60_000)}-----END CERTIFICATE REQUEST-----`),
    ],
    ['a long text', Buffer.alloc(1_000_000, 'A')],
  ]
  for (const [name, bomb] of bombs) {
    const before = process.memoryUsage().heapUsed
    const started = performance.now()
    t.not(
      refusal(() => readCertificateRequest(bomb)),
      'accepted',
      name,
    )
    const milliseconds = performance.now() - started
    const megabytes = (process.memoryUsage().heapUsed - before) / 1e6
    t.ok(milliseconds < 5_000, `${name}: ${milliseconds.toFixed(1)} ms`)
    t.ok(megabytes < 50, `${name}: ${megabytes.toFixed(1)} MB`)
  }
})

t.test('arbitrary bytes are read or refused as a request, and never crash', async () => {
  const good = writeCertificateRequest(parseDistinguishedName(SUBJECT), p256, NAMES)
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 300 }), bytes => {
      refusal(() => readCertificateRequest(Buffer.from(bytes)))
    }),
  )
  const changes = fc.array(fc.tuple(fc.nat(good.length - 1), fc.integer({ min: 1, max: 255 })), {
    minLength: 1,
    maxLength: 3,
  })
  fc.assert(
    fc.property(changes, changed => {
      const bytes = Buffer.from(good)
      for (const [at, by] of changed) bytes.writeUInt8(bytes.readUInt8(at) ^ by, at)
      const outcome = refusal(() => readCertificateRequest(bytes))
      return outcome !== 'accepted' || bytes.equals(good)
    }),
    { numRuns: 200 },
  )
  fc.assert(
    fc.property(fc.string({ unit: 'binary-ascii', maxLength: 200 }), text => {
      refusal(() =>
        readCertificateRequest(
          Buffer.from(`-----BEGIN CERTIFICATE REQUEST-----${text}-----END CERTIFICATE REQUEST-----`),
        ),
      )
    }),
  )
})

t.test('distinguished names are read and written as RFC 4514 requires, or refused with a reason', async t => {
  const same = (text: string, written: string) =>
    t.equal(formatDistinguishedName(parseDistinguishedName(text)), written, text)
  same('CN=www.example.com', 'CN=www.example.com')
  same('cn=a, o = B ,C=de', 'CN=a,O=B,C=de')
  same('CN=a+OU=b,O=c', 'CN=a+OU=b,O=c')
  same('CN=\\ a\\ ,O=\\#b\\,\\+\\"\\\\\\<\\>\\;c', 'CN=\\ a\\ ,O=\\#b\\,\\+\\"\\\\\\<\\>\\;c')
  same('CN=\\ ', 'CN=\\ ')
  same('CN=Lu\\C4\\8Di\\C4\\87', 'CN=Lučić')
  same('CN=a=b', 'CN=a=b')
  same('2.5.4.3=x,OID.1.2.3.4=y', 'CN=x,1.2.3.4=y')
  same('emailAddress=a@b.example,DC=example', 'emailAddress=a@b.example,DC=example')
  t.same(
    parseDistinguishedName('CN=a,O=b').map(part => part.map(({ value }) => value)),
    [['b'], ['a']],
    'the most general part comes first',
  )
  const refused: [string, RegExp][] = [
    ['', /expected/],
    ['CN', /expected/],
    ['CN=', /CN is empty/],
    ['CN=a,', /expected/],
    ['=a', /expected/],
    ['FOO=a', /unknown attribute: "FOO"/],
    ['3.1.2=a', /unknown attribute/],
    ['CN="a"', /must be escaped/],
    ['CN=a;O=b', /must be escaped/],
    ['CN=a\\x', /must be escaped/],
    ['CN=a\\', /must be escaped/],
    ['CN=\\ff', /not UTF-8/],
    ['CN=#0c0161', /Hexadecimal values/],
    ['CN=a\\00', /control character/],
    ['CN=a\nb', /control character/],
    ['C=Germany', /C has more than 2/],
    ['C=4x', /C must be two letters/],
    ['DC=ü', /DC must be printable ASCII/],
    [`CN=${'a'.repeat(65)}`, /more than 64/],
    ['CN=a+CN=b', /twice/],
    [`CN=a${',OU=b'.repeat(40)}`, /at most 32/],
    [`O=${'a'.repeat(3000)}`, /2000/],
  ]
  for (const [text, message] of refused)
    t.match(
      refusal(() => parseDistinguishedName(text)),
      message,
      text,
    )
})

t.test('any name survives writing and reading; any text is read or refused', async t => {
  const value = fc.string({ unit: 'grapheme', minLength: 1, maxLength: 20 })
  const attribute = fc.record({ type: fc.constantFrom('2.5.4.3', '2.5.4.10', '2.5.4.11', '2.5.4.7'), value })
  const part = fc.uniqueArray(attribute, { minLength: 1, maxLength: 3, selector: ({ type }) => type })
  fc.assert(
    fc.property(fc.array(part, { minLength: 1, maxLength: 5 }), name => {
      t.same(parseDistinguishedName(formatDistinguishedName(name)), name)
    }),
  )
  fc.assert(
    fc.property(fc.oneof(anyText(), fc.stringMatching(/^([A-Z]{1,2}=[\\",+# a-f0-9]{0,9}[,+]?){0,9}$/)), text => {
      refusal(() => parseDistinguishedName(text))
    }),
    { numRuns: 1000 },
  )
})

const primitive = (type: number, content: Uint8Array): Asn1 =>
  readDer(Buffer.concat([Buffer.of(type, content.length), content]), 'value')

/** A request with arbitrary subject and names, signed with its key. */
function requestFor(subject: readonly [type: Asn1, value: Asn1][], names: readonly GeneralName[]): Buffer {
  const extensions = sequence(...(names.length > 0 ? [subjectAltName(names, false)] : []))
  const attribute = sequence(objectIdentifier('1.2.840.113549.1.9.14'), setOf(extensions))
  const name = sequence(...subject.map(each => setOf(sequence(...each))))
  return writeDer(signed(sequence(integer(0), name, publicKeyOf(p256).info, tagged(0, attribute)), p256))
}

/** The subject of a certificate, as our reader decodes it. */
function subjectOf(pem: string) {
  const [content] = sequenceIn(readDer(decodePem(pem, ['CERTIFICATE'], 'certificate'), 'certificate')) ?? []
  return decodeName(sequenceIn(content)?.[5])
}

t.test('object identifiers of any size are read back, and malformed ones are refused', async t => {
  const root = authority('CN=Root', p256, 1, null)
  for (const type of ['2.16303', '0.39', '1.3.4294967295', '2.25.340282366920938463463374607431768211455']) {
    const leaf = issue(requestFor([[objectIdentifier(type), primitive(12, Buffer.from('x'))]], []), root)
    t.same(parseDistinguishedName(formatDistinguishedName(subjectOf(leaf))), [[{ type, value: 'x' }]])
  }
  const refused = [[], [0x80], [0x80, 0x01], [0x2a, 0x80, 0x01], [0x2a, 0x81], Array.from({ length: 65 }, () => 1)]
  for (const content of refused) {
    const type = primitive(6, Buffer.from(content))
    const request = requestFor([[type, primitive(12, Buffer.from('x'))]], [])
    t.match(
      refusal(() => readCertificateRequest(request)),
      /not text/,
      `${content}`,
    )
  }
})
