import {
  type Asn1,
  booleanValue,
  integer,
  namedBits,
  objectIdentifier,
  objectIdentifierIn,
  octetString,
  octetStringIn,
  sequence,
  sequenceIn,
  smallIntegerIn,
  tagged,
  taggedBytes,
  writeDer,
} from './encoding/asn1.js'
import { encodeGeneralNames, type GeneralName } from './encoding/general-names.js'

export const OID = {
  subjectKeyIdentifier: '2.5.29.14',
  keyUsage: '2.5.29.15',
  subjectAltName: '2.5.29.17',
  basicConstraints: '2.5.29.19',
  crlNumber: '2.5.29.20',
  nameConstraints: '2.5.29.30',
  reasonCode: '2.5.29.21',
  crlDistributionPoints: '2.5.29.31',
  authorityKeyIdentifier: '2.5.29.35',
  extendedKeyUsage: '2.5.29.37',
  authorityInfoAccess: '1.3.6.1.5.5.7.1.1',
  acmeIdentifier: '1.3.6.1.5.5.7.1.31',
} as const

/** One extension of a certificate, a request or a revocation list. */
export function extension(oid: string, value: Asn1, { critical = false } = {}): Asn1 {
  return sequence(objectIdentifier(oid), ...(critical ? [booleanValue(true)] : []), octetString(writeDer(value)))
}

/** @param pathLength of a CA: how many levels of CAs may follow below it; null if the certificate is not a CA's */
export const basicConstraints = (pathLength: number | null): Asn1 =>
  extension(
    OID.basicConstraints,
    pathLength === null ? sequence() : sequence(booleanValue(true), integer(pathLength)),
    { critical: true },
  )

const USAGES = { digitalSignature: 0, keyEncipherment: 2, keyCertSign: 5, cRLSign: 6 } as const

export const keyUsage = (...usages: (keyof typeof USAGES)[]): Asn1 =>
  extension(OID.keyUsage, namedBits(usages.map(usage => USAGES[usage])), { critical: true })

const PURPOSES = { serverAuth: '1.3.6.1.5.5.7.3.1', clientAuth: '1.3.6.1.5.5.7.3.2' } as const

export const extendedKeyUsage = (...purposes: (keyof typeof PURPOSES)[]): Asn1 =>
  extension(OID.extendedKeyUsage, sequence(...purposes.map(purpose => objectIdentifier(PURPOSES[purpose]))))

/** Proves to a CA who serves a name (RFC 8737). @param digest SHA-256 of the key authorization */
export const acmeIdentifier = (digest: Buffer): Asn1 =>
  extension(OID.acmeIdentifier, octetString(digest), { critical: true })

export const subjectKeyIdentifier = (identifier: Buffer): Asn1 =>
  extension(OID.subjectKeyIdentifier, octetString(identifier))

export const authorityKeyIdentifier = (identifier: Buffer): Asn1 =>
  extension(OID.authorityKeyIdentifier, sequence(taggedBytes(0, identifier)))

/** @param critical required if the subject is empty */
export const subjectAltName = (names: readonly GeneralName[], critical: boolean): Asn1 =>
  extension(OID.subjectAltName, encodeGeneralNames(names), { critical })

/** @param permitted bases of subtrees, each a GeneralName; kinds of names without a base are not restricted */
export const nameConstraints = (permitted: readonly Asn1[], excluded: readonly Asn1[]): Asn1 => {
  const part = (number: number, bases: readonly Asn1[]) =>
    bases.length === 0 ? [] : [tagged(number, ...bases.map(base => sequence(base)))]
  return extension(OID.nameConstraints, sequence(...part(0, permitted), ...part(1, excluded)), { critical: true })
}

export const crlDistributionPoint = (url: string): Asn1 =>
  extension(
    OID.crlDistributionPoints,
    sequence(sequence(tagged(0, tagged(0, taggedBytes(6, Buffer.from(url, 'ascii')))))),
  )

/** The content of each extension, by object identifier; null if the list is malformed or has duplicates. */
export function extensionsIn(list: Asn1 | undefined): ReadonlyMap<string, Buffer> | null {
  const members = sequenceIn(list)
  if (members === null) return null
  const found = new Map<string, Buffer>()
  for (const member of members) {
    const parts = sequenceIn(member)
    const oid = objectIdentifierIn(parts?.[0])
    const content = octetStringIn(parts?.at(-1))
    if (oid === null || content === null || found.has(oid)) return null
    found.set(oid, content)
  }
  return found
}

/** The path length in basic constraints: null if it is not a CA, Infinity if there is no limit. */
export function pathLengthIn(constraints: Asn1): number | null {
  const [isCa, length] = sequenceIn(constraints) ?? []
  if (isCa === undefined) return null
  return length === undefined ? Number.POSITIVE_INFINITY : smallIntegerIn(length)
}
