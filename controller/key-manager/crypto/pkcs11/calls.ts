import type { ProjectKey } from '../backend.js'

export type WrapMechanism = 'CKM_AES_KEY_WRAP' | 'CKM_AES_KEY_WRAP_PAD' | 'CKM_AES_KEY_WRAP_KWP'

/** Which token to use, and how. */
export type TokenSettings = {
  libraryPath: string
  /** The first of these three that is set selects the token. If none is set, there must be exactly one token. */
  serialNumber: string | null
  labels: readonly string[]
  slotId: number | null
  pin: string
  wrapMechanism: WrapMechanism
  keyCacheLimit: number
  keyCacheMilliseconds: number
}

/** Calls to the process that holds the token. A label names a master key. */
export type TokenCall =
  | { call: 'find' | 'create' | 'attributes' | 'make check value' | 'create project key'; label: string }
  | { call: 'match check value'; label: string; checkValue: Buffer }
  | { call: 'rewrap'; key: ProjectKey; label: string }
  | { call: 'encrypt' | 'decrypt'; key: ProjectKey; data: Buffer; context: string }
  | { call: 'forget'; keyId: string }

/** Attributes of a master key, by their PKCS#11 names. */
export type KeyAttributes = Readonly<Record<string, boolean>>

export type TokenResult = Buffer | boolean | KeyAttributes

/**
 * - `broken`: the library or the token fails, and the library is loaded again.
 * - `misconfigured`: an operator must act first; a retry could lock the token.
 * - `absent`: there is no such master key.
 * - `value`, `project key`: that argument does not belong to the key.
 */
export type TokenFault = { fault: 'broken' | 'misconfigured' | 'absent' | 'value' | 'project key'; reason: string }

export type ToTokenProcess = { start: TokenSettings } | { id: number; ask: TokenCall }

export type FromTokenProcess =
  | { started: true }
  | { started: false; fault: TokenFault }
  | { id: number; result: TokenResult }
  | { id: number; fault: TokenFault }
