import { createCipheriv, createDecipheriv, createHmac, randomBytes } from 'node:crypto'
import type { CryptoBackend, ProjectKey, WrappedKey } from './backend.js'

const NONCE_BYTES = 12
const TAG_BYTES = 16
/** Unwrapped project keys kept in memory. */
const MOST_KEPT = 1000

/** Tells a master key from others without telling anything about it. */
export const masterKeyId = (key: Buffer): string =>
  createHmac('sha256', key).update('krater master key id').digest('hex').slice(0, 32)

/**
 * The software back end: AES-256-GCM all the way. A stored value is nonce, ciphertext and tag.
 * @param masterKeys 32 bytes each; the first wraps, all unwrap
 */
export function createSimpleCrypto(masterKeys: readonly Buffer[]): CryptoBackend {
  const masters = new Map(masterKeys.map(key => [masterKeyId(key), key]))
  const [current] = masterKeys
  if (current === undefined) throw new Error('There is no master key.')
  const currentId = masterKeyId(current)
  const kept = new Map<string, Buffer>()

  const unwrap = ({ masterKeyId: id, wrapped }: WrappedKey): Buffer => {
    const master = masters.get(id)
    if (master === undefined) throw new Error(`The master key ${id} is not among those configured.`)
    return open(master, wrapped, 'project key')
  }
  const keyOf = (key: ProjectKey): Buffer => {
    const known = kept.get(key.id)
    if (known !== undefined) return known
    const unwrapped = unwrap(key)
    const oldest = kept.size >= MOST_KEPT ? kept.keys().next().value : undefined
    if (oldest !== undefined) kept.delete(oldest)
    kept.set(key.id, unwrapped)
    return unwrapped
  }
  const wrap = (key: Buffer): WrappedKey => ({ masterKeyId: currentId, wrapped: seal(current, key, 'project key') })

  return {
    name: 'simple_crypto',
    masterKeyId: currentId,
    createProjectKey: async () => wrap(randomBytes(32)),
    rewrapProjectKey: async key => wrap(unwrap(key)),
    encrypt: async (key, plaintext, context) => seal(keyOf(key), plaintext, context),
    decrypt: async (key, ciphertext, context) => open(keyOf(key), ciphertext, context),
    forget: id => kept.delete(id),
    stop: async () => kept.clear(),
  }
}

function seal(key: Buffer, plaintext: Buffer, context: string): Buffer {
  const nonce = randomBytes(NONCE_BYTES)
  const cipher = createCipheriv('aes-256-gcm', key, nonce).setAAD(Buffer.from(context))
  return Buffer.concat([nonce, cipher.update(plaintext), cipher.final(), cipher.getAuthTag()])
}

function open(key: Buffer, sealed: Buffer, context: string): Buffer {
  const decipher = createDecipheriv('aes-256-gcm', key, sealed.subarray(0, NONCE_BYTES), { authTagLength: TAG_BYTES })
  decipher.setAAD(Buffer.from(context)).setAuthTag(sealed.subarray(-TAG_BYTES))
  return Buffer.concat([decipher.update(sealed.subarray(NONCE_BYTES, -TAG_BYTES)), decipher.final()])
}
