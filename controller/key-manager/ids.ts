import { randomUUID } from 'node:crypto'
import { ApiError } from '../http/errors.js'

const UUID4 = /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/

export const newId = (): string => randomUUID()

/** Ids are lower-case version 4 UUIDs. No object has any other id. */
export const isId = (text: string): boolean => UUID4.test(text)

export const missing = (label: string) => new ApiError(404, `${label} not found.`)

/** @throws ApiError 404 for an invalid id */
export function requireId(text: string | undefined, label: string): string {
  if (text === undefined || !isId(text)) throw missing(label)
  return text
}

/** The id at the end of a reference such as `https://host/v1/secrets/<id>`, or null. */
export function idInReference(reference: string): string | null {
  const last = reference.replace(/\/+$/, '').split('/').at(-1) ?? ''
  return isId(last) ? last : null
}
