import { createDecipheriv, pbkdf2, pbkdf2Sync } from 'node:crypto'
import { promisify } from 'node:util'
import { type Asn1, objectIdentifierIn, octetStringIn, sequenceIn, smallIntegerIn } from './encoding/asn1.js'
import { InvalidX509 } from './invalid-x509.js'

const PBES2 = '1.2.840.113549.1.5.13'
const PBKDF2 = '1.2.840.113549.1.5.12'
/** More would block the process for seconds. */
const MAX_ITERATIONS = 1_000_000

type Cipher = { name: string; keyBytes: number; ivBytes: number }

const HMAC_SHA1 = '1.2.840.113549.2.7'

const DIGESTS: Readonly<Record<string, string>> = {
  [HMAC_SHA1]: 'sha1',
  '1.2.840.113549.2.8': 'sha224',
  '1.2.840.113549.2.9': 'sha256',
  '1.2.840.113549.2.10': 'sha384',
  '1.2.840.113549.2.11': 'sha512',
}

const CIPHERS: Readonly<Record<string, Cipher>> = {
  '2.16.840.1.101.3.4.1.2': { name: 'aes-128-cbc', keyBytes: 16, ivBytes: 16 },
  '2.16.840.1.101.3.4.1.22': { name: 'aes-192-cbc', keyBytes: 24, ivBytes: 16 },
  '2.16.840.1.101.3.4.1.42': { name: 'aes-256-cbc', keyBytes: 32, ivBytes: 16 },
  '1.2.840.113549.3.7': { name: 'des-ede3-cbc', keyBytes: 24, ivBytes: 8 },
}

/** Whether this is an EncryptedPrivateKeyInfo; an unencrypted private key begins with its version instead. */
export const isEncryptedKey = (info: Asn1): boolean => sequenceIn(sequenceIn(info)?.[0]) !== null

/**
 * Decrypts the EncryptedPrivateKeyInfo of an untrusted PKCS#8 key. Done here rather than by createPrivateKey,
 * so that the content can be checked before any arithmetic with the key. Blocks this thread for up to seconds.
 * @returns the decrypted bytes; a wrong passphrase may give garbage
 * @throws InvalidX509 for an encryption whose cost has no small limit, and for most wrong passphrases
 */
export function decryptKey(info: Asn1, passphrase: string | null): Buffer {
  const encryption = encryptionOf(info)
  const { salt, iterations, cipher, digest } = encryption
  return open(encryption, pbkdf2Sync(requirePassphrase(passphrase), salt, iterations, cipher.keyBytes, digest))
}

/** The same on a native thread, without blocking this one. */
export async function decryptKeyAsync(info: Asn1, passphrase: string | null): Promise<Buffer> {
  const encryption = encryptionOf(info)
  const { salt, iterations, cipher, digest } = encryption
  return open(encryption, await derive(requirePassphrase(passphrase), salt, iterations, cipher.keyBytes, digest))
}

const derive = promisify(pbkdf2)

type Encryption = { salt: Buffer; iterations: number; digest: string; cipher: Cipher; iv: Buffer; bytes: Buffer }

function encryptionOf(info: Asn1): Encryption {
  const [algorithm, encrypted] = sequenceIn(info) ?? []
  const [scheme, parameters] = sequenceIn(algorithm) ?? []
  const [derivation, encryption] = sequenceIn(parameters) ?? []
  const [derivationOid, derivationParameters] = sequenceIn(derivation) ?? []
  const [cipherOid, initialVector] = sequenceIn(encryption) ?? []
  const [saltValue, rounds, ...rest] = sequenceIn(derivationParameters) ?? []
  const cipher = CIPHERS[objectIdentifierIn(cipherOid) ?? '']
  const digest = DIGESTS[pseudoRandomFunctionIn(rest)]
  const [salt, iv, bytes] = [saltValue, initialVector, encrypted].map(octetStringIn)
  const isKnown = objectIdentifierIn(scheme) === PBES2 && objectIdentifierIn(derivationOid) === PBKDF2
  if (!isKnown || cipher === undefined || digest === undefined || !salt || !bytes || iv?.length !== cipher.ivBytes) {
    throw new InvalidX509('The encryption of the private key is not supported; use PBES2 with PBKDF2.')
  }
  const iterations = smallIntegerIn(rounds)
  if (iterations === null || iterations > MAX_ITERATIONS) {
    throw new InvalidX509(`The private key is encrypted with more than ${MAX_ITERATIONS} iterations.`)
  }
  if (iterations === 0) throw unreadable()
  return { salt, iterations, digest, cipher, iv, bytes }
}

function requirePassphrase(passphrase: string | null): string {
  if (passphrase === null) throw new InvalidX509('The private key is encrypted, but the container has no passphrase.')
  return passphrase
}

function open({ cipher, iv, bytes }: Encryption, key: Buffer): Buffer {
  try {
    const decipher = createDecipheriv(cipher.name, key, iv)
    return Buffer.concat([decipher.update(bytes), decipher.final()])
  } catch {
    throw unreadable()
  }
}

const unreadable = () => new InvalidX509('The private key cannot be read.')

/**
 * After salt and iterations come the key length, known from the cipher, and the pseudo-random function; both
 * are optional.
 */
function pseudoRandomFunctionIn(rest: readonly Asn1[]): string {
  const algorithm = sequenceIn(rest.at(-1))
  return algorithm === null ? HMAC_SHA1 : (objectIdentifierIn(algorithm[0]) ?? '')
}
