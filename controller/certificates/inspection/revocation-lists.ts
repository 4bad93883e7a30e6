import type { X509Certificate } from 'node:crypto'
import { bitStringIn, objectIdentifierIn, readDer, sequenceIn, writeDer } from '../../x509/encoding/asn1.js'
import { InvalidX509 } from '../../x509/invalid-x509.js'
import { isSignedBy } from '../../x509/signing.js'
import { Unusable } from './material.js'
import { pemBlocks, textOf } from './pem-blocks.js'

const MOST_LISTS = 16

/**
 * @param authorities null when it does not count who signed
 * @throws Unusable unless it is revocation lists in PEM, each signed by one of the authorities
 */
export function checkRevocationLists(bytes: Uint8Array, authorities: readonly X509Certificate[] | null): void {
  const lists = pemBlocks(textOf(bytes), 'X509 CRL')
  if (lists.length === 0) throw new Unusable('it is no revocation list in PEM')
  if (lists.length > MOST_LISTS) throw new Unusable(`there are more than ${MOST_LISTS} revocation lists in it`)
  for (const der of lists) {
    const { content, algorithm, signature } = readSigned(der)
    const isRight =
      authorities === null || authorities.some(({ publicKey }) => isSignedBy(content, algorithm, signature, publicKey))
    if (!isRight)
      throw new Unusable('the revocation list is not signed by the authority that the request names with it')
  }
}

function readSigned(der: Buffer): { content: Buffer; algorithm: string | null; signature: Buffer } {
  try {
    const [content, algorithm, bits] = sequenceIn(readDer(der, 'revocation list')) ?? []
    const signature = bitStringIn(bits)
    // A certificate has a version in a tag of its own before its other members, and more of them.
    const members = sequenceIn(content)
    if (content !== undefined && signature !== null && members !== null && members.length >= 3) {
      return { content: writeDer(content), algorithm: objectIdentifierIn(sequenceIn(algorithm)?.[0]), signature }
    }
  } catch (error) {
    if (!(error instanceof InvalidX509)) throw error
  }
  throw new Unusable('it is no revocation list')
}
