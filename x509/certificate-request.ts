import type { KeyObject } from 'node:crypto'
import {
  type Asn1,
  bitStringIn,
  decodeUtf8,
  integer,
  objectIdentifier,
  objectIdentifierIn,
  readDer,
  sequence,
  sequenceIn,
  setIn,
  setOf,
  smallIntegerIn,
  tagged,
  taggedIn,
  writeDer,
} from './encoding/asn1.js'
import type { DistinguishedName } from './encoding/distinguished-name.js'
import { decodeGeneralNames, type GeneralName } from './encoding/general-names.js'
import { decodeName, encodeName } from './encoding/name-encoding.js'
import { decodePem } from './encoding/pem.js'
import { extensionsIn, OID, subjectAltName } from './extensions.js'
import { InvalidX509 } from './invalid-x509.js'
import { type PublicKey, publicKeyOf, readPublicKey } from './public-key.js'
import { isSignedBy, signed } from './signing.js'

const EXTENSION_REQUEST = '1.2.840.113549.1.9.14'
/** Longer than a request for 100 names with an RSA key of 8192 bits. */
const MAX_BYTES = 32_768

/** The content of a verified request that a CA may certify; the rest of the request is ignored. */
export type CertificateRequest = {
  /** The request itself. */
  der: Buffer
  subject: DistinguishedName
  /** The subject exactly as in the request, to be certified unchanged. */
  encodedSubject: Asn1
  publicKey: PublicKey
  alternativeNames: readonly GeneralName[]
}

/**
 * Reads an untrusted PKCS#10 request and verifies its signature with the key in the request.
 * @param bytes PEM or DER
 * @throws InvalidX509 with the fault
 */
export function readCertificateRequest(bytes: Buffer): CertificateRequest {
  if (bytes.length > 2 * MAX_BYTES) throw tooLong()
  const der = bytes.includes('-----BEGIN ')
    ? decodePem(decodeUtf8(bytes) ?? '', ['CERTIFICATE REQUEST', 'NEW CERTIFICATE REQUEST'], 'certificate request')
    : bytes
  if (der.length > MAX_BYTES) throw tooLong()
  const [content, algorithm, signatureBits] = sequenceIn(readDer(der, 'certificate request')) ?? []
  const [version, encodedSubject, keyInfo, attributes] = sequenceIn(content) ?? []
  const signature = bitStringIn(signatureBits)
  if (content === undefined || encodedSubject === undefined || signature === null || smallIntegerIn(version) !== 0) {
    throw new InvalidX509('This is not a PKCS#10 certificate request.')
  }
  const publicKey = readPublicKey(keyInfo)
  const algorithmOid = objectIdentifierIn(sequenceIn(algorithm)?.[0])
  if (!isSignedBy(writeDer(content), algorithmOid, signature, publicKey.key)) {
    throw new InvalidX509('The signature of the certificate request is invalid, or its algorithm is not supported.')
  }
  const subject = decodeName(encodedSubject)
  const alternativeNames = alternativeNamesIn(attributes)
  if (subject.length === 0 && alternativeNames.length === 0) {
    throw new InvalidX509('The certificate request has neither a subject nor subject alternative names.')
  }
  return { der, subject, encodedSubject, publicKey, alternativeNames }
}

const tooLong = () => new InvalidX509(`A certificate request has at most ${MAX_BYTES} bytes.`)

function alternativeNamesIn(attributes: Asn1 | undefined): GeneralName[] {
  for (const attribute of taggedIn(attributes, 0) ?? []) {
    const [type, values] = sequenceIn(attribute) ?? []
    if (objectIdentifierIn(type) !== EXTENSION_REQUEST) continue
    const extensions = extensionsIn(setIn(values)?.[0])
    if (extensions === null) throw new InvalidX509('The extensions of the certificate request cannot be read.')
    const encoded = extensions.get(OID.subjectAltName)
    if (encoded !== undefined) return decodeGeneralNames(encoded)
  }
  return []
}

/** DER of a PKCS#10 request. */
export function writeCertificateRequest(
  subject: DistinguishedName,
  privateKey: KeyObject,
  alternativeNames: readonly GeneralName[],
): Buffer {
  const extensions = sequence(...(alternativeNames.length > 0 ? [subjectAltName(alternativeNames, false)] : []))
  const attributes =
    alternativeNames.length > 0 ? [sequence(objectIdentifier(EXTENSION_REQUEST), setOf(extensions))] : []
  const content = sequence(integer(0), encodeName(subject), publicKeyOf(privateKey).info, tagged(0, ...attributes))
  return writeDer(signed(content, privateKey))
}
