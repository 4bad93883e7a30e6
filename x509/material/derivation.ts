import { pbkdf2Sync } from 'node:crypto'
import forge from 'node-forge'
import { type DerivationLimits, TooManyIterations } from './derivation-limits.js'
import { derivePkcs12Key } from './pkcs12-derivation.js'

/**
 * Runs `body`, which decrypts with node-forge. Until it returns, node-forge derives keys with Node's cryptography and a
 * limited number of iterations.
 * @throws TooManyIterations, and what `body` throws
 */
export function withLimitedDerivations<T>(limits: DerivationLimits, body: () => T): T {
  const { pbkdf2 } = forge.pkcs5
  const { generatePkcs12Key } = forge.pbe
  const spendPbkdf2 = createBudget(limits.pbkdf2)
  const spendPkcs12 = createBudget(limits.pkcs12)

  const limitedPbkdf2 = (
    passphrase: string | null | undefined,
    salt: string,
    iterations: number,
    bytes: number,
    digest: { algorithm: string },
  ): string => {
    spendPbkdf2(iterations)
    const key = pbkdf2Sync(latin1(passphrase ?? ''), latin1(salt), iterations, bytes, digest.algorithm)
    return key.toString('latin1')
  }
  const limitedPkcs12: forge.Pkcs12Derivation = (passphrase, salt, id, iterations, bytes, given) => {
    const digest = given ?? forge.md.sha1.create()
    spendPkcs12(iterations * Math.ceil(bytes / digest.digestLength))
    const key = derivePkcs12Key({
      ...{ digest, id, iterations, bytes },
      passphrase: passphrase ?? null,
      salt: latin1(salt.bytes()),
    })
    return forge.util.createBuffer(key.toString('latin1'))
  }
  Object.assign(forge.pkcs5, { pbkdf2: limitedPbkdf2 })
  Object.assign(forge.pbe, { generatePkcs12Key: limitedPkcs12 })
  Object.assign(forge.pkcs12, { generateKey: limitedPkcs12 })
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
    // Written so that NaN is refused too.
    if (!(iterations >= 1 && iterations <= left)) throw new TooManyIterations()
    left -= iterations
  }
}
