import { createSecureContext } from 'node:tls'

/**
 * Whether OpenSSL finds a cipher for such a string. HAProxy would refuse a whole configuration because of one that
 * selects nothing.
 */
export function selectsCiphers(text: string): boolean {
  try {
    createSecureContext({ ciphers: text })
    return true
  } catch {
    return false
  }
}
