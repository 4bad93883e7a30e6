/** Iterations in total per bundle: of PBKDF2, and of PKCS#12's own derivation, one hash call each. */
export type DerivationLimits = { pbkdf2: number; pkcs12: number }

/** About a second of native code, and a few tenths of one. Some programs derive each key by 600000 iterations. */
export const MOST_ITERATIONS: DerivationLimits = { pbkdf2: 2_500_000, pkcs12: 150_000 }

/** A few hundredths of a second. OpenSSL derives 3 keys by 2048 each. */
export const FEW_ITERATIONS: DerivationLimits = { pbkdf2: 8_192, pkcs12: 8_192 }

export class TooManyIterations extends Error {}
