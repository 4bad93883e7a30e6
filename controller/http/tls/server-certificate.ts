import { createPrivateKey, type KeyObject, X509Certificate } from 'node:crypto'
import { isIP } from 'node:net'
import { createSecureContext } from 'node:tls'

/** What a TLS server presents, checked. PEM texts. */
export type ServerCertificate = {
  /** The server's own, then its intermediates. */
  certificate: string
  key: string
  /** The server's own. */
  leaf: X509Certificate
}

/** Certificate or key cannot be used. The message is a clause that says why, without their content. */
export class UnusableCertificate extends Error {}

/**
 * Checks that a certificate and a key are what they should be, and belong together.
 * @param certificate PEM: the server's own first, then its intermediates
 * @param key PEM, without a passphrase
 * @throws UnusableCertificate
 */
export function readServerCertificate(certificate: string, key: string): ServerCertificate {
  const leaf = readLeaf(certificate)
  const privateKey = readKey(key)
  if (!leaf.checkPrivateKey(privateKey)) throw new UnusableCertificate('the key is not that of the certificate')
  try {
    createSecureContext({ cert: certificate, key })
  } catch (error) {
    throw new UnusableCertificate(`OpenSSL refuses them: ${(error as Error).message}`)
  }
  return { certificate, key, leaf }
}

function readLeaf(pem: string): X509Certificate {
  try {
    return new X509Certificate(pem)
  } catch {
    throw new UnusableCertificate('there is no certificate in PEM')
  }
}

function readKey(pem: string): KeyObject {
  try {
    return createPrivateKey(pem)
  } catch {
    throw new UnusableCertificate(
      /\bENCRYPTED\b/.test(pem) ? 'the key has a passphrase' : 'there is no private key in PEM',
    )
  }
}

/** Whether a client may take the certificate for this host: a name or an address. */
export const namesHost = (leaf: X509Certificate, host: string): boolean =>
  (isIP(host) === 0 ? leaf.checkHost(host) : leaf.checkIP(host)) !== undefined

export const expiryOf = (leaf: X509Certificate): Date => new Date(leaf.validTo)
