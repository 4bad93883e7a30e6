import type { Context } from 'koa'
import { outsideTurn } from '../process/turn.js'
import { ApiError, badRequest } from './errors.js'

/**
 * Reads the request body as JSON.
 * @param limit most bytes accepted; more is 413, and the rest of the body is not read
 * @param anyType whether it is read whatever Content-Type says
 * @returns the parsed value; undefined when there is no body
 * @throws ApiError 413 too large, 415 another media type, 400 not JSON, nested too deeply, or with text that has no UTF-8 form
 */
export async function readJson(ctx: Context, limit: number, { anyType = false } = {}): Promise<unknown> {
  const bytes = await readBytes(ctx, limit)
  if (bytes.length === 0) return undefined
  const type = ctx.request.type
  if (!anyType && type !== '' && type !== 'application/json' && !type.endsWith('+json')) {
    throw new ApiError(415, `Content-Type must be application/json, not ${type}.`)
  }
  const text = decode(bytes)
  const value = parseJson(text)
  requireShallow(value)
  // Half a pair has no UTF-8 form, so only an escape can bring one.
  if (text.includes('\\u') && stringsIn(value).some(string => /\p{Surrogate}/u.test(string))) {
    throw badRequest('The request body holds half a surrogate pair.')
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

/** No client nests deeply, and whatever walks a value level by level, JSON.stringify too, must not run out of stack. */
const MOST_LEVELS = 32

/** @throws ApiError 400 when a JSON value is nested too deeply */
function requireShallow(value: unknown): void {
  let level = [value].filter(isContainer)
  for (let depth = 0; level.length > 0; depth++) {
    if (depth > MOST_LEVELS) throw badRequest(`The request body is nested deeper than ${MOST_LEVELS} levels.`)
    const below: object[] = []
    for (const item of level) for (const inner of Object.values(item)) if (isContainer(inner)) below.push(inner)
    level = below
  }
}

const isContainer = (value: unknown): value is object => typeof value === 'object' && value !== null

/** Every string in a JSON value that readJson returned, keys included. */
export function stringsIn(value: unknown): string[] {
  if (typeof value === 'string') return [value]
  if (!isContainer(value)) return []
  return [...(Array.isArray(value) ? [] : Object.keys(value)), ...Object.values(value).flatMap(stringsIn)]
}

/** Reads the raw request body; ApiError 413 above `limit` bytes, 400 when the client goes away before its end. */
export async function readBytes(ctx: Context, limit: number): Promise<Buffer> {
  const declared = Number(ctx.get('Content-Length') || 0)
  if (declared > limit) throw tooLarge(ctx, limit)
  return outsideTurn(() => receive(ctx, limit))
}

async function receive(ctx: Context, limit: number): Promise<Buffer> {
  const chunks: Buffer[] = []
  let size = 0
  try {
    for await (const chunk of ctx.req as AsyncIterable<Buffer>) {
      size += chunk.length
      if (size > limit) throw tooLarge(ctx, limit)
      chunks.push(chunk)
    }
  } catch (error) {
    // Its ECONNRESET would be taken for one of the database.
    throw error instanceof ApiError ? error : badRequest('The request ended before its body did.')
  }
  return Buffer.concat(chunks)
}

/** The unread rest of an oversized body would be taken for the next request, so the connection is closed after the answer. */
function tooLarge(ctx: Context, limit: number): ApiError {
  ctx.set('Connection', 'close')
  return new ApiError(413, `The request body is larger than ${limit} bytes.`)
}
