import { createPrivateKey, type KeyObject } from 'node:crypto'
import { randomSerial, serialText, writeCertificate } from '../../../../x509/certificate.js'
import type { Asn1 } from '../../../../x509/encoding/asn1.js'
import { encodePem } from '../../../../x509/encoding/pem.js'
import { publicKeyOf } from '../../../../x509/public-key.js'
import { generateKeyPair, type PairAlgorithm } from '../../crypto/key-pair.js'
import type { CertificateAuthoritySettings } from './options.js'
import { authorityExtensions } from './profiles.js'
import type { SigningAuthority } from './signing-authority.js'
import { validityWithin } from './validity.js'

type Settings = CertificateAuthoritySettings

const KEYS: Readonly<Record<Settings['key'], [algorithm: PairAlgorithm, bits: number]>> = {
  'ec-256': ['ec', 256],
  'ec-384': ['ec', 384],
  'ec-521': ['ec', 521],
  'rsa-2048': ['rsa', 2048],
  'rsa-4096': ['rsa', 4096],
}

export type MadeAuthority = { key: KeyObject; certificate: string; serial: string; notAfter: Date }

/**
 * Makes a key and a certificate for a new CA.
 * @param issuer null for a root, which is self-signed
 * @param constraints the name constraints extension, or empty
 */
export async function makeAuthority(
  subject: Asn1,
  pathLength: number,
  settings: Settings,
  issuer: (SigningAuthority & { crlUrl: string | null }) | null,
  constraints: readonly Asn1[] = [],
): Promise<MadeAuthority> {
  const key = createPrivateKey((await generateKeyPair(...KEYS[settings.key])).privateKey)
  const publicKey = publicKeyOf(key)
  const serial = randomSerial()
  const validity = validityWithin(new Date(), settings.ca_days, issuer?.own ?? null)
  const above = issuer === null ? null : { keyIdentifier: issuer.own.keyIdentifier, crlUrl: issuer.crlUrl }
  const der = writeCertificate(
    {
      ...validity,
      serial,
      subject,
      issuer: issuer?.own.subject ?? subject,
      publicKey,
      extensions: authorityExtensions(publicKey, pathLength, above, constraints),
    },
    issuer?.key ?? key,
  )
  return { key, certificate: encodePem('CERTIFICATE', der), serial: serialText(serial), notAfter: validity.notAfter }
}
