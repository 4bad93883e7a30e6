import { createHash, type KeyObject, X509Certificate } from 'node:crypto'
import {
  type Asn1,
  bitStringIn,
  bytesIn,
  contextTag,
  integerBytesIn,
  objectIdentifierIn,
  readDer,
  sequenceIn,
  taggedIn,
  writeDer,
} from '../encoding/asn1.js'
import { extensionsIn, OID } from '../extensions.js'
import { InvalidX509 } from '../invalid-x509.js'

const RESPONDER = '1.3.6.1.5.5.7.48.1'
const URI_TAG = 6
const MAX_URL = 1000

/** What is to be asked about a certificate, where, and what its issuer is. */
export type OcspQuestion = {
  /** URL of the responder: HTTP, without a user. */
  responder: string
  issuer: Issuer
  /** SHA-1 over the issuer's name, and over its key: the identification that every responder knows. */
  nameHash: Buffer
  keyHash: Buffer
  /** The content of the serial number's encoding. */
  serial: Buffer
}

export type Issuer = { certificate: X509Certificate; publicKey: KeyObject; name: Buffer; keyHash: Buffer }

/**
 * What to ask about the first certificate of a chain; null if it names no responder that is asked by HTTP, or if the
 * certificate of its issuer does not come next.
 * @param chain DER
 * @throws InvalidX509
 */
export function readOcspQuestion(chain: readonly Buffer[]): OcspQuestion | null {
  const [leafDer, issuerDer] = chain
  if (leafDer === undefined || issuerDer === undefined) return null
  const responder = responderIn(leafDer)
  if (responder === null) return null
  const issuer = readIssuer(issuerDer)
  const leaf = certificateIn(leafDer)
  if (!isIssuedBy(leaf, issuer)) return null
  const serial = integerBytesIn(fieldsOf(leafDer)[0])
  if (serial === null) throw unreadable()
  return { responder, issuer, nameHash: sha1(issuer.name), keyHash: issuer.keyHash, serial }
}

/** @throws InvalidX509 */
export function readIssuer(der: Buffer): Issuer {
  const certificate = certificateIn(der)
  const [, , , , subject, keyInfo] = fieldsOf(der)
  const keyBits = bitStringIn(sequenceIn(keyInfo)?.[1])
  if (subject === undefined || keyBits === null) throw unreadable()
  return { certificate, publicKey: publicKeyOf(certificate), name: writeDer(subject), keyHash: sha1(keyBits) }
}

/** By name and signature. */
export function isIssuedBy(certificate: X509Certificate, issuer: Issuer): boolean {
  try {
    return certificate.checkIssued(issuer.certificate) && certificate.verify(issuer.publicKey)
  } catch {
    return false
  }
}

/** The content of each extension of a certificate. @throws InvalidX509 */
export function extensionsOf(der: Buffer): ReadonlyMap<string, Buffer> {
  const tagged = membersOf(der).find(member => contextTag(member) === 3)
  if (tagged === undefined) return new Map()
  const extensions = extensionsIn(taggedIn(tagged, 3)?.[0])
  if (extensions === null) throw unreadable()
  return extensions
}

const sha1 = (bytes: Buffer): Buffer => createHash('sha1').update(bytes).digest()

function responderIn(der: Buffer): string | null {
  const content = extensionsOf(der).get(OID.authorityInfoAccess)
  if (content === undefined) return null
  for (const description of sequenceIn(readDer(content, 'authority information access')) ?? []) {
    const [method, location] = sequenceIn(description) ?? []
    if (objectIdentifierIn(method) !== RESPONDER || location === undefined || contextTag(location) !== URI_TAG) continue
    const url = responderUrl(bytesIn(location)?.toString('latin1') ?? '')
    if (url !== null) return url
  }
  return null
}

function responderUrl(text: string): string | null {
  if (text.length > MAX_URL || !/^http:\/\/[\x21-\x7e]+$/i.test(text) || !URL.canParse(text)) return null
  const url = new URL(text)
  return url.username === '' && url.password === '' ? url.href : null
}

const membersOf = (der: Buffer): readonly Asn1[] => sequenceIn(sequenceIn(readDer(der, 'certificate'))?.[0]) ?? []

/** Serial number, algorithm, issuer, validity, subject, key: what follows the version. */
const fieldsOf = (der: Buffer): readonly Asn1[] => membersOf(der).filter(member => contextTag(member) === null)

function certificateIn(der: Buffer): X509Certificate {
  try {
    return new X509Certificate(der)
  } catch {
    throw unreadable()
  }
}

function publicKeyOf(certificate: X509Certificate): KeyObject {
  try {
    return certificate.publicKey
  } catch {
    throw unreadable()
  }
}

const unreadable = () => new InvalidX509('The certificate cannot be read.')
