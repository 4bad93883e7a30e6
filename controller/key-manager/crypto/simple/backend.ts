import { createCipheriv, createDecipheriv, createHmac, createSecretKey, type KeyObject, randomBytes } from 'node:crypto'
import { CannotOpen, type CryptoBackend, CryptoUnavailable, type ProjectKey, type WrappedKey } from '../backend.js'
import { createKeyCache } from '../key-cache.js'

const NONCE_BYTES = 12
const TAG_BYTES = 16
/** Unwrapped project keys kept in memory. */
const MOST_KEPT = 1000
/** Between two reads of the key file for a master key that is not known. */
const READ_AGAIN_MS = 1000

/** Where the master keys of one process come from. */
export type MasterKeySource = {
  /** For sentences, such as `the file /var/lib/krater/keys/key-manager-master`. */
  origin: string
  /** What an operator does so that this process learns of a new key. */
  remedy: string
  /** 32 bytes each, the newest first; at least one. */
  keys: readonly Buffer[]
  /** Looks anew; null where a running process can learn nothing new. Its errors tell operators what is wrong, and nothing secret. */
  reread: (() => Promise<readonly Buffer[]>) | null
}

export type SimpleCryptoOptions = {
  /** How long an unwrapped project key is kept. */
  keepMilliseconds?: number
}

/** Tells a master key from others without telling anything about it. */
export const masterKeyId = (key: Buffer): string =>
  createHmac('sha256', key).update('krater master key id').digest('hex').slice(0, 32)

/** The software back end: AES-256-GCM all the way. A stored value is nonce, ciphertext and tag. */
export function createSimpleCrypto(
  { origin, remedy, keys, reread }: MasterKeySource,
  { keepMilliseconds = 900_000 }: SimpleCryptoOptions = {},
): CryptoBackend {
  const [newest] = keys
  if (newest === undefined) throw new Error('There is no master key.')
  // One that was known once stays known: the source may drop it while something here is still under it.
  const masters = new Map<string, KeyObject>()
  const learn = (found: readonly Buffer[]) => {
    for (const key of found) masters.set(masterKeyId(key), createSecretKey(key))
  }
  learn(keys)
  const kept = createKeyCache<KeyObject>(MOST_KEPT, keepMilliseconds)
  let reading: Promise<void> | null = null
  let readAt = Number.NEGATIVE_INFINITY
  // Why the last read failed; null when it did not.
  let fault: string | null = null

  const readAnew = async (): Promise<void> => {
    if (reread === null || performance.now() - readAt < READ_AGAIN_MS) return
    reading ??= reread()
      .then(learn)
      .then(
        () => {
          fault = null
        },
        error => {
          fault = error instanceof Error ? error.message : String(error)
        },
      )
      .finally(() => {
        reading = null
        readAt = performance.now()
      })
    await reading
  }
  const findMaster = async (id: string): Promise<KeyObject | undefined> => {
    if (!masters.has(id)) await readAnew()
    return masters.get(id)
  }
  const masterOf = async (id: string): Promise<KeyObject> => {
    const master = await findMaster(id)
    if (master !== undefined) return master
    throw new CryptoUnavailable(
      `The master key ${id} is needed, but ${origin} ${fault === null ? 'has' : 'had'} only ${[...masters.keys()].join(', ')}. ${fault ?? remedy}`,
    )
  }
  const unwrap = async ({ masterKeyId: id, wrapped }: WrappedKey): Promise<Buffer> =>
    open(await masterOf(id), wrapped, 'project key') ?? raise(new CannotOpen('project key'))
  const keyOf = async (key: ProjectKey): Promise<KeyObject> => {
    const known = kept.get(key.id)
    if (known !== undefined) return known
    const unwrapped = await unwrap(key)
    const secret = createSecretKey(unwrapped)
    unwrapped.fill(0)
    kept.set(key.id, secret)
    return secret
  }
  const wrap = async (key: Buffer, id: string): Promise<WrappedKey> => {
    const wrapped = seal(await masterOf(id), key, 'project key')
    key.fill(0)
    return { masterKeyId: id, wrapped }
  }

  return {
    name: 'simple_crypto',
    firstMasterKeyId: masterKeyId(newest),
    origin,
    knowsMasterKey: async id => (await findMaster(id)) !== undefined,
    makeCheckValue: async id => seal(await masterOf(id), randomBytes(16), 'check value'),
    matchesCheckValue: async (id, value) => open(await masterOf(id), value, 'check value') !== null,
    createProjectKey: id => wrap(randomBytes(32), id),
    rewrapProjectKey: async (key, id) => wrap(await unwrap(key), id),
    encrypt: async (key, plaintext, context) => seal(await keyOf(key), plaintext, context),
    decrypt: async (key, ciphertext, context) =>
      open(await keyOf(key), ciphertext, context) ?? raise(new CannotOpen('value')),
    forget: kept.forget,
    stop: async () => kept.clear(),
  }
}

function raise(error: Error): never {
  throw error
}

function seal(key: KeyObject, plaintext: Buffer, context: string): Buffer {
  const nonce = randomBytes(NONCE_BYTES)
  const cipher = createCipheriv('aes-256-gcm', key, nonce).setAAD(Buffer.from(context))
  return Buffer.concat([nonce, cipher.update(plaintext), cipher.final(), cipher.getAuthTag()])
}

/** Null when it does not belong to this key and context. */
function open(key: KeyObject, sealed: Buffer, context: string): Buffer | null {
  if (sealed.length < NONCE_BYTES + TAG_BYTES) return null
  const decipher = createDecipheriv('aes-256-gcm', key, sealed.subarray(0, NONCE_BYTES), { authTagLength: TAG_BYTES })
  decipher.setAAD(Buffer.from(context)).setAuthTag(sealed.subarray(-TAG_BYTES))
  const plaintext = decipher.update(sealed.subarray(NONCE_BYTES, -TAG_BYTES))
  try {
    decipher.final()
    return plaintext
  } catch {
    return null
  }
}
