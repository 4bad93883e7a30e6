import { execFile } from 'node:child_process'
import { generateKeyPairSync } from 'node:crypto'
import { join } from 'node:path'
import { build } from 'esbuild'
import t from 'tap'
import {
  type Asn1,
  bitString,
  integer,
  nullValue,
  objectIdentifier,
  octetString,
  sequence,
  setOf,
  tagged,
  writeDer,
} from '../../../x509/encoding/asn1.js'
import { parseDistinguishedName } from '../../../x509/encoding/distinguished-name.js'
import { encodeName } from '../../../x509/encoding/name-encoding.js'
import { encodePem } from '../../../x509/encoding/pem.js'
import type { ToRead, WasRead } from '../../support/inputs/x509-reader.js'

/** Reading any X.509 input from a tenant takes bounded time and memory. */

/** CPU time limit for one input; the most expensive valid input takes half of it. */
const MAX_MILLISECONDS = 3000
const HEAP_MEGABYTES = 48
const MAX_MEGABYTES = 160
/** The longest payload that a secret may have. */
const SECRET_BYTES = 20_000

const oid = objectIdentifier
const RSA = '1.2.840.113549.1.1.1'
const DSA = '1.2.840.10040.4.1'
const DIFFIE_HELLMAN = '1.2.840.113549.1.3.1'

/** An odd integer of `length` bytes. */
function odd(length: number, seed = 1): Buffer {
  const bytes = Buffer.from(Array.from({ length }, (_, at) => (at * 197 + seed * 13 + (at >> 3) * 7) & 0xff))
  bytes.writeUInt8(0xc1, 0)
  bytes.writeUInt8(bytes.readUInt8(length - 1) | 1, length - 1)
  return bytes
}

const numbers = (...values: (Buffer | number)[]): Asn1 => sequence(...values.map(integer))

const pkcs8 = (algorithm: Asn1, key: Asn1): Buffer =>
  writeDer(sequence(integer(0), algorithm, octetString(writeDer(key))))

const rsaKey = (...values: Buffer[]): Asn1 => numbers(0, odd(256), 65537, ...values)
const rsaInfo = sequence(oid(RSA), nullValue())

/** An encrypted PKCS#8 key. @param derivation the PBKDF2 parameters that follow the salt */
function encryptedKey(derivation: Asn1[], { salt = odd(16), content = odd(64) } = {}): Buffer {
  const pbkdf2 = sequence(oid('1.2.840.113549.1.5.12'), sequence(octetString(salt), ...derivation))
  const cipher = sequence(oid('2.16.840.1.101.3.4.1.42'), octetString(odd(16)))
  return writeDer(sequence(sequence(oid('1.2.840.113549.1.5.13'), sequence(pbkdf2, cipher)), octetString(content)))
}

/** A certificate request for a key, with a made-up signature. */
const requestFor = (keyInfo: Asn1, subject = encodeName(parseDistinguishedName('CN=x')), attributes = tagged(0)) =>
  writeDer(
    sequence(
      sequence(integer(0), subject, keyInfo, attributes),
      sequence(oid('1.2.840.113549.1.1.11'), nullValue()),
      bitString(odd(1024)),
    ),
  )
const rsaPublic = (modulus: Buffer, exponent: Buffer | number) =>
  sequence(rsaInfo, bitString(writeDer(numbers(modulus, exponent))))

const { privateKey: dsaKey } = generateKeyPairSync('dsa', { modulusLength: 2048, divisorLength: 256 })
const ecKey = generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey
const encryptedPem = String(ecKey.export({ format: 'pem', type: 'pkcs8', cipher: 'aes-256-cbc', passphrase: 'hush' }))

/** Each level's length covers everything after it. */
function nested(levels: number): Buffer {
  const headers = Buffer.alloc(4 * levels)
  for (let level = 0; level < levels; level++) {
    headers.writeUInt16BE(0x3082, 4 * level)
    headers.writeUInt16BE(4 * (levels - level - 1), 4 * level + 2)
  }
  return headers
}

/** The outer structure of a PKCS#12 file: content, and a MAC with 2^31 iterations. */
const pkcs12 = writeDer(
  sequence(
    integer(3),
    sequence(oid('1.2.840.113549.1.7.1'), tagged(0, octetString(odd(2000)))),
    sequence(
      sequence(sequence(oid('2.16.840.1.101.3.4.2.1'), nullValue()), octetString(odd(32))),
      octetString(odd(8)),
      integer(0x7fffffff),
    ),
  ),
)

