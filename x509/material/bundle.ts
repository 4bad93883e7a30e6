import type { KeyObject, X509Certificate } from 'node:crypto'
import forge from 'node-forge'
import { writeDer } from '../encoding/asn1.js'
import { readPrivateKey } from '../private-key.js'
import { readCertificate } from './certificates.js'
import { withLimitedDerivations } from './derivation.js'
import { type DerivationLimits, MOST_ITERATIONS, TooManyIterations } from './derivation-limits.js'
import { Unusable } from './material.js'

/** Far more than a bundle needs, yet safe for the stack. */
const MAX_DEPTH = 32

type Bag = forge.pkcs12.Bag

export type Bundle = { certificates: readonly X509Certificate[]; privateKey: KeyObject }

/**
 * Opens a PKCS#12 bundle without a passphrase. Slow, unless `limits` are low: do not call it on the thread that answers
 * requests.
 * @throws Unusable, InvalidX509, TooManyIterations if lower limits than the greatest are exceeded
 */
export function openBundle(bytes: Uint8Array, limits: DerivationLimits): Bundle {
  const bags = readBags(bytes, limits)
  const ofType = (...types: (string | undefined)[]) => bags.filter(({ type }) => types.includes(type))
  const { pkcs8ShroudedKeyBag, keyBag, certBag } = forge.pki.oids
  const [key] = ofType(pkcs8ShroudedKeyBag, keyBag)
  if (key === undefined) throw new Unusable('the PKCS#12 bundle holds no private key')
  return {
    certificates: ofType(certBag).map(bag => readCertificate(certificateDer(bag), 'certificate of the PKCS#12 bundle')),
    privateKey: readPrivateKey(keyDer(key), null),
  }
}

function readBags(bytes: Uint8Array, limits: DerivationLimits): readonly Bag[] {
  // Bundles without a passphrase come in two forms: with an empty one, or with none.
  for (const passphrase of ['', undefined]) {
    try {
      return withLimitedDerivations(limits, () => decode(bytes, passphrase))
    } catch (error) {
      if (error instanceof TooManyIterations) {
        if (limits !== MOST_ITERATIONS) throw error
        throw new Unusable('the PKCS#12 bundle uses too many iterations')
      }
    }
  }
  throw new Unusable('it is not a PKCS#12 bundle that can be read without a passphrase')
}

function decode(bytes: Uint8Array, passphrase: string | undefined): readonly Bag[] {
  const content = forge.asn1.fromDer(Buffer.from(bytes).toString('latin1'), {
    strict: true,
    parseAllBytes: true,
    decodeBitStrings: true,
    maxDepth: MAX_DEPTH,
  })
  return forge.pkcs12.pkcs12FromAsn1(content, true, passphrase).safeContents.flatMap(({ safeBags }) => safeBags)
}

/** PKCS#8. node-forge leaves keys of other types than RSA unparsed. */
const keyDer = ({ key, asn1 }: Bag): Buffer =>
  writeDer(key ? forge.pki.wrapRsaPrivateKey(forge.pki.privateKeyToAsn1(key)) : asn1)

const certificateDer = ({ cert, asn1 }: Bag): Buffer => writeDer(cert ? forge.pki.certificateToAsn1(cert) : asn1)
