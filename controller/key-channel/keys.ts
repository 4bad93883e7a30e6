import { createPublicKey, generateKeyPairSync, hkdfSync, type KeyObject } from 'node:crypto'
import { KEY_CHANNEL_NAME } from '../../amphora-agent/protocol/key-manager/key-channel.js'
import { randomSerial, writeCertificate } from '../../x509/certificate.js'
import { ed25519FromSeed } from '../../x509/ed25519.js'
import { readDer } from '../../x509/encoding/asn1.js'
import { parseDistinguishedName } from '../../x509/encoding/distinguished-name.js'
import { encodeName } from '../../x509/encoding/name-encoding.js'
import { encodePem } from '../../x509/encoding/pem.js'
import { subjectAltName } from '../../x509/extensions.js'
import { readPublicKey } from '../../x509/public-key.js'

/** PEM of the key channel's own certificate and key. */
export type ChannelCertificate = { certificate: string; privateKey: string }

const VALID_MS = 50 * 365 * 86_400_000

/** What a controller needs to reach the key channel, and to let amphorae reach it. */
export type KeyChannelAccess = {
  endpoints: { host: string; port: number }[]
  /** PEM. */
  certificate: string
  /** 32 bytes. */
  secret: Buffer
}

/** What an amphora needs to reach the key channel. */
export const channelAccessOf = ({ endpoints, certificate, secret }: KeyChannelAccess, amphoraId: string) => ({
  endpoints,
  certificate,
  privateKey: amphoraChannelKey(secret, amphoraId).export({ type: 'pkcs8', format: 'pem' }).toString(),
})

/** The private key with which an amphora proves itself at the key channel. @param secret 32 bytes */
export const amphoraChannelKey = (secret: Buffer, amphoraId: string): KeyObject =>
  ed25519FromSeed(derive(secret, `amphora ${amphoraId.toLowerCase()}`))

/** The private key with which controllers prove themselves. */
export const controllerChannelKey = (secret: Buffer): KeyObject => ed25519FromSeed(derive(secret, 'controller'))

/** The public key of a subject: `controller`, or an amphora's id. */
export const publicKeyOf = (secret: Buffer, subject: string): KeyObject =>
  createPublicKey(subject === 'controller' ? controllerChannelKey(secret) : amphoraChannelKey(secret, subject))

/** The key of the tokens' MACs. */
export const tokenKey = (secret: Buffer): Buffer => derive(secret, 'token')

/** A new self-signed certificate for the key channel. Its clients know it beforehand, so it needs no CA. */
export function createChannelCertificate(now = new Date()): ChannelCertificate {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  const name = encodeName(parseDistinguishedName(`CN=${KEY_CHANNEL_NAME}`))
  const der = writeCertificate(
    {
      serial: randomSerial(),
      issuer: name,
      subject: name,
      publicKey: readPublicKey(readDer(publicKey.export({ type: 'spki', format: 'der' }), 'public key')),
      notBefore: new Date(now.getTime() - 86_400_000),
      notAfter: new Date(now.getTime() + VALID_MS),
      extensions: [subjectAltName([{ kind: 'dns', value: KEY_CHANNEL_NAME }], false)],
    },
    privateKey,
  )
  return {
    certificate: encodePem('CERTIFICATE', der),
    privateKey: privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(),
  }
}

const derive = (secret: Buffer, purpose: string): Buffer =>
  Buffer.from(hkdfSync('sha256', secret, 'krater key channel', purpose, 32))
