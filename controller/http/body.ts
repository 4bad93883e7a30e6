import { randomInt } from 'node:crypto'
import type { Context } from 'koa'
import { outsideTurn } from '../process/turn.js'
import { ApiError, badRequest } from './errors.js'

/**
 * Reads the request body as JSON.
 * @param limit maximum bytes; beyond it, answers 413 and does not read the rest of the body
 * @param anyType accepts any Content-Type
 * @returns the parsed value; undefined without a body
 * @throws ApiError 413 too large, 415 another media type, 400 not JSON, nested too deeply, or text without a UTF-8 form
 */
export async function readJson(ctx: Context, limit: number, { anyType = false } = {}): Promise<unknown> {
  const bytes = await readBytes(ctx, limit)
  if (bytes.length === 0) return undefined
  const type = ctx.request.type
  if (!anyType && type !== '' && type !== 'application/json' && !type.endsWith('+json')) {
    throw new ApiError(415, `Content-Type must be application/json, not ${type}.`)
  }
  if (bytes.length > LARGE) requireFewValues(bytes)
  const text = decode(bytes)
  const value = parseJson(text)
  requireShallow(value)
  // A lone surrogate has no UTF-8 form, so only an escape can produce one.
  if (/\\u[Dd][89A-Fa-f]/.test(text) && hasHalfPair(value)) {
    throw badRequest('The request body contains half a surrogate pair.')
  }
  return value
}

const decoder = new TextDecoder('utf-8', { fatal: true })

function decode(bytes: Buffer): string {
  try {
    return decoder.decode(bytes)
  } catch {
    throw notJson()
  }
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    throw notJson()
  }
}

const notJson = () => badRequest('The request body is not valid JSON.')

/** No client nests deeply, and code that recurses into a value, such as JSON.stringify, must not overflow the stack. */
const MAX_DEPTH = 32

/** @throws ApiError 400 when a JSON value is nested too deeply */
function requireShallow(value: unknown): void {
  let level = [value].filter(isContainer)
  for (let depth = 0; level.length > 0; depth++) {
    if (depth > MAX_DEPTH) throw badRequest(`The request body is nested deeper than ${MAX_DEPTH} levels.`)
    const below: object[] = []
    for (const item of level) for (const inner of Object.values(item)) if (isContainer(inner)) below.push(inner)
    level = below
  }
}

/** Below this size, a body cannot hold enough values to occupy the event loop for long. */
const LARGE = 128 * 1024

/** More than any legal request has: 5,000 members with all attributes and fifteen tags each have 145,000 values. */
const MAX_VALUES = 150_000
const MAX_NAMES = 1000

const [QUOTE, BACKSLASH, COLON, COMMA, BRACE, BRACKET] = [...Buffer.from('"\\:,{[')]

/** Unknown to clients, so that they cannot choose names with equal hashes. */
const SEED = randomInt(2 ** 31)

/**
 * Counts before parsing: JSON.parse takes a hundred times as long for `[[],[],...` or for objects with ever new names
 * as for members. Takes about 4 ms per megabyte.
 * @throws ApiError 400 for more values or different names than a legal request has
 */
function requireFewValues(bytes: Buffer): void {
  const names = new Set<number>()
  let values = 0
  let hash = SEED
  let inText = false
  for (let at = 0; at < bytes.length; at++) {
    const byte = bytes[at] ?? 0
    if (inText) {
      inText = byte !== QUOTE
      hash = Math.imul(hash ^ byte, 16_777_619)
      if (byte === BACKSLASH) hash = Math.imul(hash ^ (bytes[++at] ?? 0), 16_777_619)
    } else if (byte === QUOTE) {
      inText = true
      hash = SEED
    } else if (byte === COLON) names.add(hash)
    else if (byte === COMMA || byte === BRACE || byte === BRACKET) values++
    if (values > MAX_VALUES) throw badRequest(`The request body has more than ${MAX_VALUES} values.`)
    if (names.size > MAX_NAMES) throw badRequest(`The request body has more than ${MAX_NAMES} different names.`)
  }
}

const isContainer = (value: unknown): value is object => typeof value === 'object' && value !== null

/** Whether a string in a JSON value, keys included, has half a surrogate pair. */
function hasHalfPair(value: unknown): boolean {
  if (typeof value === 'string') return /\p{Surrogate}/u.test(value)
  if (!isContainer(value)) return false
  if (Array.isArray(value)) return value.some(hasHalfPair)
  return Object.entries(value).some(([key, inner]) => hasHalfPair(key) || hasHalfPair(inner))
}

/** Every string in a JSON value that readJson returned, keys included. */
export function stringsIn(value: unknown): string[] {
  if (typeof value === 'string') return [value]
  if (!isContainer(value)) return []
  return [...(Array.isArray(value) ? [] : Object.keys(value)), ...Object.values(value).flatMap(stringsIn)]
}

/**
 * Reads the raw request body.
 * @throws ApiError 413 above `limit` bytes, 400 when the client disconnects before its end
 */
export async function readBytes(ctx: Context, limit: number): Promise<Buffer> {
  const declared = Number(ctx.get('Content-Length') || 0)
  if (declared > limit) throw tooLarge(ctx, limit)
  return outsideTurn(() => receive(ctx, limit))
}

const FIRST_BYTES = 16 * 1024
/** Each chunk costs processor time, however small it is. Programs that write many small ones write more than this. */
const MIN_MEAN_CHUNK_BYTES = 16
/** Chunks that may be smaller. */
const FREE_CHUNKS = 4096

/** Copies the chunks together as they come: a chunk of one byte takes hundreds in memory. */
async function receive(ctx: Context, limit: number): Promise<Buffer> {
  let bytes = Buffer.allocUnsafe(Math.min(FIRST_BYTES, limit))
  let size = 0
  let chunks = 0
  try {
    for await (const chunk of ctx.req as AsyncIterable<Buffer>) {
      const needed = size + chunk.length
      if (needed > limit) throw tooLarge(ctx, limit)
      if (++chunks > FREE_CHUNKS && needed < chunks * MIN_MEAN_CHUNK_BYTES) {
        throw closing(ctx, badRequest('The request body comes in too many small chunks. Send larger ones.'))
      }
      if (needed > bytes.length) {
        const larger = Buffer.allocUnsafe(Math.min(limit, Math.max(needed, 2 * bytes.length)))
        bytes.copy(larger, 0, 0, size)
        bytes = larger
      }
      chunk.copy(bytes, size)
      size = needed
    }
  } catch (error) {
    // The client's ECONNRESET would be taken for one from the database.
    throw error instanceof ApiError ? error : badRequest('The request body is incomplete.')
  }
  return bytes.subarray(0, size)
}

const tooLarge = (ctx: Context, limit: number): ApiError =>
  closing(ctx, new ApiError(413, `The request body is larger than ${limit} bytes.`))

/** Closes the connection after the answer: the unread rest of the body would be taken for the next request. */
function closing(ctx: Context, error: ApiError): ApiError {
  ctx.set('Connection', 'close')
  return error
}
