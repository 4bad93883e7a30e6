import * as z from 'zod'
import { type ContentType, parseContentType } from '../../secrets/content-types.js'
import { parseTime } from '../../secrets/expiration.js'
import type { Order } from '../outcome.js'

/** What an order for a key or a key pair asks for. */
export type OrderedKey = {
  name: string | null
  algorithm: string
  bitLength: number
  mode: string | null
  expiration: Date | null
  contentType: ContentType
}

const stored = z.object({
  name: z.string().nullable(),
  algorithm: z.string(),
  bit_length: z.int(),
  mode: z.string().optional(),
  expiration: z.string().nullable(),
  payload_content_type: z.string().optional(),
})

/** Parses the meta of an order as the API stored it. */
export function parseOrderedKey({ meta }: Order): OrderedKey {
  const {
    name,
    algorithm,
    bit_length: bitLength,
    mode = null,
    expiration,
    payload_content_type: type,
  } = stored.parse(meta)
  return {
    ...{ name, algorithm, bitLength, mode },
    expiration: expiration === null ? null : new Date(parseTime(expiration, 'The expiration')),
    contentType: (type === undefined ? null : parseContentType(type)) ?? 'application/octet-stream',
  }
}
