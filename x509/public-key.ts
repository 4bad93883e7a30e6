import { createHash, createPublicKey, type KeyObject } from 'node:crypto'
import {
  type Asn1,
  bitStringIn,
  integerBytesIn,
  objectIdentifierIn,
  readDer,
  sequenceIn,
  smallIntegerIn,
  writeDer,
} from './encoding/asn1.js'
import { InvalidX509 } from './invalid-x509.js'

const RSA_ENCRYPTION = '1.2.840.113549.1.1.1'
const EC_PUBLIC_KEY = '1.2.840.10045.2.1'
/** Object identifiers of the supported curves. */
const CURVES: ReadonlySet<string> = new Set(['1.2.840.10045.3.1.7', '1.3.132.0.34', '1.3.132.0.35'])

/** Object identifiers of the supported key algorithms. */
export const KEY_ALGORITHMS: ReadonlySet<string> = new Set([RSA_ENCRYPTION, EC_PUBLIC_KEY])
/** The supported keys, for messages. */
export const KEY_KINDS = 'an RSA key, or an EC key on P-256, P-384 or P-521'

const MIN_RSA_BITS = 2048
/** With a larger key a single operation delays other requests noticeably. */
const MAX_RSA_BITS = 8192

/** A public key with its SubjectPublicKeyInfo. */
export type PublicKey = { info: Asn1; key: KeyObject }

/**
 * Reads an untrusted SubjectPublicKeyInfo: checks algorithm and size before any arithmetic with the key.
 * @throws InvalidX509 unless it is RSA of 2048 to 8192 bits or EC on P-256, P-384 or P-521
 */
export function readPublicKey(info: Asn1 | undefined): PublicKey {
  const [algorithm, bits] = sequenceIn(info) ?? []
  const [oid, parameters] = (sequenceIn(algorithm) ?? []).map(objectIdentifierIn)
  const content = bitStringIn(bits)
  if (info === undefined || content === null) throw new InvalidX509('The public key cannot be read.')
  if (oid === RSA_ENCRYPTION) checkRsaKey(content)
  else if (oid !== EC_PUBLIC_KEY || !CURVES.has(parameters ?? '')) {
    throw new InvalidX509(`The public key must be ${KEY_KINDS}.`)
  }
  try {
    return { info, key: createPublicKey({ key: writeDer(info), format: 'der', type: 'spki' }) }
  } catch {
    throw new InvalidX509('The public key cannot be read.')
  }
}

function checkRsaKey(content: Buffer): void {
  const [modulus, exponent] = sequenceIn(readDer(content, 'RSA public key')) ?? []
  const number = integerBytesIn(modulus)
  const bits = bitsIn(number)
  if (bits < MIN_RSA_BITS || bits > MAX_RSA_BITS) {
    throw new InvalidX509(`An RSA key must have ${MIN_RSA_BITS} to ${MAX_RSA_BITS} bits; this one has ${bits}.`)
  }
  if ((number?.at(-1) ?? 0) % 2 === 0) throw new InvalidX509('The modulus of the RSA key is even.')
  const value = smallIntegerIn(exponent)
  if (value === null || value < 3 || value % 2 === 0) {
    throw new InvalidX509('The public exponent of the RSA key must be odd, at least 3 and below 2^31.')
  }
}

/** Bits of a non-negative DER integer; 0 for a negative one. */
export function bitsIn(bytes: Buffer | null): number {
  if (bytes === null || (bytes[0] ?? 0x80) >= 0x80) return 0
  const firstUsed = bytes.findIndex(byte => byte !== 0)
  if (firstUsed === -1) return 0
  return (bytes.length - firstUsed - 1) * 8 + (32 - Math.clz32(bytes[firstUsed] ?? 0))
}

/** The public half of a private key. */
export function publicKeyOf(privateKey: KeyObject): PublicKey {
  const key = createPublicKey(privateKey)
  return { key, info: readDer(key.export({ format: 'der', type: 'spki' }), 'public key') }
}

/** Key identifier by method 1 of RFC 7093: the leftmost 160 bits of the SHA-256 of the subjectPublicKey bits. */
export function keyIdentifierOf({ info }: PublicKey): Buffer {
  const bits = bitStringIn(sequenceIn(info)?.[1])
  if (bits === null) throw new Error('The SubjectPublicKeyInfo has no key bits.')
  return createHash('sha256').update(bits).digest().subarray(0, 20)
}
