import { type DistinguishedName, parseDistinguishedName } from '../../../x509/encoding/distinguished-name.js'
import { InvalidX509 } from '../../../x509/invalid-x509.js'
import { badRequest } from '../../http/errors.js'

/** Turns InvalidX509 into a client error; rethrows other errors. @throws ApiError 400 */
export function asBadRequest(error: unknown): never {
  throw error instanceof InvalidX509 ? badRequest(error.message) : error
}

/** @throws ApiError 400 if the text is not a valid distinguished name */
export function parseSubjectDn(text: string): DistinguishedName {
  try {
    return parseDistinguishedName(text)
  } catch (error) {
    return asBadRequest(error)
  }
}
