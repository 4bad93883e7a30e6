import * as z from 'zod'
import { badRequest } from '../../http/errors.js'
import { CURVE_BITS } from '../crypto/key-pair.js'
import { parseBody, textUpTo, wholeNumber } from '../input.js'
import { parseContentType, unsupportedType } from '../secrets/content-types.js'
import { parseExpiration } from '../secrets/expiration.js'

/** The members of `meta` to store and show: Python clients fail on any other. */
export type KeyMeta = {
  name: string | null
  algorithm: string
  bit_length: number
  mode?: string
  payload_content_type?: string
}

export type ParsedMeta<Meta> = {
  meta: Meta
  /** When the result expires; null for never. */
  expiration: Date | null
  /** Encrypts the private key; null leaves it unencrypted. */
  passphrase: string | null
}

/** OpenSSL cannot read longer ones, so nobody could use the key. */
const MAX_PASSPHRASE_BYTES = 1000

const text = textUpTo(255)
const passphrase = z
  .string()
  .refine(value => Buffer.byteLength(value) <= MAX_PASSPHRASE_BYTES, `must have at most ${MAX_PASSPHRASE_BYTES} bytes`)
  .nullish()

const keyMeta = z.object({
  name: text.nullish().transform(name => name ?? null),
  algorithm: text.min(1, 'must not be empty'),
  bit_length: wholeNumber(1, 32767),
  mode: text.nullish(),
  expiration: text.nullish(),
  payload_content_type: text.nullish(),
  payload: z.undefined('must not be given: the service generates it').optional(),
})

const pairMeta = keyMeta.extend({ curve: text.nullish(), passphrase, pass_phrase: passphrase })

const isEc = (algorithm: string): boolean => algorithm.toLowerCase() === 'ec'

/** @throws ApiError 400 unless it is the meta of an order for a symmetric key */
export function parseKeyMeta(value: unknown): ParsedMeta<KeyMeta> {
  const body = parseBody(keyMeta, value, 'meta of the order')
  return { ...parseCommon(body), passphrase: null }
}

/** @throws ApiError 400 unless it is the meta of an order for a key pair */
export function parsePairMeta(value: unknown): ParsedMeta<KeyMeta> {
  const body = parseBody(pairMeta, value, 'meta of the order')
  const { algorithm, bit_length: bits, curve } = body
  if (isEc(algorithm) && typeof curve === 'string') {
    const curveBits = CURVE_BITS[curve]
    if (curveBits === undefined)
      throw badRequest(`The curve "${curve}" is not one of ${Object.keys(CURVE_BITS).join(', ')}.`)
    if (curveBits !== bits) throw badRequest(`The curve ${curve} has ${curveBits} bits, not ${bits}.`)
  }
  // An empty passphrase counts as none.
  return { ...parseCommon(body), passphrase: body.passphrase || body.pass_phrase || null }
}

function parseCommon(body: z.output<typeof keyMeta>): Pick<ParsedMeta<KeyMeta>, 'meta' | 'expiration'> {
  const { name, algorithm, bit_length, mode, payload_content_type: type } = body
  if (bit_length % 8 !== 0 && !isEc(algorithm)) throw badRequest('The bit_length must be a multiple of 8.')
  // An empty one counts as none, as in Barbican.
  if (type && parseContentType(type) === null) {
    throw unsupportedType(type)
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
