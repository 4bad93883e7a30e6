import { integer, nullValue, objectIdentifier, octetString, sequence, writeDer } from '../encoding/asn1.js'
import type { OcspQuestion } from './certificate-id.js'

export const SHA1 = '1.3.14.3.2.26'

/** DER of a request about one certificate, without a nonce, so that responders can answer from a cache (RFC 5019). */
export function writeOcspRequest({ nameHash, keyHash, serial }: OcspQuestion): Buffer {
  const algorithm = sequence(objectIdentifier(SHA1), nullValue())
  const id = sequence(algorithm, octetString(nameHash), octetString(keyHash), integer(serial))
  return writeDer(sequence(sequence(sequence(sequence(id)))))
}