const shared: [name: string, bytes: Buffer, refusal: RegExp][] = [
  ['nested sequences', nested(4500), /not valid DER/],
  ['sequences without an end', Buffer.concat([Buffer.alloc(9000, Buffer.of(0x30, 0x80)), Buffer.alloc(9000)]), /DER/],
  ['many empty sequences', writeDer(sequence(...Array.from({ length: 9000 }, () => sequence()))), /./],
  ['a length of four gigabytes', Buffer.from('3084ffffffff', 'hex'), /not valid DER/],
  ['a length of 126 bytes', Buffer.concat([Buffer.of(0x30, 0xfe), Buffer.alloc(200, 0xff)]), /not valid DER/],
  ['PKCS#12', pkcs12, /./],
]

const privateKeys: [name: string, bytes: Buffer | string, refusal: RegExp][] = [
  ...shared,
  ['2^31 rounds', encryptedKey([integer(0x7fffffff)]), /more than 1000000 iterations/],
  ['2^64 rounds', encryptedKey([integer(Buffer.alloc(8, 0xff))]), /more than 1000000 iterations/],
  ['no rounds', encryptedKey([integer(0)]), /cannot be read/],
  ['the maximum number of rounds, with a long salt', encryptedKey([integer(1_000_000)], { salt: odd(15_000) }), /read/],
  ['a derived key of 2 GB', encryptedKey([integer(1000), integer(0x7fffffff)]), /cannot be read/],
  [
    '2^31 rounds in PEM that says it is of the older kind',
    `Proc-Type: 4,ENCRYPTED\n${encodePem('ENCRYPTED PRIVATE KEY', encryptedKey([integer(0x7fffffff)]))}`,
    /cannot be read/,
  ],
  ...['RSA', 'EC'].map((kind): [string, string, RegExp] => [
    `2^31 rounds in PEM of the older kind for ${kind}`,
    encodePem(`${kind} PRIVATE KEY`, encryptedKey([integer(0x7fffffff)])).replace('\n', '\nProc-Type: 4,ENCRYPTED\n\n'),
    /cannot be read/,
  ]),
  ...['RSA', 'EC'].map((kind): [string, string, RegExp] => [
    `2^31 rounds in a block for ${kind}`,
    encodePem(`${kind} PRIVATE KEY`, encryptedKey([integer(0x7fffffff)])),
    /cannot be read/,
  ]),
  [
    'scrypt with 32 GB',
    writeDer(
      sequence(
        sequence(
          oid('1.2.840.113549.1.5.13'),
          sequence(
            sequence(oid('1.3.6.1.4.1.11591.4.11'), sequence(octetString(odd(16)), ...[2 ** 25, 8, 1].map(integer))),
            sequence(oid('2.16.840.1.101.3.4.1.42'), octetString(odd(16))),
          ),
        ),
        octetString(odd(64)),
      ),
    ),
    /not supported/,
  ],
  [
    'a DSA key of 80,000 bits',
    pkcs8(sequence(oid(DSA), numbers(odd(9900), odd(32), 2)), integer(odd(9900, 3))),
    /must be/,
  ],
  [
    'a Diffie-Hellman key',
    pkcs8(sequence(oid(DIFFIE_HELLMAN), numbers(odd(9900), 2)), integer(odd(9900, 3))),
    /must be/,
  ],
  [
    'an encrypted DSA key',
    dsaKey.export({ format: 'der', type: 'pkcs8', cipher: 'aes-128-cbc', passphrase: 'hush' }),
    /must be/,
  ],
  [
    'an RSA key with primes that are far longer than the modulus',
    pkcs8(rsaInfo, rsaKey(odd(256, 5), ...[2, 3, 4, 5, 6].map(seed => odd(3800, seed)))),
    /are inconsistent/,
  ],
  [
    'the same in PEM of the older kind',
    encodePem('RSA PRIVATE KEY', writeDer(rsaKey(odd(256, 5), ...[2, 3, 4, 5, 6].map(seed => odd(2500, seed))))),
    /are inconsistent/,
  ],
  [
    'an RSA key with a private exponent of 120,000 bits',
    pkcs8(rsaInfo, rsaKey(odd(15_000), ...[0, 0, 0, 0, 0].map(value => Buffer.of(value)))),
    /are inconsistent/,
  ],
  [
    'an RSA key with many primes',
    pkcs8(
      rsaInfo,
      sequence(
        ...[integer(1), integer(odd(256)), integer(65537), ...[1, 2, 3, 4, 5, 6].map(seed => integer(odd(128, seed)))],
        sequence(...Array.from({ length: 40 }, (_, at) => numbers(odd(100, at), odd(100, at), odd(100, at)))),
      ),
    ),
    /cannot be read|are inconsistent/,
  ],
  ['an RSA key of 60,000 bits', pkcs8(rsaInfo, numbers(0, odd(7500), 65537, odd(7500), 3, 3, 1, 1, 1)), /2048 to 8192/],
  ['the maximum allowed', encryptedPem, /accepted/],
]

