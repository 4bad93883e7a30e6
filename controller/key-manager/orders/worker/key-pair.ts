import { generateKeyPair as generate } from 'node:crypto'
import { promisify } from 'node:util'
import type { MadeSecret, OrderExecutor, OrderOutcome } from '../outcome.js'
import { keyMetaOf } from './ordered-key.js'

export type PairAlgorithm = 'rsa' | 'dsa' | 'ec'

/** Both PEM: PKCS#8, encrypted with AES-256-CBC when there is a passphrase, and SubjectPublicKeyInfo. */
export type KeyPair = { privateKey: string; publicKey: string }

const LENGTHS: Readonly<Record<PairAlgorithm, readonly number[]>> = {
  rsa: [2048, 4096],
  dsa: [2048, 3072],
  ec: [256, 384, 521],
}
const CURVE_OF: Readonly<Record<number, string>> = { 256: 'prime256v1', 384: 'secp384r1', 521: 'secp521r1' }
const DSA_DIVISOR_BITS = 256

const generateAsync = promisify(generate)

/** Null for what is no algorithm of key pairs; case does not matter. */
export const pairAlgorithmOf = (text: string): PairAlgorithm | null => {
  const lower = text.toLowerCase()
  return lower === 'rsa' || lower === 'dsa' || lower === 'ec' ? lower : null
}

export const supportsLength = (algorithm: PairAlgorithm, bits: number): boolean => LENGTHS[algorithm].includes(bits)

/**
 * Makes a key pair on a thread of its own kind (libuv's pool), so that nothing else in this process waits.
 * @param bits one that supportsLength knows
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
  if (algorithm === 'rsa') return generateAsync('rsa', { modulusLength: bits, ...encodings })
  if (algorithm === 'dsa') {
    return generateAsync('dsa', { modulusLength: bits, divisorLength: DSA_DIVISOR_BITS, ...encodings })
  }
  return generateAsync('ec', { namedCurve: CURVE_OF[bits] ?? '', ...encodings })
}

/** Makes a key pair in a container, with the passphrase that its private key is under if there is one. */
export const executePairOrder: OrderExecutor = async order => {
  const { name, algorithm, bitLength, mode, expiration, contentType } = keyMetaOf(order)
  const pairAlgorithm = pairAlgorithmOf(algorithm)
  if (pairAlgorithm === null) {
    return failed(
      '400',
      `The algorithm "${algorithm}" makes no key pair; supported are ${Object.keys(LENGTHS).join(', ')}.`,
    )
  }
  if (!supportsLength(pairAlgorithm, bitLength)) {
    return failed('500', `A key pair of ${bitLength} bits is not supported for ${algorithm}.`)
  }
  const { privateKey, publicKey } = await generateKeyPair(pairAlgorithm, bitLength, order.passphrase)
  const part = (role: string, secretType: MadeSecret['secretType'], payload: string): MadeSecret => ({
    ...{ role, name, secretType, algorithm, bitLength, mode, expiration, contentType },
    payload: Buffer.from(payload),
  })
  return {
    kind: 'made',
    secrets: [
      part('private_key', 'private', privateKey),
      part('public_key', 'public', publicKey),
      ...(order.passphrase === null ? [] : [part('private_key_passphrase', 'passphrase', order.passphrase)]),
    ],
    // The Python client knows no other type of container for a pair.
    container: { name, type: pairAlgorithm === 'rsa' ? 'rsa' : 'generic' },
  }
}

const failed = (statusCode: '400' | '500', reason: string): OrderOutcome => ({ kind: 'failed', statusCode, reason })
