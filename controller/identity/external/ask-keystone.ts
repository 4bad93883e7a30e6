import { z } from 'zod'
import type { Connection, KeystoneAnswer } from './connection.js'
import { IdentityAway } from './identity-away.js'
import type { ServiceSession } from './service-session.js'
import { hasAccessRules, type KeystoneToken, readTokenDocument } from './token-document.js'

/** A 404 of Keystone itself, and not of a web server before it. */
export const notFoundSchema = z.object({ error: z.object({ code: z.literal(404) }) })

export type AskOptions = {
  connection: Connection
  session: ServiceSession
  /** Hears the Date header of each answer. */
  watchClock: (date: string | undefined) => void
}

/**
 * Asks Keystone about a token, as our own user.
 * @param allowExpired also one that ended not long ago
 * @returns null when it is not good; with the catalogue when the token has access rules
 * @throws IdentityAway when Keystone cannot tell
 */
export async function askKeystone(
  options: AskOptions,
  token: string,
  { allowExpired }: { allowExpired: boolean },
): Promise<KeystoneToken | null> {
  const document = await validate(options, token, ['nocatalog', ...(allowExpired ? ['allow_expired=1'] : [])])
  if (document === null || !hasAccessRules(document)) return document
  return validate(options, token, allowExpired ? ['allow_expired=1'] : [])
}

async function validate(options: AskOptions, token: string, query: readonly string[]): Promise<KeystoneToken | null> {
  const { connection, session } = options
  const ask = async (own: string): Promise<KeystoneAnswer> => {
    const answer = await connection.send({
      method: 'GET',
      path: `/auth/tokens${query.length === 0 ? '' : `?${query.join('&')}`}`,
      headers: { 'X-Auth-Token': own, 'X-Subject-Token': token, 'OpenStack-Identity-Access-Rules': '1' },
    })
    options.watchClock(answer.headers.date)
    return answer
  }
  const own = await session.token()
  let answer = await ask(own)
  if (answer.status === 401) {
    session.discard(own)
    answer = await ask(await session.token())
  }
  if (answer.status === 404 && notFoundSchema.safeParse(answer.body).success) return null
  const document = answer.status === 200 ? readTokenDocument(answer.body) : null
  if (document !== null) return document
  throw new IdentityAway(failureWords(answer))
}

function failureWords({ status }: KeystoneAnswer): string {
  switch (status) {
    case 200:
      return 'what Keystone sent is no token document'
    case 401:
      return 'Keystone does not accept the token that it has just given to our own user'
    case 403:
      return 'Keystone does not let our own user validate tokens: it needs the role service (or admin)'
    default:
      return `Keystone answered the validation of a token by ${status}`
  }
}