const requests: [name: string, bytes: Buffer | string, refusal: RegExp][] = [
  ...shared,
  ['RSA of 16384 bits', requestFor(rsaPublic(odd(2048), 65537)), /2048 to 8192 bits; this one has 16384/],
  ['a public exponent as long as the modulus', requestFor(rsaPublic(odd(1024), odd(1024, 2))), /public exponent/],
  ['a public exponent of 80,000 bits', requestFor(rsaPublic(odd(256), odd(10_000, 2))), /public exponent/],
  ['RSA of 8192 bits with the largest exponent', requestFor(rsaPublic(odd(1024), 0x7fffffff)), /signature/],
  ['an even modulus', requestFor(rsaPublic(Buffer.alloc(256, 0xaa), 65537)), /modulus/],
  [
    'DSA of 80,000 bits',
    requestFor(sequence(sequence(oid(DSA), numbers(odd(9900), odd(32), 2)), bitString(writeDer(integer(odd(9900)))))),
    /must be/,
  ],
  [
    'a subject of many parts',
    requestFor(
      rsaPublic(odd(256), 3),
      sequence(...Array.from({ length: 900 }, () => encodeName([[{ type: '2.5.4.3', value: 'x' }]]))),
    ),
    /signature/,
  ],
  [
    'many attributes',
    requestFor(
      rsaPublic(odd(256), 3),
      undefined,
      tagged(0, ...Array.from({ length: 2500 }, () => sequence(oid('1.2.3'), setOf()))),
    ),
    /signature/,
  ],
  ['PEM without an end', `-----BEGIN CERTIFICATE REQUEST-----\n${'A'.repeat(60_000)}`, /no END line/],
  ['many PEM headers', '-----BEGIN CERTIFICATE REQUEST-----'.repeat(1700), /./],
  [
    'PEM of line breaks',
    `-----BEGIN CERTIFICATE REQUEST-----${'\n'.repeat(60_000)}-----END CERTIFICATE REQUEST-----`,
    /./,
  ],
  [
    'PEM of padding',
    `-----BEGIN CERTIFICATE REQUEST-----${'='.repeat(60_000)}-----END CERTIFICATE REQUEST-----`,
    /base64/,
  ],
]

const subjects: [name: string, bytes: Buffer | string, refusal: RegExp][] = [
  ['white space', ' '.repeat(20_000), /2000 characters/],
  ['white space within the limit', ' '.repeat(2000), /expected/],
  ['white space before no value', `CN${' '.repeat(1900)}`, /expected/],
  ['dots', `1.2${'.3'.repeat(990)}=x`, /expected/],
  ['signs', 'CN=a+'.repeat(400), /expected|twice/],
  ['backslashes', `CN=${'\\'.repeat(1900)}`, /control|accepted|characters|escaped/],
]

const program = join(t.testdir({}), 'reader.mjs')
await build({
  entryPoints: [join(import.meta.dirname, '../../support/inputs/x509-reader.ts')],
  ...{ bundle: true, platform: 'node', target: 'node20', format: 'esm', packages: 'external', logLevel: 'error' },
  outfile: program,
})

/** Reads in a separate process with a small heap. Keeps the results printed before the time limit. */
function readAll(items: readonly ToRead[]): Promise<WasRead[]> {
  return new Promise(resolve => {
    const child = execFile(
      process.execPath,
      [`--max-old-space-size=${HEAP_MEGABYTES}`, program],
      { timeout: 60_000, killSignal: 'SIGKILL' },
      (_error, stdout) =>
        resolve(
          stdout
            .split('\n')
            .filter(Boolean)
            .map(line => JSON.parse(line) as WasRead),
        ),
    )
    child.stdin?.end(JSON.stringify(items))
  })
}

for (const [as, bombs] of [
  ['private key', privateKeys],
  ['request', requests],
  ['subject', subjects],
] as const) {
  t.test(`hostile input read as a ${as} costs bounded time and memory`, async t => {
    if (as === 'private key') {
      for (const [name, bytes] of bombs) t.ok(Buffer.byteLength(bytes) <= SECRET_BYTES, `${name} fits into a secret`)
    }
    const items = bombs.map(([name, bytes]) => ({ name, as, base64: Buffer.from(bytes).toString('base64') }))
    const read = await readAll(items)
    for (const [name, , refusal] of bombs) {
      const { outcome, milliseconds, megabytes } = read.find(each => each.name === name) ?? {
        ...{ outcome: 'the process did not finish', milliseconds: Infinity, megabytes: Infinity },
      }
      t.match(outcome, refusal, name)
      t.ok(milliseconds < MAX_MILLISECONDS, `${name}: ${milliseconds.toFixed(0)} ms`)
      t.ok(megabytes < MAX_MEGABYTES, `${name}: ${megabytes.toFixed(0)} MB`)
    }
  })
}
