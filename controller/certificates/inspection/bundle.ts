import type { KeyObject, X509Certificate } from 'node:crypto'
import forge from 'node-forge'
import { writeDer } from '../../x509/encoding/asn1.js'
import { readPrivateKey } from '../../x509/private-key.js'
import { readCertificate } from './certificates.js'
import { TooManyIterations, withLimitedDerivations } from './derivation.js'
import { Unusable } from './material.js'

/** Far more than a bundle needs, and few enough for the stack. */
const MOST_LEVELS = 32

type Bag = forge.pkcs12.Bag

export type Bundle = { certificates: readonly X509Certificate[]; privateKey: KeyObject }

/**
 * Opens a PKCS#12 bundle that has no passphrase. Takes long: not for the thread that answers requests.
 * @throws Unusable, InvalidX509
 */
export function openBundle(bytes: Uint8Array): Bundle {
  const bags = bagsOf(bytes)
  const ofType = (...types: (string | undefined)[]) => bags.filter(({ type }) => types.includes(type))
  const { pkcs8ShroudedKeyBag, keyBag, certBag } = forge.pki.oids
  const [key] = ofType(pkcs8ShroudedKeyBag, keyBag)
  if (key === undefined) throw new Unusable('the PKCS#12 bundle holds no private key')
  return {
    certificates: ofType(certBag).map(bag =>
      readCertificate(derOfCertificate(bag), 'certificate of the PKCS#12 bundle'),
    ),
    privateKey: readPrivateKey(derOfKey(key), null),
  }
}

function bagsOf(bytes: Uint8Array): readonly Bag[] {
  // No passphrase is written in two ways: as an empty one, or as none.
  for (const passphrase of ['', undefined]) {
    try {
      return withLimitedDerivations(() => decode(bytes, passphrase))
    } catch (error) {
      if (error instanceof TooManyIterations) {
        throw new Unusable('the PKCS#12 bundle is protected with too many iterations')
      }
    }
  }
  throw new Unusable('it is no PKCS#12 bundle that can be read without a passphrase')
}

function decode(bytes: Uint8Array, passphrase: string | undefined): readonly Bag[] {
  const content = forge.asn1.fromDer(Buffer.from(bytes).toString('latin1'), {
    strict: true,
    parseAllBytes: true,
    decodeBitStrings: true,
    maxDepth: MOST_LEVELS,
  })
  return forge.pkcs12.pkcs12FromAsn1(content, true, passphrase).safeContents.flatMap(({ safeBags }) => safeBags)
}

/** PKCS#8. What node-forge does not know it leaves as it is. */
const derOfKey = ({ key, asn1 }: Bag): Buffer =>
  writeDer(key ? forge.pki.wrapRsaPrivateKey(forge.pki.privateKeyToAsn1(key)) : asn1)

const derOfCertificate = ({ cert, asn1 }: Bag): Buffer => writeDer(cert ? forge.pki.certificateToAsn1(cert) : asn1)
