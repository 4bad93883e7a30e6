import { createPrivateKey, type KeyObject } from 'node:crypto'
import { type Asn1, decodeUtf8, integerBytesIn, objectIdentifierIn, readDer, sequenceIn } from './encoding/asn1.js'
import { decodePem } from './encoding/pem.js'
import { decryptKey, decryptKeyAsync, isEncryptedKey } from './encrypted-private-key.js'
import { InvalidX509 } from './invalid-x509.js'
import { bitsIn, KEY_ALGORITHMS, KEY_KINDS, publicKeyOf, readPublicKey } from './public-key.js'

/** PEM labels of private keys, with the structure inside. */
const STRUCTURES = {
  'ENCRYPTED PRIVATE KEY': 'pkcs8',
  'PRIVATE KEY': 'pkcs8',
  'RSA PRIVATE KEY': 'pkcs1',
  'EC PRIVATE KEY': 'sec1',
} as const

const LABELS = ['ENCRYPTED PRIVATE KEY', 'PRIVATE KEY', 'RSA PRIVATE KEY', 'EC PRIVATE KEY'] as const

/** An RSA key of 8192 bits takes a fifth of this. */
const MAX_BYTES = 32_768
/** Version, modulus, two exponents, two primes with an exponent each, and their coefficient. */
const RSA_MEMBERS = 9

/**
 * Reads an untrusted private key: PEM or DER of PKCS#8, or PEM of PKCS#1 or SEC 1. Checks algorithm and sizes
 * before any arithmetic with the key. An encrypted key blocks this thread for up to seconds.
 * @param passphrase of an encrypted key
 * @throws InvalidX509 if this passphrase does not open it, or if the key is not supported
 */
export function readPrivateKey(stored: Buffer, passphrase: string | null): KeyObject {
  const format = formatOf(stored)
  if (format.kind === 'encrypted') return requireSupported(readPkcs8(decryptKey(format.info, passphrase)))
  return requireSupported(readOther(format, passphrase))
}

/** The same, but derives the key of an encrypted one on a native thread, without blocking this one. */
export async function readPrivateKeyAsync(stored: Buffer, passphrase: string | null): Promise<KeyObject> {
  const format = formatOf(stored)
  if (format.kind === 'encrypted') return requireSupported(readPkcs8(await decryptKeyAsync(format.info, passphrase)))
  return requireSupported(readOther(format, passphrase))
}

type OtherFormat = { kind: 'traditional encrypted'; text: string } | { kind: 'pkcs8' | 'pkcs1' | 'sec1'; der: Buffer }

type Format = { kind: 'encrypted'; info: Asn1 } | OtherFormat

function formatOf(stored: Buffer): Format {
  if (stored.length > MAX_BYTES) throw new InvalidX509(`A private key has at most ${MAX_BYTES} bytes.`)
  const text = stored.includes('-----BEGIN ') ? decodeUtf8(stored) : null
  if (text?.includes('Proc-Type:')) return { kind: 'traditional encrypted', text }
  const label = LABELS.find(each => text?.includes(`-----BEGIN ${each}-----`)) ?? 'PRIVATE KEY'
  const der = text === null ? stored : decodePem(text, [label], 'private key')
  const kind = STRUCTURES[label]
  if (kind !== 'pkcs8') return { kind, der }
  const info = readDer(der, 'private key')
  return isEncryptedKey(info) ? { kind: 'encrypted', info } : { kind, der }
}

function readOther(format: OtherFormat, passphrase: string | null): KeyObject {
  if (format.kind === 'traditional encrypted') return readTraditionalEncrypted(format.text, passphrase)
  return format.kind === 'pkcs8'
    ? readPkcs8(format.der)
    : createKey({ key: format.der, format: 'der', type: format.kind })
}

function requireSupported(key: KeyObject): KeyObject {
  readPublicKey(publicKeyOf(key).info)
  if (key.asymmetricKeyType === 'rsa') requireConsistentNumbers(key)
  return key
}

/**
 * The traditional encryption derives its key in one round, so it needs no limit of iterations; PKCS#8 has
 * other labels.
 */
function readTraditionalEncrypted(text: string, passphrase: string | null): KeyObject {
  const blocks = text.split('-----BEGIN ')
  if (blocks.length !== 2) throw new InvalidX509('The private key has more than one PEM block.')
  if (!/^(RSA|EC) PRIVATE KEY-----/.test(blocks[1] ?? '')) throw unreadable()
  return createKey({ key: text, format: 'pem', ...(passphrase === null ? {} : { passphrase }) })
}

function readPkcs8(plain: Buffer): KeyObject {
  requireKnownAlgorithm(plain)
  return createKey({ key: plain, format: 'der', type: 'pkcs8' })
}

/** For some other algorithms, reading a key computes its public half at once, whatever the size of its numbers. */
function requireKnownAlgorithm(der: Buffer): void {
  const algorithm = sequenceIn(readDecrypted(der)?.[1])
  if (algorithm === null) throw unreadable()
  if (!KEY_ALGORITHMS.has(objectIdentifierIn(algorithm[0]) ?? '')) {
    throw new InvalidX509(`The private key must be ${KEY_KINDS}.`)
  }
}

function readDecrypted(der: Buffer) {
  try {
    return sequenceIn(readDer(der, 'private key'))
  } catch {
    throw unreadable()
  }
}

function createKey(input: Parameters<typeof createPrivateKey>[0]): KeyObject {
  try {
    return createPrivateKey(input)
  } catch {
    throw unreadable()
  }
}

const unreadable = () => new InvalidX509('The private key cannot be read.')

/**
 * OpenSSL signs with primes and exponents as they are; if they were longer than the modulus, that would block
 * the process for minutes.
 * @throws InvalidX509
 */
function requireConsistentNumbers(key: KeyObject): void {
  const members = sequenceIn(readDer(key.export({ format: 'der', type: 'pkcs1' }), 'private key')) ?? []
  const numbers = members.map(integerBytesIn)
  const [, modulus = null, , , first = null, second = null] = numbers
  const isLong = numbers.some(number => bitsIn(number) > bitsIn(modulus))
  if (members.length !== RSA_MEMBERS || isLong || toBigInt(first) * toBigInt(second) !== toBigInt(modulus)) {
    throw new InvalidX509('The numbers of the RSA key are inconsistent.')
  }
}

const toBigInt = (bytes: Buffer | null): bigint => BigInt(`0x${bytes?.toString('hex') || '0'}`)
