import { generateKeyPairSync } from 'node:crypto'
import { isIP } from 'node:net'
import { randomSerial, writeCertificate } from '../../x509/certificate.js'
import { readDer } from '../../x509/encoding/asn1.js'
import { parseDistinguishedName } from '../../x509/encoding/distinguished-name.js'
import { encodeName } from '../../x509/encoding/name-encoding.js'
import { encodePem } from '../../x509/encoding/pem.js'
import { acmeIdentifier, subjectAltName } from '../../x509/extensions.js'
import { readPublicKey } from '../../x509/public-key.js'

const DAY_MS = 86_400_000

/**
 * PEM of a certificate, with its key, that answers a challenge over TLS (RFC 8737). Only a CA that validates ever sees
 * it.
 * @param identifier a host name or an address @param digest SHA-256 of the key authorization, in hexadecimal
 */
export function createChallengeCertificate(identifier: string, digest: string, now = new Date()): string {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  const name = encodeName(parseDistinguishedName('CN=ACME challenge'))
  const alternative = { kind: isIP(identifier) === 0 ? ('dns' as const) : ('ip' as const), value: identifier }
  const der = writeCertificate(
    {
      serial: randomSerial(),
      issuer: name,
      subject: name,
      publicKey: readPublicKey(readDer(publicKey.export({ type: 'spki', format: 'der' }), 'public key')),
      notBefore: new Date(now.getTime() - DAY_MS),
      notAfter: new Date(now.getTime() + 7 * DAY_MS),
      extensions: [subjectAltName([alternative], false), acmeIdentifier(Buffer.from(digest, 'hex'))],
    },
    privateKey,
  )
  return encodePem('CERTIFICATE', der) + privateKey.export({ type: 'pkcs8', format: 'pem' }).toString()
}
