import { generateKeyPair as generate } from 'node:crypto'
import { promisify } from 'node:util'
import { computeAside } from '../../process/aside.js'

export const PAIR_ALGORITHMS = ['rsa', 'dsa', 'ec'] as const

export type PairAlgorithm = (typeof PAIR_ALGORITHMS)[number]

/** Both PEM: PKCS#8, encrypted with AES-256-CBC when there is a passphrase, and SubjectPublicKeyInfo. */
export type KeyPair = { privateKey: string; publicKey: string }

/** Bits of each curve. */
export const CURVES: Readonly<Record<string, number>> = { prime256v1: 256, secp384r1: 384, secp521r1: 521 }

const LENGTHS: Readonly<Record<PairAlgorithm, readonly number[]>> = {
  rsa: [2048, 4096],
  dsa: [2048, 3072],
  ec: Object.values(CURVES),
}
const DSA_DIVISOR_BITS = 256

const generateAsync = promisify(generate)

/** Null for what is no algorithm of key pairs; case does not matter. Pure. */
export const pairAlgorithmOf = (text: string): PairAlgorithm | null =>
  PAIR_ALGORITHMS.find(algorithm => algorithm === text.toLowerCase()) ?? null

export const supportsLength = (algorithm: PairAlgorithm, bits: number): boolean => LENGTHS[algorithm].includes(bits)

/**
 * Makes a key pair on another thread, so that nothing else in this process waits; the search for primes gives way to requests. It cannot be
 * interrupted: 4096 bits of RSA take some seconds of a processor.
 * @param bits a length that `supportsLength` knows
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
      return computeAside({ kind: 'RSA key pair', options: { modulusLength: bits, ...encodings } })
    case 'dsa':
      return computeAside({
        kind: 'DSA key pair',
        options: { modulusLength: bits, divisorLength: DSA_DIVISOR_BITS, ...encodings },
      })
    case 'ec': {
      const [namedCurve] = Object.entries(CURVES).find(([, bitsOfCurve]) => bitsOfCurve === bits) ?? []
      if (namedCurve === undefined) throw new Error(`There is no curve of ${bits} bits.`)
      return generateAsync('ec', { namedCurve, ...encodings })
    }
  }
}
