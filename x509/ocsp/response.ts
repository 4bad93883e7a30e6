import type { X509Certificate } from 'node:crypto'
import {
  type Asn1,
  bitStringIn,
  contextTag,
  enumeratedIn,
  generalizedTimeIn,
  integerBytesIn,
  objectIdentifierIn,
  octetStringIn,
  readDer,
  sequenceIn,
  taggedIn,
  writeDer,
} from '../encoding/asn1.js'
import { OID } from '../extensions.js'
import { InvalidX509 } from '../invalid-x509.js'
import { isSignedBy } from '../signing.js'
import { extensionsOf, type Issuer, isIssuedBy, type OcspQuestion, readIssuer } from './certificate-id.js'
import { SHA1 } from './request.js'

/** Real responses have one to four thousand bytes. */
export const MAX_OCSP_RESPONSE_BYTES = 65_536

const BASIC_RESPONSE = '1.3.6.1.5.5.7.48.1.1'
const OCSP_SIGNING = '1.3.6.1.5.5.7.3.9'
/** How far the clocks of responder and reader may differ. */
const SKEW_MS = 300_000
const MAX_CERTIFICATES = 5
const STATUSES = ['good', 'revoked', 'unknown'] as const

/** What a responder says about a certificate. */
export type OcspResponse = {
  status: (typeof STATUSES)[number]
  thisUpdate: Date
  /** Until when it may be shown to clients. */
  nextUpdate: Date
}

/**
 * Reads an untrusted response, and verifies that the issuer of the certificate, or a responder that it has delegated,
 * says this about exactly that certificate now.
 * @param bytes DER
 * @throws InvalidX509 with the fault
 */
export function readOcspResponse(bytes: Buffer, question: OcspQuestion, now: Date): OcspResponse {
  if (bytes.length > MAX_OCSP_RESPONSE_BYTES) {
    throw new InvalidX509(`An OCSP response has at most ${MAX_OCSP_RESPONSE_BYTES} bytes.`)
  }
  const { content, responderId, response } = basicResponseIn(bytes)
  if (!isFrom(content, responderId, question.issuer, now)) {
    throw new InvalidX509(
      'The OCSP response is not signed by the issuer of the certificate or a responder of the issuer.',
    )
  }
  const [id, status, thisUpdate, ...rest] = sequenceIn(response) ?? []
  if (!isAbout(id, question)) throw new InvalidX509('The OCSP response is about another certificate.')
  const found = status === undefined ? undefined : STATUSES[contextTag(status) ?? -1]
  const from = generalizedTimeIn(thisUpdate)
  const until = generalizedTimeIn(rest.map(member => taggedIn(member, 0)?.[0]).find(member => member !== undefined))
  if (found === undefined || from === null) throw malformed()
  // Without it nobody knows how long the response may be kept.
  if (until === null || until <= from) throw new InvalidX509('The OCSP response does not say until when it is valid.')
  if (from.getTime() > now.getTime() + SKEW_MS) throw new InvalidX509('The OCSP response is not valid yet.')
  if (until <= now) throw new InvalidX509('The OCSP response has expired.')
  return { status: found, thisUpdate: from, nextUpdate: until }
}

type Signed = { tbs: Asn1; algorithm: string | null; signature: Buffer; certificates: readonly Asn1[] }

/** The parts of a basic response with exactly one answer: TLS servers staple no other. */
function basicResponseIn(bytes: Buffer): { content: Signed; responderId: Asn1; response: Asn1 } {
  const [responseStatus, wrapped] = sequenceIn(readDer(bytes, 'OCSP response')) ?? []
  const code = enumeratedIn(responseStatus)
  if (code === null) throw malformed()
  if (code !== 0) throw new InvalidX509(`The OCSP responder answers with error ${code}.`)
  const [type, encoded] = sequenceIn(taggedIn(wrapped, 0)?.[0]) ?? []
  const basic = octetStringIn(encoded)
  if (objectIdentifierIn(type) !== BASIC_RESPONSE || basic === null) throw malformed()
  const [tbs, algorithm, signatureBits, extra] = sequenceIn(readDer(basic, 'OCSP response')) ?? []
  const signature = bitStringIn(signatureBits)
  const certificates = sequenceIn(taggedIn(extra, 0)?.[0]) ?? []
  // A version other than the default one is unknown; DER leaves the default out.
  const [responderId, , responses] = sequenceIn(tbs) ?? []
  const [response, ...more] = sequenceIn(responses) ?? []
  if (tbs === undefined || signature === null || responderId === undefined || response === undefined) throw malformed()
  if (more.length > 0) throw new InvalidX509('The OCSP response is about several certificates.')
  const content = { tbs, algorithm: objectIdentifierIn(sequenceIn(algorithm)?.[0]), signature, certificates }
  return { content, responderId, response }
}

/** Whether the issuer has signed it, or a responder whose certificate the issuer has made for that purpose. */
function isFrom({ tbs, algorithm, signature, certificates }: Signed, id: Asn1, issuer: Issuer, now: Date): boolean {
  const bytes = writeDer(tbs)
  const hasSigned = (signer: Issuer) => isNamed(id, signer) && isSignedBy(bytes, algorithm, signature, signer.publicKey)
  if (hasSigned(issuer)) return true
  return certificates.slice(0, MAX_CERTIFICATES).some(certificate => {
    const der = writeDer(certificate)
    const responder = readIssuer(der)
    return hasSigned(responder) && isDelegated(responder.certificate, der, issuer, now)
  })
}

/** Whether the responder's identification means this certificate, by its name or its key. */
function isNamed(id: Asn1, { name, keyHash }: Issuer): boolean {
  const byName = taggedIn(id, 1)?.[0]
  if (byName !== undefined) return writeDer(byName).equals(name)
  return octetStringIn(taggedIn(id, 2)?.[0])?.equals(keyHash) ?? false
}

function isDelegated(certificate: X509Certificate, der: Buffer, issuer: Issuer, now: Date): boolean {
  const purposes = extensionsOf(der).get(OID.extendedKeyUsage)
  if (purposes === undefined || !isIssuedBy(certificate, issuer)) return false
  const isMeant = (sequenceIn(readDer(purposes, 'extended key usage')) ?? []).some(
    purpose => objectIdentifierIn(purpose) === OCSP_SIGNING,
  )
  return isMeant && new Date(certificate.validFrom) <= now && now <= new Date(certificate.validTo)
}

function isAbout(id: Asn1 | undefined, { nameHash, keyHash, serial }: OcspQuestion): boolean {
  const [algorithm, name, key, number] = sequenceIn(id) ?? []
  return (
    objectIdentifierIn(sequenceIn(algorithm)?.[0]) === SHA1 &&
    (octetStringIn(name)?.equals(nameHash) ?? false) &&
    (octetStringIn(key)?.equals(keyHash) ?? false) &&
    (integerBytesIn(number)?.equals(serial) ?? false)
  )
}

const malformed = () => new InvalidX509('The OCSP response cannot be read.')
