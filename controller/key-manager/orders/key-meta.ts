import { z } from 'zod'
import { badRequest } from '../../http/errors.js'
import { CURVE_BITS } from '../crypto/key-pair.js'
import { parseBody } from '../input.js'
import { parseContentType } from '../secrets/content-types.js'
import { parseExpiration } from '../secrets/expiration.js'

/** The members of `meta` that are kept, and shown again: Python clients fail on any other. */
export type KeyMeta = {
  name: string | null
  algorithm: string
  bit_length: number
  mode?: string
  payload_content_type?: string
}

export type ParsedMeta<Meta> = {
  meta: Meta
  /** When what the order makes ends; null for never. */
  expiration: Date | null
  /** What encrypts the private key; null for none. */
  passphrase: string | null
}

/** Longer ones are not read by OpenSSL, so nobody could use the key. */
const LONGEST_PASSPHRASE = 1000

const text = z.string().max(255, 'must have at most 255 characters')
const passphrase = z
  .string()
  .refine(value => Buffer.byteLength(value) <= LONGEST_PASSPHRASE, `must have at most ${LONGEST_PASSPHRASE} bytes`)
  .nullish()

const keyMeta = z.object({
  name: text.nullish().transform(name => name ?? null),
  algorithm: text.min(1, 'must not be empty'),
  bit_length: z.int('must be a whole number').min(1).max(32767),
  mode: text.nullish(),
  expiration: text.nullish(),
  payload_content_type: text.nullish(),
  payload: z.undefined('must not be given: the service makes it').optional(),
})

const pairMeta = keyMeta.extend({ curve: text.nullish(), passphrase, pass_phrase: passphrase })

const isEc = (algorithm: string): boolean => algorithm.toLowerCase() === 'ec'

/** @throws ApiError 400 for what has not the shape of an order of a symmetric key */
export function parseKeyMeta(value: unknown): ParsedMeta<KeyMeta> {
  const body = parseBody(keyMeta, value, 'meta of the order')
  return { ...commonOf(body), passphrase: null }
}

/** @throws ApiError 400 for what has not the shape of an order of a key pair */
export function parsePairMeta(value: unknown): ParsedMeta<KeyMeta> {
  const body = parseBody(pairMeta, value, 'meta of the order')
  const { algorithm, bit_length: bits, curve } = body
  if (isEc(algorithm) && typeof curve === 'string') {
    const bitsOfCurve = CURVE_BITS[curve]
    if (bitsOfCurve === undefined)
      throw badRequest(`The curve "${curve}" is not one of ${Object.keys(CURVE_BITS).join(', ')}.`)
    if (bitsOfCurve !== bits) throw badRequest(`The curve ${curve} has ${bitsOfCurve} bits, not ${bits}.`)
  }
  // An empty one is none.
  return { ...commonOf(body), passphrase: body.passphrase || body.pass_phrase || null }
}

function commonOf(body: z.output<typeof keyMeta>): Pick<ParsedMeta<KeyMeta>, 'meta' | 'expiration'> {
  const { name, algorithm, bit_length, mode, payload_content_type: type } = body
  if (bit_length % 8 !== 0 && !isEc(algorithm)) throw badRequest('The bit_length must be a multiple of 8.')
  if (typeof type === 'string' && parseContentType(type) === null) {
    throw badRequest(`The payload_content_type "${type}" is not supported.`)
  }
  return {
    meta: {
      ...{ name, algorithm, bit_length },
      ...(typeof mode === 'string' && { mode }),
      ...(typeof type === 'string' && { payload_content_type: type }),
    },
    expiration: parseExpiration(body.expiration),
  }
}
