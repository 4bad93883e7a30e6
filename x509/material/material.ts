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
