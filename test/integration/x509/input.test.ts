import { X509Certificate } from 'node:crypto'
import fc from 'fast-check'
import t from 'tap'
import { readCertificateRequest, writeCertificateRequest } from '../../../x509/certificate-request.js'
import {
  type Asn1,
  integer,
  objectIdentifier,
  octetString,
  readDer,
  sequence,
  sequenceIn,
  setOf,
  tagged,
  taggedBytes,
  writeDer,
} from '../../../x509/encoding/asn1.js'
import { formatDistinguishedName, parseDistinguishedName } from '../../../x509/encoding/distinguished-name.js'
import type { GeneralName } from '../../../x509/encoding/general-names.js'
import { decodeName } from '../../../x509/encoding/name-encoding.js'
import { decodePem, encodePem } from '../../../x509/encoding/pem.js'
import { subjectAltName } from '../../../x509/extensions.js'
import { readLeafAndOthers } from '../../../x509/material/certificates.js'
import { readPrivateKey, readPrivateKeyAsync } from '../../../x509/private-key.js'
import { publicKeyOf } from '../../../x509/public-key.js'
import { signed } from '../../../x509/signing.js'
import { authority, fileOf, issue, keyOf, NAMES, openssl, refusal, SUBJECT } from '../../support/inputs/x509.js'

/** Requests, keys and certificates made by OpenSSL. */

const p256 = keyOf('P-256')

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

/** Increases the lengths of all structures that enclose an offset. */
function growBy(der: Buffer, by: number, place: number): Buffer {
  const bytes = Buffer.from(der)
  for (let at = 0; at < place; ) {
    const short = bytes.readUInt8(at + 1)
    const width = short < 0x80 ? 0 : short & 0x7f
    const length = width === 0 ? short : bytes.readUIntBE(at + 2, width)
    const content = at + 2 + width
    if (place >= content + length) {
      at = content + length
      continue
    }
    if (width === 0) bytes.writeUInt8(length + by, at + 1)
    else bytes.writeUIntBE(length + by, at + 2, width)
    at = content
  }
  return bytes
}

t.test('invalid certificate requests are refused with a reason', async t => {
  const good = writeCertificateRequest(parseDistinguishedName(SUBJECT), p256, NAMES)
  const tampered = Buffer.from(good)
  tampered.write('www.exbmple.com', tampered.indexOf('www.example.com'), 'latin1')
  const openSslRequest = (args: string[]) =>
    Buffer.from(openssl(['req', '-new', '-nodes', '-keyout', '/dev/null', '-subj', '/CN=x', ...args]).text)
  const withNames = (names: Asn1) => {
    const made = openssl([
      ...['req', '-new', '-key', fileOf(p256.export({ format: 'pem', type: 'pkcs8' })), '-subj', '/CN=x'],
      ...[
        '-addext',
        `subjectAltName=DER:${writeDer(names)
          .toString('hex')
          .replace(/..(?!$)/g, '$&:')}`,
      ],
    ])
    return Buffer.from(made.text)
  }
  const cases: [name: string, bytes: Buffer, message: RegExp][] = [
    ['nothing', Buffer.alloc(0), /not valid DER/],
    ['text', Buffer.from('hello'), /not valid DER/],
    ['a certificate', Buffer.from(authority('CN=Root', p256, 1, null).pem), /no PEM block/],
    ['two requests', Buffer.from(encodePem('CERTIFICATE REQUEST', good).repeat(2)), /more than one/],
    ['a truncated block', Buffer.from(encodePem('CERTIFICATE REQUEST', good).slice(0, 200)), /no END line/],
    [
      'no base64',
      Buffer.from('-----BEGIN CERTIFICATE REQUEST-----\n!!!!\n-----END CERTIFICATE REQUEST-----'),
      /base64/,
    ],
    ['trailing bytes', Buffer.concat([good, Buffer.of(0)]), /not valid DER/],
    ['a subject other than the signed one', tampered, /signature/],
    ['no subject', writeCertificateRequest([], p256, []), /has neither a subject nor/],
    ['a short RSA key', openSslRequest(['-newkey', 'rsa:1024']), /2048 to 8192 bits; this one has 1024/],
    [
      'an unsupported curve',
      openSslRequest(['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:secp256k1']),
      /EC key on P-256/,
    ],
    [
      'explicit curve parameters',
      openSslRequest([
        ...['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-pkeyopt', 'ec_param_enc:explicit'],
      ]),
      /EC key on P-256/,
    ],
    ['Ed25519', openSslRequest(['-newkey', 'ed25519']), /must be an RSA key/],
    ['SHA-1', openSslRequest(['-newkey', 'rsa:2048', '-sha1']), /signature/],
    ['an unsupported kind of name', withNames(sequence(taggedBytes(8, Buffer.of(0x2a)))), /Only e-mail/],
    [
      'a DNS name with a NUL',
      withNames(sequence(taggedBytes(2, Buffer.from('a.example\0.b')))),
      /not a valid DNS name/,
    ],
    ['an address of five bytes', withNames(sequence(taggedBytes(7, Buffer.alloc(5)))), /not a valid IP/],
    ['no names', withNames(sequence()), /cannot be read/],
    ['names that are not a sequence', withNames(octetString(Buffer.of(1))), /cannot be read/],
  ]
  for (const [name, bytes, message] of cases)
    t.match(
      refusal(() => readCertificateRequest(bytes)),
      message,
      name,
    )
})

