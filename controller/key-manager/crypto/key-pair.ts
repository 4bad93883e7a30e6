import { generateKeyPair as generate } from 'node:crypto'
import { promisify } from 'node:util'
import { computeOnThread } from '../../process/compute-thread.js'

export const PAIR_ALGORITHMS = ['rsa', 'dsa', 'ec'] as const

export type PairAlgorithm = (typeof PAIR_ALGORITHMS)[number]

/** Both in PEM: PKCS#8, encrypted with AES-256-CBC if there is a passphrase, and SubjectPublicKeyInfo. */
export type KeyPair = { privateKey: string; publicKey: string }

/** Supported curves with their bits. */
export const CURVE_BITS: Readonly<Record<string, number>> = { prime256v1: 256, secp384r1: 384, secp521r1: 521 }

const LENGTHS: Readonly<Record<PairAlgorithm, readonly number[]>> = {
  rsa: [2048, 4096],
  dsa: [2048, 3072],
  ec: Object.values(CURVE_BITS),
}
const DSA_DIVISOR_BITS = 256

const generateAsync = promisify(generate)

/** Ignores case. Null for any other text. Pure. */
export const parsePairAlgorithm = (text: string): PairAlgorithm | null =>
  PAIR_ALGORITHMS.find(algorithm => algorithm === text.toLowerCase()) ?? null

export const supportsLength = (algorithm: PairAlgorithm, bits: number): boolean => LENGTHS[algorithm].includes(bits)

/**
 * Makes a key pair on another thread, so that it blocks nothing else in this process; the search for primes
 * runs at low priority. It cannot be interrupted: RSA of 4096 bits takes some seconds of processor time.
 * @param bits a length that `supportsLength` accepts
 */
export async function generateKeyPair(
  algorithm: PairAlgorithm,
  bits: number,
  passphrase: string | null = null,
): Promise<KeyPair> {
  const publicKeyEncoding = { type: 'spki', format: 'pem' } as const
  const privateKeyEncoding = {
    ...({ type: 'pkcs8', format: 'pem' } as const),
    ...(passphrase !== null && { cipher: 'aes-256-cbc', passphrase }),
  }
  const encodings = { publicKeyEncoding, privateKeyEncoding }
  switch (algorithm) {
    case 'rsa':
      return computeOnThread({ kind: 'RSA key pair', options: { modulusLength: bits, ...encodings } })
    case 'dsa':
      return computeOnThread({
        kind: 'DSA key pair',
        options: { modulusLength: bits, divisorLength: DSA_DIVISOR_BITS, ...encodings },
      })
    case 'ec': {
      const [namedCurve] = Object.entries(CURVE_BITS).find(([, bitsOfCurve]) => bitsOfCurve === bits) ?? []
      if (namedCurve === undefined) throw new Error(`There is no curve of ${bits} bits.`)
      return generateAsync('ec', { namedCurve, ...encodings })
    }
  }
}
