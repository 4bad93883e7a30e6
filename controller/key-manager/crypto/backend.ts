import { ApiError } from '../../http/errors.js'

/** The name of a crypto back end in rows and in the secret-store API. */
export type BackendName = string

/** A project's key as the database stores it. */
export type WrappedKey = {
  /** Id of the master key that wraps it. */
  masterKeyId: string
  wrapped: Buffer
}

export type ProjectKey = WrappedKey & { id: string }

/**
 * A crypto back end: only it ever sees a master key or a project's key in clear. Calls may run concurrently.
 * The back end limits the time of every call, and fails with CryptoUnavailable when it cannot be reached or
 * does not know the requested master key.
 *
 * The database decides which master key is active (`master_key.active`), so that all processes agree; a back
 * end only knows some master keys.
 */
export type CryptoBackend = {
  name: BackendName
  /** The master key to activate when none is active yet. */
  firstMasterKeyId: string
  /** Where its master keys come from, for messages. */
  origin: string
  /** Reads the source of master keys again when it does not know this one. */
  knowsMasterKey: (masterKeyId: string) => Promise<boolean>
  /** A value that verifies the master key later and reveals nothing else about it. */
  makeCheckValue: (masterKeyId: string) => Promise<Buffer>
  matchesCheckValue: (masterKeyId: string, checkValue: Buffer) => Promise<boolean>
  /** A new random project key, never exposed in clear. */
  createProjectKey: (masterKeyId: string) => Promise<WrappedKey>
  /** The same key under another master key. */
  rewrapProjectKey: (key: ProjectKey, masterKeyId: string) => Promise<WrappedKey>
  /**
   * Encrypts and authenticates.
   * @param context authenticated with the plaintext: decryption needs the same one
   */
  encrypt: (key: ProjectKey, plaintext: Buffer, context: string) => Promise<Buffer>
  /** @throws CannotOpen when the ciphertext was not made with this key and context */
  decrypt: (key: ProjectKey, ciphertext: Buffer, context: string) => Promise<Buffer>
  /** Drops a project's key from memory. */
  forget: (projectKeyId: string) => void
  stop: () => Promise<void>
}

/**
 * The back end (a token, a source of master keys) is unavailable. API clients get a 503 without details;
 * `reason` is for logs and operators, and holds nothing secret.
 */
export class CryptoUnavailable extends ApiError {
  constructor(readonly reason: string) {
    super(503, 'Secrets cannot be read or stored right now; try again in a few seconds.', { 'Retry-After': '5' })
    this.name = new.target.name
    this.cause = reason
  }
}

/** The back end stays unavailable until an operator corrects something, such as a wrong PIN. */
export class CryptoMisconfigured extends CryptoUnavailable {}

/**
 * A stored value or a wrapped key was modified, or was made with another key or context. The message reveals
 * nothing of its content.
 */
export class CannotOpen extends Error {
  constructor(what: 'value' | 'project key') {
    super(`A stored ${what} cannot be decrypted: it was modified, or encrypted with another key or context.`)
    this.name = 'CannotOpen'
  }
}
