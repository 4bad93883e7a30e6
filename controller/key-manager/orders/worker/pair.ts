import { generateKeyPair, PAIR_ALGORITHMS, parsePairAlgorithm, supportsLength } from '../../crypto/key-pair.js'
import type { MadeSecret, OrderExecutor, OrderOutcome } from '../outcome.js'
import { parseOrderedKey } from './ordered-key.js'

/** Generates a key pair in a container, with the passphrase of the private key, if any. */
export const executePairOrder: OrderExecutor = async order => {
  const { name, algorithm, bitLength, mode, expiration, contentType } = parseOrderedKey(order)
  const pairAlgorithm = parsePairAlgorithm(algorithm)
  if (pairAlgorithm === null) {
    return failed(
      '400',
      `The algorithm "${algorithm}" is not supported for key pairs; supported are ${PAIR_ALGORITHMS.join(', ')}.`,
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
    // The Python client supports no other types of containers for a pair.
    container: { name, type: pairAlgorithm === 'rsa' ? 'rsa' : 'generic' },
  }
}

const failed = (statusCode: '400' | '500', reason: string): OrderOutcome => ({ kind: 'failed', statusCode, reason })
