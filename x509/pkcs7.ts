import oids from 'node-forge/lib/oids.js'
import { integer, objectIdentifier, readDer, sequence, setOf, tagged, writeDer } from './encoding/asn1.js'

const oid = (name: 'data' | 'signedData') => objectIdentifier(String(oids[name]))

/**
 * DER of a PKCS#7 SignedData without signatures, the usual container for a chain of certificates.
 * @param certificates DER of each
 */
export function writeCertificateBag(certificates: readonly Buffer[]): Buffer {
  const members = certificates.map(der => readDer(der, 'certificate'))
  const signedData = sequence(integer(1), setOf(), sequence(oid('data')), tagged(0, ...members), setOf())
  return writeDer(sequence(oid('signedData'), tagged(0, signedData)))
}
