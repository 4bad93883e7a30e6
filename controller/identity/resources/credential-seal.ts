import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto'

const VERSION = 1
const NONCE_BYTES = 12
const TAG_BYTES = 16

/** Encrypts a credential's blob and binds it to the credential's ID. @param key 32 bytes */
export function seal(key: Buffer, id: string, blob: string): Buffer {
  const nonce = randomBytes(NONCE_BYTES)
  const cipher = createCipheriv('aes-256-gcm', key, nonce, { authTagLength: TAG_BYTES }).setAAD(Buffer.from(id))
  const sealed = Buffer.concat([cipher.update(blob, 'utf8'), cipher.final()])
  return Buffer.concat([Buffer.of(VERSION), nonce, cipher.getAuthTag(), sealed])
}

/** @throws Error if the key is wrong, or the bytes belong to another credential or were altered */
export function unseal(key: Buffer, id: string, bytes: Buffer): string {
  if (bytes[0] !== VERSION) throw new Error(`Credential ${id} is stored in a format that this version does not know.`)
  const nonce = bytes.subarray(1, 1 + NONCE_BYTES)
  const tag = bytes.subarray(1 + NONCE_BYTES, 1 + NONCE_BYTES + TAG_BYTES)
  const decipher = createDecipheriv('aes-256-gcm', key, nonce, { authTagLength: TAG_BYTES })
    .setAAD(Buffer.from(id))
    .setAuthTag(tag)
  const opened = Buffer.concat([decipher.update(bytes.subarray(1 + NONCE_BYTES + TAG_BYTES)), decipher.final()])
  return opened.toString('utf8')
}