t.test('our reader, Node.js and OpenSSL read every certificate that we issue', async t => {
  const root = authority('CN=Root', p256, 1, null)
  const oid = fc.oneof(
    fc.constantFrom('2.5.4.3', '2.5.4.6', '2.5.4.10', '1.2.840.113549.1.9.1').map(objectIdentifier),
    fc.uint8Array({ minLength: 1, maxLength: 24 }).map(content => {
      content[content.length - 1] = (content.at(-1) ?? 0) & 0x7f
      return primitive(6, content)
    }),
  )
  const text = fc.oneof(fc.string({ minLength: 1, maxLength: 12 }), fc.string({ unit: 'grapheme', maxLength: 12 }))
  const value = fc
    .tuple(fc.constantFrom(12, 19, 20, 22, 30), text)
    .map(([type, of]) => primitive(type, type === 30 ? Buffer.from(of, 'utf16le').swap16() : Buffer.from(of)))
  const label = fc.stringMatching(/^[a-z0-9-]{1,20}$/)
  const name: fc.Arbitrary<GeneralName> = fc.oneof(
    fc.record({
      kind: fc.constant('dns' as const),
      value: fc.oneof(
        fc.domain(),
        label,
        label.map(of => `*.${of}.test`),
      ),
    }),
    fc.record({ kind: fc.constant('ip' as const), value: fc.oneof(fc.ipV4(), fc.ipV6()) }),
    fc.record({ kind: fc.constant('email' as const), value: fc.emailAddress() }),
    fc.record({ kind: fc.constant('uri' as const), value: fc.webUrl() }),
  )
  const wished = fc.tuple(fc.array(fc.tuple(oid, value), { maxLength: 4 }), fc.array(name, { maxLength: 4 }))
  const certified: string[] = []
  fc.assert(
    fc.property(wished, ([subject, names]) => {
      const request = requestFor(subject, names)
      if (refusal(() => readCertificateRequest(request)) !== 'accepted') return
      const read = readCertificateRequest(request)
      const { subject: known } = read
      if (known.length > 0) t.same(parseDistinguishedName(formatDistinguishedName(known)), known)
      const leaf = issue(request, root)
      t.same(subjectOf(leaf), known)
      t.ok(readLeafAndOthers(Buffer.from(leaf))[0].checkIssued(new X509Certificate(root.pem)))
      t.type(new X509Certificate(leaf).toLegacyObject().subject, 'object')
      certified.push(leaf)
    }),
    { numRuns: 200 },
  )
  t.ok(certified.length > 20, `${certified.length} of 200`)
  const shown = openssl(['storeutl', '-noout', '-text', '-certs', fileOf(certified.join(''))])
  t.match(shown, { status: 0 })
  t.equal(shown.text.match(/^Certificate:$/gm)?.length, certified.length)
  t.notMatch(shown.text, /error|unable/i)
})

