import type { X509Certificate } from 'node:crypto'
import { type Asn1, objectIdentifierIn, readDer, sequenceIn, taggedIn } from '../encoding/asn1.js'
import { Unusable } from './material.js'

/** What OpenSSL's security level 2, Debian's default, asks for. */
const LEAST_RSA_BITS = 2048
const CURVES: ReadonlySet<string | undefined> = new Set(['prime256v1', 'secp384r1', 'secp521r1'])

/** Signatures over MD2, MD4, MD5 or SHA-1. */
const WEAK_SIGNATURES: ReadonlySet<string | null> = new Set([
  ...['2', '3', '4', '5'].map(last => `1.2.840.113549.1.1.${last}`),
  ...['1.3.14.3.2.29', '1.3.14.3.2.27', '1.2.840.10040.4.3', '1.2.840.10045.4.1'],
])
const RSASSA_PSS = '1.2.840.113549.1.1.10'
const SHA1 = '1.3.14.3.2.26'

/**
 * Requires what OpenSSL lets a TLS program present. HAProxy refuses its whole configuration because of one weaker
 * certificate. The leaf's key has its own check.
 * @param chain the leaf first, then what is sent with it
 * @throws Unusable for a short key, an unusual curve, or a signature over a weak digest
 */
export function requireStrength(chain: readonly X509Certificate[]): void {
  for (const [index, certificate] of chain.entries()) {
    const whose = index === 0 ? 'the certificate' : 'an intermediate certificate'
    if (index > 0) requireStrongKey(certificate)
    // Nobody relies on what a certificate says of itself.
    if (!certificate.checkIssued(certificate) && isWeaklySigned(certificate)) {
      throw new Unusable(`the signature of ${whose} is over MD5, SHA-1 or a weaker digest`)
    }
  }
}

function requireStrongKey({ publicKey }: X509Certificate): void {
  const { modulusLength, namedCurve } = publicKey.asymmetricKeyDetails ?? {}
  if (modulusLength !== undefined && modulusLength < LEAST_RSA_BITS) {
    throw new Unusable(`the key of an intermediate certificate has ${modulusLength} bits, fewer than ${LEAST_RSA_BITS}`)
  }
  if (publicKey.asymmetricKeyType === 'ec' && !CURVES.has(namedCurve)) {
    throw new Unusable('the key of an intermediate certificate is not on P-256, P-384 or P-521')
  }
}

function isWeaklySigned({ raw }: X509Certificate): boolean {
  const [, algorithm] = sequenceIn(readDer(raw, 'certificate')) ?? []
  const [name, parameters] = sequenceIn(algorithm) ?? []
  const identifier = objectIdentifierIn(name)
  return identifier === RSASSA_PSS ? digestOfPss(parameters) === SHA1 : WEAK_SIGNATURES.has(identifier)
}

/** Without a digest, it is SHA-1. */
function digestOfPss(parameters: Asn1 | undefined): string | null {
  const digest = sequenceIn(parameters)?.flatMap(member => taggedIn(member, 0) ?? [])[0]
  return digest === undefined ? SHA1 : objectIdentifierIn(sequenceIn(digest)?.[0])
}
