import { type KeyObject, X509Certificate } from 'node:crypto'
import { bytesIn, contextTag, readDer, sequenceIn, taggedIn } from './encoding/asn1.js'
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
  /** The content of the serial number's encoding. */
  serialBytes: Buffer
  /** Distinguished names on one line. */
  issuer: string
  subject: string
  publicKey: KeyObject
  /** Of the issuer's key; null if the certificate does not name it. */
  authorityKeyIdentifier: Buffer | null
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
    serialBytes: serialIn(der),
    issuer: oneLine(certificate.issuer),
    subject: oneLine(certificate.subject),
    publicKey: certificate.publicKey,
    authorityKeyIdentifier: issuerKeyIn(der),
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

const oneLine = (name: string | undefined): string => (name ?? '').split('\n').reverse().join(',')

const membersOf = (der: Buffer) => sequenceIn(sequenceIn(readDer(der, 'certificate'))?.[0]) ?? []

/** The serial number follows the version, which only certificates of version 1 lack. */
function serialIn(der: Buffer): Buffer {
  const serial = membersOf(der).find(member => contextTag(member) === null)
  return (serial === undefined ? null : bytesIn(serial)) ?? Buffer.alloc(0)
}

function issuerKeyIn(der: Buffer): Buffer | null {
  const identifier = extensionOf(der, OID.authorityKeyIdentifier)
  if (identifier === null) return null
  const members = sequenceIn(readDer(identifier, 'authority key identifier')) ?? []
  const found = members.find(member => contextTag(member) === 0)
  return found === undefined ? null : bytesIn(found)
}

/** The content of one extension of a certificate; null if it has none. */
function extensionOf(der: Buffer, oid: string): Buffer | null {
  const extensions = membersOf(der).find(member => contextTag(member) === 3)
  return extensionsIn(taggedIn(extensions, 3)?.[0])?.get(oid) ?? null
}

/** Names of other kinds, which some CAs add, make all of them unreadable here: then there are none. */
function namesIn(der: Buffer): string[] {
  const names = extensionOf(der, OID.subjectAltName)
  if (names === null) return []
  try {
    return decodeGeneralNames(names)
      .filter(({ kind }) => kind === 'dns' || kind === 'ip')
      .map(({ value }) => value)
  } catch (error) {
    if (error instanceof InvalidX509) return []
    throw error
  }
}
