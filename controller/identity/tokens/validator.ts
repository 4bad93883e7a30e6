import type { Database } from '../../database/connection.js'
import type { TokenValidator } from '../caller.js'
import { callerFrom } from './document.js'
import { findToken, tokenHash } from './store.js'

/** Validates tokens of the embedded identity service by one query each. Nothing is cached, so a revocation counts at once. */
export function databaseTokenValidator(database: Database): TokenValidator {
  return async (token, options) => {
    const found = await findToken(database, tokenHash(token), options)
    return found === null ? null : callerFrom(found.document, found.expiresAt)
  }
}
