import type { ProjectKey } from '../backend.js'

export type WrapMechanism = 'CKM_AES_KEY_WRAP' | 'CKM_AES_KEY_WRAP_PAD' | 'CKM_AES_KEY_WRAP_KWP'

/** Which token, and how it is used. */
export type TokenSettings = {
  libraryPath: string
  /** The token is found by the first of these that is set; without any it must be the only one. */
  serialNumber: string | null
  labels: readonly string[]
  slotId: number | null
  pin: string
  wrapMechanism: WrapMechanism
  keyCacheLimit: number
  keyCacheMilliseconds: number
}

/** What is asked of the process that holds the token. Master keys go by their labels. */
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
 * `broken`: the library or the token fails; all is loaded anew. `misconfigured`: an operator must act first; trying again could lock the token.
 * `absent`: there is no such master key. The other two: what was given does not belong to the key.
 */
export type TokenFault = { fault: 'broken' | 'misconfigured' | 'absent' | 'value' | 'project key'; reason: string }

export type ToTokenProcess = { start: TokenSettings } | { id: number; ask: TokenCall }

export type FromTokenProcess =
  | { started: true }
  | { started: false; fault: TokenFault }
  | { id: number; result: TokenResult }
  | { id: number; fault: TokenFault }