t.test('stored private keys are read in every supported form; others are refused', async t => {
  const key = keyOf('RSA 2048')
  const isSame = (stored: Buffer | string, passphrase: string | null, name: string) =>
    t.ok(readPrivateKey(Buffer.from(stored), passphrase).equals(key), name)
  isSame(key.export({ format: 'pem', type: 'pkcs8' }), null, 'PKCS#8')
  isSame(key.export({ format: 'der', type: 'pkcs8' }), null, 'PKCS#8 as DER')
  isSame(key.export({ format: 'pem', type: 'pkcs1' }), null, 'PKCS#1')
  isSame(key.export({ format: 'pem', type: 'pkcs8', cipher: 'aes-256-cbc', passphrase: 'hush' }), 'hush', 'encrypted')
  isSame(
    key.export({ format: 'pem', type: 'pkcs1', cipher: 'aes-128-cbc', passphrase: 'hush' }),
    'hush',
    'encrypted the traditional way',
  )
  const pem = fileOf(key.export({ format: 'pem', type: 'pkcs8' }))
  const encrypted = (...args: string[]) =>
    openssl(['pkcs8', '-topk8', '-in', pem, '-passout', 'pass:hush', '-v2', 'aes-128-cbc', ...args]).text
  isSame(encrypted('-iter', '100000'), 'hush', 'many iterations')
  let ticks = 0
  const ticking = setInterval(() => ticks++, 1)
  t.ok((await readPrivateKeyAsync(Buffer.from(encrypted('-iter', '100000')), 'hush')).equals(key))
  clearInterval(ticking)
  t.ok(ticks > 0, 'the event loop keeps running')
  t.ok((await readPrivateKeyAsync(Buffer.from(key.export({ format: 'pem', type: 'pkcs1' })), null)).equals(key))
  await t.rejects(readPrivateKeyAsync(Buffer.from(encrypted()), 'loud'), /cannot be read/)
  const refused: [string, string | Buffer, string | null, RegExp][] = [
    ['no passphrase', encrypted(), null, /no passphrase/],
    ['another passphrase', encrypted(), 'loud', /cannot be read/],
    [
      'scrypt',
      openssl(['pkcs8', '-topk8', '-in', pem, '-passout', 'pass:hush', '-scrypt']).text,
      'hush',
      /not supported/,
    ],
    [
      'a second key behind the first',
      encrypted() + key.export({ format: 'pem', type: 'pkcs8' }),
      'hush',
      /more than one/,
    ],
    ['nothing', '', null, /not valid DER/],
    ['text', 'hello', null, /not valid DER/],
    ['a certificate', authority('CN=Root', p256, 1, null).pem, null, /no PEM block/],
    ['Ed25519', openssl(['genpkey', '-algorithm', 'ed25519']).text, null, /must be an RSA key/],
  ]
  for (const [name, stored, passphrase, message] of refused) {
    t.match(
      refusal(() => readPrivateKey(Buffer.from(stored), passphrase)),
      message,
      name,
    )
  }
  const bomb = decodePem(encrypted('-iter', '1000'), ['ENCRYPTED PRIVATE KEY'], 'key')
  const rounds = bomb.indexOf(Buffer.from('020203e8', 'hex'))
  t.ok(rounds > 0)
  const patched = Buffer.concat([
    bomb.subarray(0, rounds),
    Buffer.from('02047fffffff', 'hex'),
    bomb.subarray(rounds + 4),
  ])
  // Each enclosing structure is two bytes longer.
  const grown = growBy(patched, 2, rounds)
  const started = performance.now()
  t.match(
    refusal(() => readPrivateKey(grown, 'hush')),
    /more than 1000000 iterations/,
  )
  t.ok(performance.now() - started < 10_000)
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 200 }), bytes => {
      refusal(() => readPrivateKey(Buffer.from(bytes), 'hush'))
    }),
  )
})
