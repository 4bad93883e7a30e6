import { randomBytes } from 'node:crypto'
import type { OrderExecutor, OrderOutcome } from '../outcome.js'
import { type OrderedKey, parseOrderedKey } from './ordered-key.js'

const AES = [128, 192, 256]
/** XTS uses two AES keys. */
const AES_XTS = AES.map(bits => bits * 2)
const MIN_HMAC_BITS = 64
const MAX_HMAC_BITS = 1024

type Lengths = (bits: number, mode: string | null) => boolean

const hmac: Lengths = bits => bits % 8 === 0 && bits >= MIN_HMAC_BITS && bits <= MAX_HMAC_BITS

/** Supported lengths in bits, by symmetric algorithm. */
const SYMMETRIC: Readonly<Record<string, Lengths>> = {
  aes: (bits, mode) => (mode?.toLowerCase() === 'xts' ? AES_XTS : AES).includes(bits),
  des: bits => bits === 64,
  '3des': bits => bits === 128 || bits === 192,
  hmacsha1: hmac,
  hmacsha256: hmac,
  hmacsha384: hmac,
  hmacsha512: hmac,
}

/** Generates one symmetric key of random bits. */
export const executeKeyOrder: OrderExecutor = async order => {
  const key = parseOrderedKey(order)
  const refusal = findRefusal(key)
  if (refusal !== null) return refusal
  const { algorithm, bitLength, mode, name, expiration, contentType } = key
  const payload = randomBytes(bitLength / 8)
  return {
    kind: 'made',
    secrets: [
      { role: null, secretType: 'symmetric', name, algorithm, bitLength, mode, expiration, payload, contentType },
    ],
    container: null,
  }
}

function findRefusal({ algorithm, bitLength, mode }: OrderedKey): OrderOutcome | null {
  const lengths = SYMMETRIC[algorithm.toLowerCase()]
  if (lengths === undefined) {
    const reason = `The algorithm "${algorithm}" is not supported for symmetric keys; supported are ${Object.keys(SYMMETRIC).join(', ')}.`
    return { kind: 'failed', statusCode: '400', reason }
  }
  if (lengths(bitLength, mode)) return null
  const what = mode === null ? algorithm : `${algorithm} in mode ${mode}`
  return { kind: 'failed', statusCode: '500', reason: `A key of ${bitLength} bits is not supported for ${what}.` }
}
