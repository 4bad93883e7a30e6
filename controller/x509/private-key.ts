import { createPrivateKey, type KeyObject } from 'node:crypto'
import { type Asn1, decodeUtf8, integerBytesIn, objectIdentifierIn, readDer, sequenceIn } from './encoding/asn1.js'
import { derOfPem } from './encoding/pem.js'
import { decryptKey, decryptKeyAside, isEncryptedKey } from './encrypted-private-key.js'
import { InvalidX509 } from './invalid-x509.js'
import { bitsIn, KEY_ALGORITHMS, KEY_KINDS, publicKeyOf, readPublicKey } from './public-key.js'

/** What the PEM of a private key may be called, with the structure inside. */
const STRUCTURES = {
  'ENCRYPTED PRIVATE KEY': 'pkcs8',
  'PRIVATE KEY': 'pkcs8',
  'RSA PRIVATE KEY': 'pkcs1',
  'EC PRIVATE KEY': 'sec1',
} as const

const LABELS = ['ENCRYPTED PRIVATE KEY', 'PRIVATE KEY', 'RSA PRIVATE KEY', 'EC PRIVATE KEY'] as const

/** An RSA key of 8192 bits is a fifth of it. */
const MOST_BYTES = 32_768
/** Version, modulus, two exponents, two primes with an exponent each, and their coefficient. */
const RSA_NUMBERS = 9

/**
 * Reads a private key that anybody may have stored: PEM or DER of PKCS#8, or PEM of the older forms. Kind and sizes are checked before any
 * mathematics is done with it. Takes up to seconds when it is encrypted, in which this thread does nothing else.
 * @param passphrase of an encrypted key
 * @throws InvalidX509 when it cannot be read with this passphrase, or is a key that must not be certified
 */
export function readPrivateKey(stored: Buffer, passphrase: string | null): KeyObject {
  const form = formOf(stored)
  if (form.kind === 'encrypted') return usable(fromPkcs8(decryptKey(form.info, passphrase)))
  return usable(fromOther(form, passphrase))
}

/** The same, while this thread goes on: a key that is encrypted takes a native one. */
export async function readPrivateKeyAside(stored: Buffer, passphrase: string | null): Promise<KeyObject> {
  const form = formOf(stored)
  if (form.kind === 'encrypted') return usable(fromPkcs8(await decryptKeyAside(form.info, passphrase)))
  return usable(fromOther(form, passphrase))
}

type OtherForm = { kind: 'older encrypted'; text: string } | { kind: 'pkcs8' | 'pkcs1' | 'sec1'; der: Buffer }

type Form = { kind: 'encrypted'; info: Asn1 } | OtherForm

function formOf(stored: Buffer): Form {
  if (stored.length > MOST_BYTES) throw new InvalidX509(`A private key has at most ${MOST_BYTES} bytes.`)
  const text = stored.includes('-----BEGIN ') ? decodeUtf8(stored) : null
  if (text?.includes('Proc-Type:')) return { kind: 'older encrypted', text }
  const label = LABELS.find(each => text?.includes(`-----BEGIN ${each}-----`)) ?? 'PRIVATE KEY'
  const der = text === null ? stored : derOfPem(text, [label], 'private key')
  const kind = STRUCTURES[label]
  if (kind !== 'pkcs8') return { kind, der }
  const info = readDer(der, 'private key')
  return isEncryptedKey(info) ? { kind: 'encrypted', info } : { kind, der }
}

function fromOther(form: OtherForm, passphrase: string | null): KeyObject {
  if (form.kind === 'older encrypted') return decodeOlderEncrypted(form.text, passphrase)
  return form.kind === 'pkcs8' ? fromPkcs8(form.der) : create({ key: form.der, format: 'der', type: form.kind })
}

function usable(key: KeyObject): KeyObject {
  readPublicKey(publicKeyOf(key).info)
  if (key.asymmetricKeyType === 'rsa') requireUsableNumbers(key)
  return key
}

/** The older encrypted form derives its key in one round; the newer one goes by other labels, and its rounds are counted. */
function decodeOlderEncrypted(text: string, passphrase: string | null): KeyObject {
  const blocks = text.split('-----BEGIN ')
  if (blocks.length !== 2) throw new InvalidX509('There is more than one private key.')
  if (!/^(RSA|EC) PRIVATE KEY-----/.test(blocks[1] ?? '')) throw unreadable()
  return create({ key: text, format: 'pem', ...(passphrase === null ? {} : { passphrase }) })
}

function fromPkcs8(plain: Buffer): KeyObject {
  requireKnownAlgorithm(plain)
  return create({ key: plain, format: 'der', type: 'pkcs8' })
}

/** Of keys of some other algorithms the public half is computed as soon as they are read, whatever the size of their numbers. */
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

function create(input: Parameters<typeof createPrivateKey>[0]): KeyObject {
  try {
    return createPrivateKey(input)
  } catch {
    throw unreadable()
  }
}

const unreadable = () => new InvalidX509('The private key cannot be read.')

/**
 * OpenSSL signs with primes and exponents as they are: those that are longer than the modulus would hold the process up for minutes.
 * @throws InvalidX509
 */
function requireUsableNumbers(key: KeyObject): void {
  const members = sequenceIn(readDer(key.export({ format: 'der', type: 'pkcs1' }), 'private key')) ?? []
  const numbers = members.map(integerBytesIn)
  const [, modulus = null, , , first = null, second = null] = numbers
  const isLong = numbers.some(number => bitsIn(number) > bitsIn(modulus))
  if (members.length !== RSA_NUMBERS || isLong || numberIn(first) * numberIn(second) !== numberIn(modulus)) {
    throw new InvalidX509('The numbers of the RSA key do not belong together.')
  }
}

const numberIn = (bytes: Buffer | null): bigint => BigInt(`0x${bytes?.toString('hex') || '0'}`)
