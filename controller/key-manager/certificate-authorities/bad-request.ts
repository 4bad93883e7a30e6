import { badRequest } from '../../http/errors.js'
import { type DistinguishedName, parseDistinguishedName } from '../../x509/encoding/distinguished-name.js'
import { InvalidX509 } from '../../x509/invalid-x509.js'

/** What a client gave and cannot be used becomes its error. @throws ApiError 400 */
export function asBadRequest(error: unknown): never {
  throw error instanceof InvalidX509 ? badRequest(error.message) : error
}

/** @throws ApiError 400 for a text that is no distinguished name */
export function usableName(text: string): DistinguishedName {
  try {
    return parseDistinguishedName(text)
  } catch (error) {
    return asBadRequest(error)
  }
}
