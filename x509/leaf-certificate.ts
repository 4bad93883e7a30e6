import { X509Certificate } from 'node:crypto'
import { contextTag, readDer, sequenceIn, taggedIn } from './encoding/asn1.js'
import { decodeGeneralNames } from './encoding/general-names.js'
import { certificatesIn } from './encoding/pem.js'
import { extensionsIn, OID } from './extensions.js'
import { InvalidX509 } from './invalid-x509.js'

/** What is to be known about the certificate of a server. */
export type LeafCertificate = {
  /** PEM of this certificate alone. */
  pem: string
  /** Lower-case hexadecimal digits, at least 32. */
  serial: string
  /** Distinguished name on one line. */
  issuer: string
  /** DNS names and addresses. */
  names: string[]
  notBefore: Date
  notAfter: Date
}

/**
 * Reads the first certificate of a PEM text, which a CA has issued.
 * @throws InvalidX509
 */
export function readLeafCertificate(text: string): LeafCertificate {
  const [der] = certificatesIn(text)
  if (der === undefined) throw new InvalidX509('The text contains no certificate.')
  const certificate = parsed(der)
  return {
    pem: certificate.toString(),
    serial: certificate.serialNumber.toLowerCase().padStart(32, '0'),
    issuer: certificate.issuer.split('\n').reverse().join(','),
    names: namesIn(der),
    notBefore: new Date(certificate.validFrom),
    notAfter: new Date(certificate.validTo),
  }
}

function parsed(der: Buffer): X509Certificate {
  try {
    return new X509Certificate(der)
  } catch {
    throw new InvalidX509('The certificate cannot be read.')
  }
}

/** The content of one extension of a certificate; null if it has none. */
function extensionOf(der: Buffer, oid: string): Buffer | null {
  const members = sequenceIn(sequenceIn(readDer(der, 'certificate'))?.[0]) ?? []
  const extensions = members.find(member => contextTag(member) === 3)
  return extensionsIn(taggedIn(extensions, 3)?.[0])?.get(oid) ?? null
}

function namesIn(der: Buffer): string[] {
  const names = extensionOf(der, OID.subjectAltName)
  if (names === null) return []
  return decodeGeneralNames(names)
    .filter(({ kind }) => kind === 'dns' || kind === 'ip')
    .map(({ value }) => value)
}
