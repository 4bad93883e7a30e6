import { pbkdf2Sync } from 'node:crypto'
import forge from 'node-forge'
import { derivePkcs12Key } from './pkcs12-derivation.js'

/** In all that one bundle asks for: about a second of native code. OpenSSL takes 2048 for each of three, others up to 600000. */
const MOST_NATIVE_ITERATIONS = 2_500_000
/** Of PKCS#12's own derivation, hash by hash: a few tenths of a second. */
const MOST_OWN_ITERATIONS = 150_000

export class TooManyIterations extends Error {}

/**
 * Runs something that opens what is protected by passphrases with node-forge: while it runs, derivations use Node's own
 * cryptography, and those beyond a limit are refused.
 * @throws TooManyIterations, and what `body` throws
 */
export function withLimitedDerivations<T>(body: () => T): T {
  const { pbkdf2 } = forge.pkcs5
  const { generatePkcs12Key } = forge.pbe
  const spendNative = createBudget(MOST_NATIVE_ITERATIONS)
  const spendOwn = createBudget(MOST_OWN_ITERATIONS)

  const native = (
    passphrase: string | null | undefined,
    salt: string,
    iterations: number,
    bytes: number,
    digest: { algorithm: string },
  ): string => {
    spendNative(iterations)
    const key = pbkdf2Sync(latin1(passphrase ?? ''), latin1(salt), iterations, bytes, digest.algorithm)
    return key.toString('latin1')
  }
  const limited: forge.Pkcs12Derivation = (passphrase, salt, id, iterations, bytes, given) => {
    const digest = given ?? forge.md.sha1.create()
    spendOwn(iterations * Math.ceil(bytes / digest.digestLength))
    const key = derivePkcs12Key({
      ...{ digest, id, iterations, bytes },
      passphrase: passphrase ?? null,
      salt: latin1(salt.bytes()),
    })
    return forge.util.createBuffer(key.toString('latin1'))
  }
  Object.assign(forge.pkcs5, { pbkdf2: native })
  Object.assign(forge.pbe, { generatePkcs12Key: limited })
  Object.assign(forge.pkcs12, { generateKey: limited })
  try {
    return body()
  } finally {
    Object.assign(forge.pkcs5, { pbkdf2 })
    Object.assign(forge.pbe, { generatePkcs12Key })
    Object.assign(forge.pkcs12, { generateKey: generatePkcs12Key })
  }
}

const latin1 = (text: string): Buffer => Buffer.from(text, 'latin1')

function createBudget(limit: number): (iterations: number) => void {
  let left = limit
  return iterations => {
    // Also what is no number, or below none.
    if (!(iterations >= 1 && iterations <= left)) throw new TooManyIterations()
    left -= iterations
  }
}
