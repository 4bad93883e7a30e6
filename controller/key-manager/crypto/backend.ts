import { ApiError } from '../../http/errors.js'

/** The name of a crypto back end in rows and in the secret-store API. */
export type BackendName = string

/** A project's key as the database keeps it. */
export type WrappedKey = {
  /** Of the master key that wraps it. */
  masterKeyId: string
  wrapped: Buffer
}

export type ProjectKey = WrappedKey & { id: string }

/**
 * A crypto back end: it alone ever sees a master key or a project's key in clear. Calls may be many at once. Every call has a time limit of the back end's
 * own and fails with CryptoUnavailable when the back end cannot be reached or does not know the master key that is asked for.
 *
 * Which master key is in force is the database's to say (`master_key.active`), so that all processes agree; a back end only knows some.
 */
export type CryptoBackend = {
  name: BackendName
  /** The master key to begin with, when there is none in force yet. */
  firstMasterKeyId: string
  /** Where its master keys come from, for sentences. */
  origin: string
  /** Looks anew where master keys come from when it does not know this one. */
  knowsMasterKey: (masterKeyId: string) => Promise<boolean>
  /** A value by which the master key is known again, and nothing else about it. */
  makeCheckValue: (masterKeyId: string) => Promise<Buffer>
  matchesCheckValue: (masterKeyId: string, checkValue: Buffer) => Promise<boolean>
  /** A new random key for a project, which nobody has seen in clear. */
  createProjectKey: (masterKeyId: string) => Promise<WrappedKey>
  /** The same key under another master key. */
  rewrapProjectKey: (key: ProjectKey, masterKeyId: string) => Promise<WrappedKey>
  /**
   * Encrypts and authenticates.
   * @param context what the ciphertext belongs to; it can only be decrypted in the same context
   */
  encrypt: (key: ProjectKey, plaintext: Buffer, context: string) => Promise<Buffer>
  /** @throws CannotOpen when key, context or ciphertext do not belong together */
  decrypt: (key: ProjectKey, ciphertext: Buffer, context: string) => Promise<Buffer>
  /** Forgets a project's key that it may still hold in memory. */
  forget: (projectKeyId: string) => void
  stop: () => Promise<void>
}

/**
 * The back end (a token, a source of master keys) cannot be used at the moment. Callers of an API see a 503 that says no more than that;
 * `reason` is for the log and for operators, and holds nothing secret.
 */
export class CryptoUnavailable extends ApiError {
  constructor(readonly reason: string) {
    super(503, 'Secrets cannot be opened or stored at the moment; try again in a moment.', { 'Retry-After': '5' })
    this.name = new.target.name
    this.cause = reason
  }
}

/** The back end will not work before an operator has changed something, such as a wrong PIN. */
export class CryptoMisconfigured extends CryptoUnavailable {}

/** A stored value or a wrapped key was changed, or belongs to another key or place. Says nothing about what is inside. */
export class CannotOpen extends Error {
  constructor(what: 'value' | 'project key') {
    super(`A stored ${what} cannot be opened: it was changed, or belongs to another key or place.`)
    this.name = 'CannotOpen'
  }
}
