import type { Database } from '../../database/connection.js'
import type { TokenValidator } from '../caller.js'
import { callerFrom } from './document.js'
import { findToken, tokenHash } from './store.js'

/** Validates tokens of the embedded identity service with one query each. Caches nothing: revocations count at once. */
export function databaseTokenValidator(database: Database): TokenValidator {
  return async (token, options) => {
    const found = await findToken(database, tokenHash(token), options)
    return found === null ? null : callerFrom(found.document, found.expiresAt)
  }
}
