/** Names of the crypto back ends, as the secret-store API shows them. */
export type BackendName = 'simple_crypto' | 'p11_crypto'

/** A project's key as the database keeps it. */
export type WrappedKey = {
  /** Of the master key that wraps it. */
  masterKeyId: string
  wrapped: Buffer
}

export type ProjectKey = WrappedKey & { id: string }

/**
 * A crypto back end: it alone ever sees a master key or a project's key in clear. Calls may be many at once. Every call has a time limit of the back end's
 * own and fails with CryptoUnavailable when the back end cannot be reached.
 */
export type CryptoBackend = {
  name: BackendName
  /** The master key under which new project keys are wrapped. */
  masterKeyId: string
  /** A new random key for a project, which nobody has seen in clear. */
  createProjectKey: () => Promise<WrappedKey>
  /** The same key under the master key in force. */
  rewrapProjectKey: (key: ProjectKey) => Promise<WrappedKey>
  /**
   * Encrypts and authenticates.
   * @param context what the ciphertext belongs to; it can only be decrypted in the same context
   */
  encrypt: (key: ProjectKey, plaintext: Buffer, context: string) => Promise<Buffer>
  /** @throws Error when key, context or ciphertext do not belong together */
  decrypt: (key: ProjectKey, ciphertext: Buffer, context: string) => Promise<Buffer>
  /** Forgets a project's key that it may still hold in memory. */
  forget: (projectKeyId: string) => void
  stop: () => Promise<void>
}

/** The back end (a token, a module) cannot be used at the moment. */
export class CryptoUnavailable extends Error {}
