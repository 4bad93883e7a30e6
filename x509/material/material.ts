import { InvalidX509 } from '../invalid-x509.js'

/** The stored bytes behind a reference. */
export type Material =
  | { kind: 'bundle'; bundle: Uint8Array }
  | {
      kind: 'certificate'
      certificate: Uint8Array
      privateKey: Uint8Array
      intermediates: Uint8Array | null
      passphrase: Uint8Array | null
    }
  | { kind: 'authority'; authority: Uint8Array }
  /** Without an authority, the signature is not checked. */
  | { kind: 'revocation list'; list: Uint8Array; authority: Uint8Array | null }

/** The material is invalid. The message is a clause that the caller may see and quotes nothing of the material. */
export class Unusable extends Error {}

/** Why material cannot be assembled, as a clause that quotes nothing of it; null for another error. */
export function whatIsWrong(error: unknown): string | null {
  if (error instanceof Unusable) return error.message
  return error instanceof InvalidX509 ? clause(error.message) : null
}

/** A sentence as a clause. */
const clause = (sentence: string): string => sentence.charAt(0).toLowerCase() + sentence.slice(1).replace(/\.$/, '')
