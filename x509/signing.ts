import { type KeyObject, sign, verify } from 'node:crypto'
import { type Asn1, bitString, nullValue, objectIdentifier, sequence, writeDer } from './encoding/asn1.js'

type SignatureAlgorithm = { oid: string; digest: 'sha256' | 'sha384' | 'sha512'; keyType: 'rsa' | 'ec' }

const ALGORITHMS: readonly SignatureAlgorithm[] = [
  { oid: '1.2.840.113549.1.1.11', digest: 'sha256', keyType: 'rsa' },
  { oid: '1.2.840.113549.1.1.12', digest: 'sha384', keyType: 'rsa' },
  { oid: '1.2.840.113549.1.1.13', digest: 'sha512', keyType: 'rsa' },
  { oid: '1.2.840.10045.4.3.2', digest: 'sha256', keyType: 'ec' },
  { oid: '1.2.840.10045.4.3.3', digest: 'sha384', keyType: 'ec' },
  { oid: '1.2.840.10045.4.3.4', digest: 'sha512', keyType: 'ec' },
]

/** SHA-256 for RSA; for EC the digest that matches the curve. */
function algorithmFor(key: KeyObject): SignatureAlgorithm {
  const curve = key.asymmetricKeyDetails?.namedCurve
  const digest = curve === 'secp384r1' ? 'sha384' : curve === 'secp521r1' ? 'sha512' : 'sha256'
  const found = ALGORITHMS.find(known => known.keyType === key.asymmetricKeyType && known.digest === digest)
  if (found === undefined) throw new Error(`Keys of type ${key.asymmetricKeyType} cannot sign certificates.`)
  return found
}

/** The AlgorithmIdentifier of signatures with a key. */
export function algorithmIdentifier(key: KeyObject): Asn1 {
  const { oid, keyType } = algorithmFor(key)
  return sequence(objectIdentifier(oid), ...(keyType === 'rsa' ? [nullValue()] : []))
}

/** The common structure of certificates, certificate requests and revocation lists: content, algorithm, signature. */
export function signed(content: Asn1, key: KeyObject): Asn1 {
  const signature = sign(algorithmFor(key).digest, writeDer(content), key)
  return sequence(content, algorithmIdentifier(key), bitString(signature))
}

/** Whether a signature is valid; also false if the algorithm is unknown or does not fit the key. */
export function isSignedBy(content: Buffer, algorithm: string | null, signature: Buffer, key: KeyObject): boolean {
  const known = ALGORITHMS.find(({ oid }) => oid === algorithm)
  if (known === undefined || known.keyType !== key.asymmetricKeyType) return false
  return verify(known.digest, content, key, signature)
}
