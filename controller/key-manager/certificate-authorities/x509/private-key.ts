import { createPrivateKey, type KeyObject } from 'node:crypto'
import { decodeUtf8, objectIdentifierIn, readDer, sequenceIn, smallIntegerIn } from './asn1.js'
import { InvalidX509 } from './invalid-x509.js'
import { derOfPem } from './pem.js'
import { publicKeyOf, readPublicKey } from './public-key.js'

const PBES2 = '1.2.840.113549.1.5.13'
const PBKDF2 = '1.2.840.113549.1.5.12'
/** More would hold the process up for seconds. */
const MOST_ITERATIONS = 1_000_000

/** What the PEM of a private key may be called, with the structure inside; the first may be encrypted. */
const STRUCTURES = {
  'ENCRYPTED PRIVATE KEY': 'pkcs8',
  'PRIVATE KEY': 'pkcs8',
  'RSA PRIVATE KEY': 'pkcs1',
  'EC PRIVATE KEY': 'sec1',
} as const

const LABELS = ['ENCRYPTED PRIVATE KEY', 'PRIVATE KEY', 'RSA PRIVATE KEY', 'EC PRIVATE KEY'] as const

/**
 * Reads a private key that anybody may have stored: PEM or DER of PKCS#8, or PEM of the older forms.
 * @param passphrase of an encrypted key
 * @throws InvalidX509 when it cannot be read with this passphrase, or is a key that must not be certified
 */
export function readPrivateKey(stored: Buffer, passphrase: string | null): KeyObject {
  const key = decode(stored, passphrase)
  readPublicKey(publicKeyOf(key).info)
  return key
}

function decode(stored: Buffer, passphrase: string | null): KeyObject {
  const text = stored.includes('-----BEGIN ') ? decodeUtf8(stored) : null
  if (text?.includes('Proc-Type:')) {
    if (text.split('-----BEGIN ').length !== 2) throw new InvalidX509('There is more than one private key.')
    // The older encrypted form derives its key in one round.
    return create({ key: text, format: 'pem', ...(passphrase === null ? {} : { passphrase }) })
  }
  const label = LABELS.find(each => text?.includes(`-----BEGIN ${each}-----`)) ?? 'PRIVATE KEY'
  const der = text === null ? stored : derOfPem(text, [label], 'private key')
  const type = STRUCTURES[label]
  if (type !== 'pkcs8' || !isEncrypted(der)) return create({ key: der, format: 'der', type })
  if (passphrase === null) throw new InvalidX509('The private key is encrypted, and the container holds no passphrase.')
  return create({ key: der, format: 'der', type, passphrase })
}

function create(input: Parameters<typeof createPrivateKey>[0]): KeyObject {
  try {
    return createPrivateKey(input)
  } catch {
    throw new InvalidX509('The private key cannot be read.')
  }
}

/** @throws InvalidX509 for an encryption whose cost is not known to be small */
function isEncrypted(der: Buffer): boolean {
  const [first] = sequenceIn(readDer(der, 'private key')) ?? []
  const algorithm = sequenceIn(first)
  if (algorithm === null) return false
  const [derivation] = sequenceIn(algorithm[1]) ?? []
  const [derivationOid, parameters] = sequenceIn(derivation) ?? []
  const iterations = smallIntegerIn(sequenceIn(parameters)?.[1])
  if (objectIdentifierIn(algorithm[0]) !== PBES2 || objectIdentifierIn(derivationOid) !== PBKDF2) {
    throw new InvalidX509('The private key is encrypted in a way that is not supported; PBES2 with PBKDF2 is.')
  }
  if (iterations === null || iterations > MOST_ITERATIONS) {
    throw new InvalidX509(`The private key is encrypted with more than ${MOST_ITERATIONS} iterations.`)
  }
  return true
}
