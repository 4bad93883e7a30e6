/** What references led to, as it was stored. */
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
  /** Without an authority its signature does not count. */
  | { kind: 'revocation list'; list: Uint8Array; authority: Uint8Array | null }

/** It is not what it should be; the message is a clause that may be shown, and holds nothing of it. */
export class Unusable extends Error {}
