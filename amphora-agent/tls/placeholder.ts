import { generateKeyPairSync } from 'node:crypto'
import { randomSerial, writeCertificate } from '../../x509/certificate.js'
import { readDer } from '../../x509/encoding/asn1.js'
import { parseDistinguishedName } from '../../x509/encoding/distinguished-name.js'
import { encodeName } from '../../x509/encoding/name-encoding.js'
import { encodePem } from '../../x509/encoding/pem.js'
import { basicConstraints, subjectKeyIdentifier } from '../../x509/extensions.js'
import type { MaterialKind } from '../../x509/material/load.js'
import { keyIdentifierOf, readPublicKey } from '../../x509/public-key.js'
import { writeRevocationList } from '../../x509/revocation-list.js'

const DAY_MS = 86_400_000

/** Clients that look at it see why they are not served. */
const NAME = 'CN=certificate not available yet'

/**
 * PEM that stands in for material that could not be read yet, so that everything else can be served: nobody trusts the
 * certificate, and the CA trusts nobody.
 */
export function createPlaceholder(kind: MaterialKind, now = new Date()): string {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  const name = encodeName(parseDistinguishedName(NAME))
  const key = readPublicKey(readDer(publicKey.export({ type: 'spki', format: 'der' }), 'public key'))
  const [notBefore, notAfter] = [new Date(now.getTime() - DAY_MS), new Date(now.getTime() + 3650 * DAY_MS)]
  if (kind === 'revocation list') {
    const issuerKeyIdentifier = keyIdentifierOf(key)
    const content = {
      issuer: name,
      issuerKeyIdentifier,
      number: 1,
      thisUpdate: notBefore,
      nextUpdate: notAfter,
      revoked: [],
    }
    return encodePem('X509 CRL', writeRevocationList(content, privateKey))
  }
  const extensions = [basicConstraints(0), subjectKeyIdentifier(keyIdentifierOf(key))]
  const der = writeCertificate(
    { serial: randomSerial(), issuer: name, subject: name, publicKey: key, notBefore, notAfter, extensions },
    privateKey,
  )
  const certificate = encodePem('CERTIFICATE', der)
  return kind === 'authority'
    ? certificate
    : certificate + privateKey.export({ type: 'pkcs8', format: 'pem' }).toString()
}
