import type { X509Certificate } from 'node:crypto'
import { bitStringIn, objectIdentifierIn, readDer, sequenceIn, writeDer } from '../encoding/asn1.js'
import { InvalidX509 } from '../invalid-x509.js'
import { isSignedBy } from '../signing.js'
import { Unusable } from './material.js'
import { asLatin1, pemBlocks } from './pem-blocks.js'

const MAX_LISTS = 16

/**
 * The DER of each list.
 * @param authorities null to skip the check of signatures
 * @throws Unusable unless the bytes are revocation lists in PEM, each signed by one of the authorities
 */
export function readRevocationLists(bytes: Uint8Array, authorities: readonly X509Certificate[] | null): Buffer[] {
  const lists = pemBlocks(asLatin1(bytes), 'X509 CRL')
  if (lists.length === 0) throw new Unusable('it is not a revocation list in PEM')
  if (lists.length > MAX_LISTS) throw new Unusable(`it has more than ${MAX_LISTS} revocation lists`)
  for (const der of lists) {
    const { content, algorithm, signature } = readSigned(der)
    const isSigned =
      authorities === null || authorities.some(({ publicKey }) => isSignedBy(content, algorithm, signature, publicKey))
    if (!isSigned) throw new Unusable('the revocation list is not signed by the CA that is given with it')
  }
  return [...lists]
}

function readSigned(der: Buffer): { content: Buffer; algorithm: string | null; signature: Buffer } {
  try {
    const [content, algorithm, bits] = sequenceIn(readDer(der, 'revocation list')) ?? []
    const signature = bitStringIn(bits)
    // A list has at least a signature algorithm, an issuer and a time.
    const members = sequenceIn(content)
    if (content !== undefined && signature !== null && members !== null && members.length >= 3) {
      return { content: writeDer(content), algorithm: objectIdentifierIn(sequenceIn(algorithm)?.[0]), signature }
    }
  } catch (error) {
    if (!(error instanceof InvalidX509)) throw error
  }
  throw new Unusable('it is not a revocation list')
}
