import { X509Certificate } from 'node:crypto'
import { readDer, sequenceIn, taggedIn, writeDer } from '../encoding/asn1.js'
import { InvalidX509 } from '../invalid-x509.js'
import { Unusable } from './material.js'
import { asLatin1, pemBlocks } from './pem-blocks.js'

/** More than any chain has. */
const MAX_CERTIFICATES = 64

/** @param what names it in the message @throws Unusable */
export function readCertificate(der: Uint8Array, what: string): X509Certificate {
  try {
    return new X509Certificate(der)
  } catch {
    throw new Unusable(`the ${what} is not an X.509 certificate`)
  }
}

/** One or more certificates in PEM. @throws Unusable when there is none */
export function readPemCertificates(bytes: Uint8Array, what: string): readonly X509Certificate[] {
  const blocks = pemBlocks(asLatin1(bytes), 'CERTIFICATE')
  if (blocks.length === 0) throw new Unusable(`the ${what} is not an X.509 certificate in PEM`)
  return readAll(blocks, what)
}

/** The certificate of a container: the first one in PEM, or DER. Others in the same PEM follow it. @throws Unusable */
export function readLeafAndOthers(bytes: Uint8Array): [X509Certificate, ...X509Certificate[]] {
  const [first, ...others] = readAll(pemBlocks(asLatin1(bytes), 'CERTIFICATE'), 'certificate')
  return [first ?? readCertificate(bytes, 'certificate'), ...others]
}

/** The certificates above the leaf: PEM blocks, or PKCS#7 in PEM or DER. @throws Unusable */
export function readIntermediates(bytes: Uint8Array): readonly X509Certificate[] {
  const text = asLatin1(bytes)
  const blocks = pemBlocks(text, 'CERTIFICATE')
  const bags = blocks.length > 0 ? [] : pemBlocks(text, 'PKCS7')
  const found =
    blocks.length > 0 ? blocks : (bags.length > 0 ? bags : [Buffer.from(bytes)]).flatMap(certificatesOfPkcs7)
  if (found.length === 0) throw new Unusable('the intermediates hold no certificate')
  return readAll(found, 'intermediates')
}

function readAll(ders: readonly Buffer[], what: string): readonly X509Certificate[] {
  if (ders.length > MAX_CERTIFICATES) throw new Unusable(`the ${what} has more than ${MAX_CERTIFICATES} certificates`)
  return ders.map(der => readCertificate(der, what))
}

/** The certificates of a PKCS#7 SignedData; the rest is ignored. */
function certificatesOfPkcs7(der: Buffer): readonly Buffer[] {
  try {
    const [signedData] = taggedIn(sequenceIn(readDer(der, 'PKCS#7'))?.[1], 0) ?? []
    const certificates = sequenceIn(signedData)?.find(member => taggedIn(member, 0) !== null)
    return (taggedIn(certificates, 0) ?? []).map(writeDer)
  } catch (error) {
    if (!(error instanceof InvalidX509)) throw error
    throw new Unusable('the intermediates are neither certificates in PEM nor PKCS#7')
  }
}

/**
 * Requires a name that clients can check.
 * @throws Unusable without a common name or DNS name
 */
export function requireName({ subject, subjectAltName = '' }: X509Certificate): void {
  if (/^CN=./m.test(subject) || /(^|, )DNS:/.test(subjectAltName)) return
  throw new Unusable('the certificate has neither a common name nor a DNS name')
}
