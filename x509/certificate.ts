import { type KeyObject, randomBytes, X509Certificate } from 'node:crypto'
import {
  type Asn1,
  contextTag,
  integer,
  octetStringIn,
  readDer,
  sequence,
  sequenceIn,
  tagged,
  taggedIn,
  time,
  writeDer,
} from './encoding/asn1.js'
import { decodePem } from './encoding/pem.js'
import { extensionsIn, OID, pathLengthIn } from './extensions.js'
import type { PublicKey } from './public-key.js'
import { algorithmIdentifier, signed } from './signing.js'

const SERIAL_BYTES = 16

/** The content of a new certificate. */
export type CertificateContent = {
  /** Big-endian, positive. */
  serial: Buffer
  issuer: Asn1
  subject: Asn1
  publicKey: PublicKey
  notBefore: Date
  notAfter: Date
  extensions: readonly Asn1[]
}

/** DER of an X.509 version 3 certificate. @param issuerKey private key of the issuer */
export function writeCertificate(content: CertificateContent, issuerKey: KeyObject): Buffer {
  const unsigned = sequence(
    tagged(0, integer(2)),
    integer(content.serial),
    algorithmIdentifier(issuerKey),
    content.issuer,
    sequence(time(content.notBefore), time(content.notAfter)),
    content.subject,
    content.publicKey.info,
    tagged(3, sequence(...content.extensions)),
  )
  return writeDer(signed(unsigned, issuerKey))
}

/** A random serial number: unpredictable, and unique because of its 128 bits. */
export const randomSerial = (): Buffer => randomBytes(SERIAL_BYTES)

/** A serial number as text: 32 hexadecimal digits. */
export const serialText = (serial: Buffer): string => serial.toString('hex')

/**
 * Normalises a serial number as tools print it (upper case, colons, no leading zeros) to `serialText` form;
 * null for other text.
 */
export function parseSerialText(text: string): string | null {
  const digits = text
    .toLowerCase()
    .replace(/:/g, '')
    .replace(/^(0x)?0*/, '')
  return /^[0-9a-f]{1,32}$/.test(digits) ? digits.padStart(2 * SERIAL_BYTES, '0') : null
}

/** What a CA needs from its own certificate. */
export type CaCertificate = {
  subject: Asn1
  keyIdentifier: Buffer
  /** How many levels of CAs may follow below it. */
  pathLength: number
  notBefore: Date
  notAfter: Date
}

/** @param pem a CA certificate written by `writeCertificate` */
export function readCaCertificate(pem: string): CaCertificate {
  const der = decodePem(pem, ['CERTIFICATE'], 'CA certificate')
  const members = sequenceIn(sequenceIn(readDer(der, 'CA certificate'))?.[0]) ?? []
  const extensions = extensionsIn(
    taggedIn(
      members.find(member => contextTag(member) === 3),
      3,
    )?.[0],
  )
  const [subject] = members.slice(5)
  const constraints = extensions?.get(OID.basicConstraints)
  const encodedIdentifier = extensions?.get(OID.subjectKeyIdentifier)
  const pathLength = constraints === undefined ? null : pathLengthIn(readDer(constraints, 'basic constraints'))
  const keyIdentifier =
    encodedIdentifier === undefined ? null : octetStringIn(readDer(encodedIdentifier, 'key identifier'))
  if (subject === undefined || pathLength === null || keyIdentifier === null) {
    throw new Error('The stored CA certificate is invalid.')
  }
  const { validFrom, validTo } = new X509Certificate(der)
  return { subject, keyIdentifier, pathLength, notBefore: new Date(validFrom), notAfter: new Date(validTo) }
}
