import { createPublicKey, hkdfSync, type KeyObject } from 'node:crypto'
import { ed25519FromSeed } from '../../x509/ed25519.js'

/** Id of the heartbeat keys for new amphorae. Datagrams name their key's id, so that keys can be rotated. */
export const HEARTBEAT_KEY_ID = 1

export type AmphoraIdentity = {
  /** OpenSSH private key file, PEM armoured, without a passphrase. */
  sshHostKeyPrivate: string
  /** The public key in SSH wire format, which the controller pins. */
  sshHostKeyPublic: Buffer
  /** 32 bytes for HMAC-SHA256, with the key id HEARTBEAT_KEY_ID. */
  heartbeatKey: Buffer
}

/**
 * An amphora's secrets, derived from the master key (32 bytes) and its id. The derivation is deterministic: the
 * pin is known before first contact, nothing is stored, and a recreated amphora keeps its identity.
 */
export function amphoraIdentity(master: Buffer, amphoraId: string): AmphoraIdentity {
  const key = ed25519FromSeed(derive(master, amphoraId, 'lb-ssh-host-key'))
  return {
    sshHostKeyPrivate: opensshPrivateKey(key, amphoraId.toLowerCase()),
    sshHostKeyPublic: opensshPublicBlob(key),
    heartbeatKey: heartbeatKey(master, HEARTBEAT_KEY_ID, amphoraId),
  }
}

/** The key (32 bytes) with which an amphora signs its heartbeats. `keyId` is 0 to 255. */
export function heartbeatKey(master: Buffer, keyId: number, amphoraId: string): Buffer {
  return derive(master, amphoraId, 'lb-heartbeat', keyId)
}

/** Twelve hexadecimal digits that every controller host of an installation knows, and no other installation has. */
export const installationId = (master: Buffer): string => derive(master, '', 'lb-installation').toString('hex', 0, 6)

/** `ssh-ed25519 AAAA... comment`, for known_hosts and authorized_keys files. */
export function opensshPublicLine(blob: Buffer, comment = ''): string {
  return `ssh-ed25519 ${blob.toString('base64')} ${comment}`.trimEnd()
}

function derive(master: Buffer, amphoraId: string, purpose: string, keyId?: number): Buffer {
  if (master.length < 32) throw new Error('The amphora master key must have at least 32 bytes.')
  const info = keyId === undefined ? Buffer.from(purpose) : Buffer.concat([Buffer.from(purpose), Buffer.of(keyId)])
  return Buffer.from(hkdfSync('sha256', master, amphoraId.toLowerCase(), info, 32))
}

function opensshPublicBlob(key: KeyObject): Buffer {
  return Buffer.concat([sshString('ssh-ed25519'), sshString(rawPublicKey(key))])
}

/** OpenSSH's private key format (PROTOCOL.key), the only one in which sshd reads ed25519 keys. */
function opensshPrivateKey(key: KeyObject, comment: string): string {
  const publicKey = rawPublicKey(key)
  const seed = fromBase64Url(key.export({ format: 'jwk' }).d)
  // Two equal numbers verify the passphrase; without a passphrase, any value will do.
  const check = publicKey.subarray(0, 4)
  const secret = Buffer.concat([
    check,
    check,
    sshString('ssh-ed25519'),
    sshString(publicKey),
    sshString(Buffer.concat([seed, publicKey])),
    sshString(comment),
  ])
  const padding = Buffer.from(Array.from({ length: (8 - (secret.length % 8)) % 8 }, (_, index) => index + 1))
  const container = Buffer.concat([
    Buffer.from('openssh-key-v1\0'),
    sshString('none'),
    sshString('none'),
    sshString(''),
    uint32(1),
    sshString(opensshPublicBlob(key)),
    sshString(Buffer.concat([secret, padding])),
  ])
  const lines = container.toString('base64').match(/.{1,70}/g) ?? []
  return ['-----BEGIN OPENSSH PRIVATE KEY-----', ...lines, '-----END OPENSSH PRIVATE KEY-----', ''].join('\n')
}

function rawPublicKey(key: KeyObject): Buffer {
  return fromBase64Url(createPublicKey(key).export({ format: 'jwk' }).x)
}

function fromBase64Url(text: string | undefined): Buffer {
  return Buffer.from(text ?? '', 'base64url')
}

function sshString(value: string | Buffer): Buffer {
  const bytes = Buffer.from(value)
  return Buffer.concat([uint32(bytes.length), bytes])
}

function uint32(value: number): Buffer {
  const bytes = Buffer.alloc(4)
  bytes.writeUInt32BE(value)
  return bytes
}
