import type { KeyObject, X509Certificate } from 'node:crypto'
import { decodeUtf8 } from '../encoding/asn1.js'
import { encodePem } from '../encoding/pem.js'
import { readPrivateKey } from '../private-key.js'
import { openBundle } from './bundle.js'
import { readIntermediates, readLeafAndOthers, readPemCertificates, requireName } from './certificates.js'
import { type DerivationLimits, MOST_ITERATIONS } from './derivation-limits.js'
import { digestOf } from './digest.js'
import { type Material, Unusable } from './material.js'
import { readRevocationLists } from './revocation-lists.js'
import { requireStrength } from './strength.js'

/** What a TLS server or client reads from a file. */
export type Assembled = {
  /** Certificates with the private key, or CA certificates, or revocation lists. Holds a key only for the first. */
  pem: string
  /** SHA-256 over the DER of all that is public in it, in its order, in hexadecimal. */
  digest: string
  /** Of a certificate with its key; null for CAs and revocation lists. */
  facts: CertificateFacts | null
}

/** What people and monitors want to know of a certificate. */
export type CertificateFacts = {
  /** DNS names and addresses, or else the common name. */
  names: string[]
  /** The issuer's distinguished name on one line. */
  issuer: string
  serial: string
  notBefore: string
  notAfter: string
  /** `rsa` or `ec`. */
  keyType: string
}

/**
 * Makes of stored material what a TLS program reads: the certificate, the ones above it in the order of issuing without
 * the root, and the key without a passphrase. Slow for a PKCS#12 bundle or an encrypted key: do not call it on a thread
 * that answers requests, unless `limits` are low.
 * @throws Unusable, InvalidX509, TooManyIterations if lower limits than the greatest are exceeded
 */
export function assemble(material: Material, limits: DerivationLimits = MOST_ITERATIONS): Assembled {
  switch (material.kind) {
    case 'bundle': {
      const { certificates, privateKey } = openBundle(material.bundle, limits)
      if (certificates.length === 0) throw new Unusable('the PKCS#12 bundle holds no certificate')
      const leaf = certificates.find(certificate => belongsTo(privateKey, certificate))
      if (leaf === undefined) throw new Unusable('the private key belongs to none of its certificates')
      return withKey(leaf, certificates, privateKey)
    }
    case 'certificate': {
      const { certificate, privateKey, intermediates, passphrase } = material
      const [leaf, ...others] = readLeafAndOthers(certificate)
      const key = readPrivateKey(Buffer.from(privateKey), passphrase === null ? null : decodePassphrase(passphrase))
      if (!belongsTo(key, leaf)) throw new Unusable('the private key does not belong to the certificate')
      return withKey(leaf, [...others, ...(intermediates === null ? [] : readIntermediates(intermediates))], key)
    }
    case 'authority': {
      const authorities = readPemCertificates(material.authority, 'CA certificate')
      return withoutKey(
        authorities.map(({ raw }) => raw),
        'CERTIFICATE',
      )
    }
    case 'revocation list':
      return withoutKey(readRevocationLists(material.list, readAuthorities(material.authority)), 'X509 CRL')
  }
}

function withKey(leaf: X509Certificate, others: readonly X509Certificate[], key: KeyObject): Assembled {
  requireName(leaf)
  const chain = [leaf, ...chainAbove(leaf, others)]
  requireStrength(chain)
  return {
    pem: chain.map(({ raw }) => encodePem('CERTIFICATE', raw)).join('') + key.export({ type: 'pkcs8', format: 'pem' }),
    digest: digestOf(chain.map(({ raw }) => raw)),
    facts: factsOf(leaf),
  }
}

function withoutKey(ders: readonly Buffer[], label: string): Assembled {
  return { pem: ders.map(der => encodePem(label, der)).join(''), digest: digestOf(ders), facts: null }
}

/** The certificates above a leaf, each issued by the next. Stops before a root, which clients must know themselves. */
function chainAbove(leaf: X509Certificate, others: readonly X509Certificate[]): X509Certificate[] {
  const left = new Set(others)
  const chain: X509Certificate[] = []
  for (let last = leaf; ; ) {
    const issuer = [...left].find(one => isIssuedBy(last, one))
    if (issuer === undefined || isIssuedBy(issuer, issuer)) return chain
    left.delete(issuer)
    chain.push(issuer)
    last = issuer
  }
}

const isIssuedBy = (one: X509Certificate, issuer: X509Certificate): boolean =>
  one.checkIssued(issuer) && one.verify(issuer.publicKey)

function factsOf(leaf: X509Certificate): CertificateFacts {
  return {
    names: namesOf(leaf),
    issuer: leaf.issuer.replaceAll('\n', ', '),
    serial: leaf.serialNumber.toLowerCase(),
    notBefore: new Date(leaf.validFrom).toISOString(),
    notAfter: new Date(leaf.validTo).toISOString(),
    keyType: leaf.publicKey.asymmetricKeyType ?? '',
  }
}

/** In the order of the certificate, in lower case, each once. */
function namesOf({ subject, subjectAltName = '' }: X509Certificate): string[] {
  const alternatives = [...subjectAltName.matchAll(/(?:^|, )(?:DNS|IP Address):([^,"]+)/g)].map(([, name = '']) => name)
  const common = /^CN=(.+)$/m.exec(subject)?.[1]
  const names = alternatives.length > 0 ? alternatives : common === undefined ? [] : [common]
  return [...new Set(names.map(name => name.trim().toLowerCase()))]
}

/** Null when they cannot be read; their own check reports why. */
function readAuthorities(bytes: Uint8Array | null): readonly X509Certificate[] | null {
  try {
    return bytes === null ? null : readPemCertificates(bytes, 'CA certificate')
  } catch (error) {
    if (error instanceof Unusable) return null
    throw error
  }
}

const belongsTo = (key: KeyObject, certificate: X509Certificate): boolean => certificate.checkPrivateKey(key)

function decodePassphrase(bytes: Uint8Array): string {
  const text = decodeUtf8(Buffer.from(bytes))
  if (text === null) throw new Unusable('the passphrase of the private key is not UTF-8 text')
  return text
}
