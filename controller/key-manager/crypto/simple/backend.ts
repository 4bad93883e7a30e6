import { createCipheriv, createDecipheriv, createHmac, createSecretKey, type KeyObject, randomBytes } from 'node:crypto'
import { CannotOpen, type CryptoBackend, CryptoUnavailable, type ProjectKey, type WrappedKey } from '../backend.js'
import { createKeyCache } from '../key-cache.js'

const NONCE_BYTES = 12
const TAG_BYTES = 16
/** Unwrapped project keys kept in memory. */
const MAX_CACHED_KEYS = 1000
/** Least time between two reads of the source in search of the same unknown master key. */
const REREAD_INTERVAL_MS = 1000

/** Where the master keys of one process come from. */
export type MasterKeySource = {
  /** For messages, such as `the file /var/lib/krater/keys/key-manager-master`. */
  origin: string
  /** How an operator makes a new key known to this process. */
  remedy: string
  /** 32 bytes each, the newest first; at least one. */
  keys: readonly Buffer[]
  /**
   * Reads the source again; null if it cannot change while the process runs. Its errors are for operators and
   * hold nothing secret.
   */
  reread: (() => Promise<readonly Buffer[]>) | null
}

export type SimpleCryptoOptions = {
  /** How long unwrapped project keys stay cached. */
  keyCacheMilliseconds?: number
}

/** Identifies a master key without revealing anything about it. */
export const masterKeyId = (key: Buffer): string =>
  createHmac('sha256', key).update('krater master key id').digest('hex').slice(0, 32)

/** The software back end: AES-256-GCM throughout. A stored value is nonce, ciphertext and tag. */
export function createSimpleCrypto(
  source: MasterKeySource,
  { keyCacheMilliseconds = 900_000 }: SimpleCryptoOptions = {},
): CryptoBackend {
  const [newest] = source.keys
  if (newest === undefined) throw new Error('There is no master key.')
  const masterKeys = createMasterKeyring(source)
  const cache = createKeyCache<KeyObject>(MAX_CACHED_KEYS, keyCacheMilliseconds)

  const unwrap = async ({ masterKeyId: id, wrapped }: WrappedKey): Promise<Buffer> =>
    open(await masterKeys.get(id), wrapped, 'project key') ?? raise(new CannotOpen('project key'))
  const projectKey = async (key: ProjectKey): Promise<KeyObject> => {
    const cached = cache.get(key.id)
    if (cached !== undefined) return cached
    const unwrapped = await unwrap(key)
    const secret = createSecretKey(unwrapped)
    unwrapped.fill(0)
    cache.set(key.id, secret)
    return secret
  }
  const wrap = async (key: Buffer, id: string): Promise<WrappedKey> => {
    const wrapped = seal(await masterKeys.get(id), key, 'project key')
    key.fill(0)
    return { masterKeyId: id, wrapped }
  }

  return {
    name: 'simple_crypto',
    firstMasterKeyId: masterKeyId(newest),
    origin: source.origin,
    knowsMasterKey: async id => (await masterKeys.find(id)) !== undefined,
    makeCheckValue: async id => seal(await masterKeys.get(id), randomBytes(16), 'check value'),
    matchesCheckValue: async (id, value) => open(await masterKeys.get(id), value, 'check value') !== null,
    createProjectKey: id => wrap(randomBytes(32), id),
    rewrapProjectKey: async (key, id) => wrap(await unwrap(key), id),
    encrypt: async (key, plaintext, context) => seal(await projectKey(key), plaintext, context),
    decrypt: async (key, ciphertext, context) =>
      open(await projectKey(key), ciphertext, context) ?? raise(new CannotOpen('value')),
    forget: cache.forget,
    stop: async () => cache.clear(),
  }
}

type MasterKeyring = {
  /** Reads the source again when the key is unknown. */
  find: (id: string) => Promise<KeyObject | undefined>
  /** @throws CryptoUnavailable when the source does not have the key either */
  get: (id: string) => Promise<KeyObject>
}

/** Remembers every master key it has read: the source may drop one while project keys here are still wrapped by it. */
function createMasterKeyring({ origin, remedy, keys, reread }: MasterKeySource): MasterKeyring {
  const known = new Map<string, KeyObject>()
  const add = (read: readonly Buffer[]) => {
    for (const key of read) known.set(masterKeyId(key), createSecretKey(key))
  }
  add(keys)
  let reading: Promise<void> | null = null
  // When the source was last read in search of a key that it may not have.
  const soughtAt = new Map<string, number>()
  // Why the last read failed; null if it succeeded.
  let readError: string | null = null

  const readAgain = (read: () => Promise<readonly Buffer[]>): Promise<void> =>
    read()
      .then(add)
      .then(
        () => {
          readError = null
        },
        error => {
          readError = error instanceof Error ? error.message : String(error)
        },
      )
      .finally(() => {
        reading = null
      })
  const find = async (id: string): Promise<KeyObject | undefined> => {
    // A read that goes on may have begun before the source had this key.
    if (!known.has(id) && reading !== null) await reading
    const isDue = performance.now() - (soughtAt.get(id) ?? Number.NEGATIVE_INFINITY) >= REREAD_INTERVAL_MS
    if (!known.has(id) && reread !== null && isDue) {
      soughtAt.set(id, performance.now())
      reading ??= readAgain(reread)
      await reading
    }
    return known.get(id)
  }
  const get = async (id: string): Promise<KeyObject> => {
    const key = await find(id)
    if (key !== undefined) return key
    throw new CryptoUnavailable(
      `The master key ${id} is needed, but ${origin} ${readError === null ? 'has' : 'had'} only ${[...known.keys()].join(', ')}. ${readError ?? remedy}`,
    )
  }
  return { find, get }
}

function raise(error: Error): never {
  throw error
}

function seal(key: KeyObject, plaintext: Buffer, context: string): Buffer {
  const nonce = randomBytes(NONCE_BYTES)
  const cipher = createCipheriv('aes-256-gcm', key, nonce).setAAD(Buffer.from(context))
  return Buffer.concat([nonce, cipher.update(plaintext), cipher.final(), cipher.getAuthTag()])
}

/** Null if it was not sealed with this key and context. */
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
