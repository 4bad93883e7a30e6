import { randomUUID } from 'node:crypto'
import { ApiError } from '../http/errors.js'

const UUID4 = /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/

export const newId = (): string => randomUUID()

/** Ids are canonical lower-case version 4 UUIDs; whatever else is asked for does not exist. */
export const isId = (text: string): boolean => UUID4.test(text)

export const missing = (label: string) => new ApiError(404, `${label} not found.`)

/** @throws ApiError 404 for what cannot be an id */
export function requireId(text: string | undefined, label: string): string {
  if (text === undefined || !isId(text)) throw missing(label)
  return text
}

/** The id at the end of a reference such as `https://host/v1/secrets/<id>`; null when there is none. */
export function idInReference(reference: string): string | null {
  const last = reference.replace(/\/+$/, '').split('/').at(-1) ?? ''
  return isId(last) ? last : null
}
