import { isUtf8 } from 'node:buffer'
import { ApiError, badRequest } from '../../http/errors.js'

/** Types of payloads. Text is UTF-8; all others are stored byte for byte. */
export const CONTENT_TYPES = [
  'text/plain',
  'application/octet-stream',
  'application/pkcs8',
  'application/pkix-cert',
] as const

export type ContentType = (typeof CONTENT_TYPES)[number]

/** @returns ApiError 400 */
export const unsupportedType = (type: string): ApiError =>
  badRequest(`The payload_content_type "${type}" is not one of ${CONTENT_TYPES.join(', ')}.`)

/** Types whose payload may be unencoded PEM text in a JSON body. */
const PEM_TYPES: ReadonlySet<ContentType> = new Set(['application/pkcs8', 'application/pkix-cert'])

/** Parses a type, ignoring case; text/plain may name the charset UTF-8. Pure. @returns null for any other type */
export function parseContentType(text: string): ContentType | null {
  const type = text.trim().toLowerCase()
  if (/^text\/plain(\s*;\s*charset\s*=\s*utf-8)?$/.test(type)) return 'text/plain'
  return CONTENT_TYPES.find(known => known === type) ?? null
}

/**
 * The payload of a JSON body as bytes. Pure.
 * @throws ApiError 400 when type, encoding and payload do not match
 */
export function decodePayload(payload: string, type: ContentType, encoding: string | undefined): Buffer {
  if (encoding === undefined) {
    if (type !== 'text/plain' && !PEM_TYPES.has(type))
      throw badRequest(`A payload of type ${type} needs payload_content_encoding "base64".`)
    return Buffer.from(payload, 'utf8')
  }
  if (type === 'text/plain')
    throw badRequest(
      'A payload of type text/plain must have no payload_content_encoding; base64 is for the other types.',
    )
  return decodeBase64(payload)
}

/**
 * The payload of a PUT as bytes. Pure.
 * @param encoding the header Content-Encoding, or ''; ignored for text
 * @throws ApiError 400 when the encoding is neither '' nor base64, or the payload does not match it or the type
 */
export function decodeBody(body: Buffer, type: ContentType, encoding: string): Buffer {
  if (type === 'text/plain' && !isUtf8(body))
    throw badRequest('A payload of type text/plain must be UTF-8; store other bytes as application/octet-stream.')
  if (type === 'text/plain' || encoding === '') return body
  if (encoding.toLowerCase() !== 'base64') throw badRequest('The only Content-Encoding of a payload is base64.')
  return decodeBase64(body.toString('latin1'))
}

/** Allows line breaks. @throws ApiError 400 for anything but base64 */
function decodeBase64(text: string): Buffer {
  const compact = text.replace(/[\r\n\t ]+/g, '')
  if (compact.length % 4 !== 0 || !/^[A-Za-z0-9+/]+={0,2}$/.test(compact))
    throw badRequest('The payload is not valid base64.')
  return Buffer.from(compact, 'base64')
}

/**
 * The Content-Type of an answer with a payload. Pure.
 * @param accept the raw Accept header, or null
 * @param stored the type that the payload was stored with
 * @throws ApiError 406 when the payload is not available in the requested type
 */
export function servedType(accept: string | null, stored: ContentType, payload: Buffer): string {
  if (accept === null || accept === '*/*') return stored === 'text/plain' ? 'text/plain; charset=UTF-8' : stored
  const requested = accept === '' ? 'application/octet-stream' : parseContentType(accept)
  if (requested === null) throw new ApiError(406, 'The payload is not available in this type.')
  if (requested !== 'text/plain') return requested
  if (!isUtf8(payload)) throw new ApiError(406, 'The payload is not UTF-8 text.')
  return 'text/plain; charset=UTF-8'
}
