import { createHash } from 'node:crypto'
import type { Attempt } from './challenge.js'
import { invalid, type Outcome, unreachable, VALID } from './outcome.js'
import { LookUpFailed } from './resolver.js'

/** Validates dns-01 (RFC 8555, 8.4). */
export async function validateDns({ world, challenge, signal }: Attempt): Promise<Outcome> {
  const name = `_acme-challenge.${challenge.value}`
  const expected = createHash('sha256').update(challenge.keyAuthorization).digest('base64url')
  try {
    const texts = await world.resolver.texts(name, signal)
    if (texts.includes(expected)) return VALID
    // A server that got the record a moment ago may not have it yet.
    if (texts.length === 0) return unreachable('dns', `${name} has no TXT record.`)
    return invalid('incorrectResponse', `No TXT record of ${name} is the digest of the key authorization.`)
  } catch (error) {
    if (error instanceof LookUpFailed) return unreachable('dns', error.message)
    throw error
  }
}
