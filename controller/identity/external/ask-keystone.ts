import * as z from 'zod'
import type { Connection, KeystoneAnswer } from './connection.js'
import { IdentityUnavailable } from './identity-unavailable.js'
import type { ServiceSession } from './service-session.js'
import { hasAccessRules, type KeystoneToken, readTokenDocument } from './token-document.js'

/** A 404 from Keystone itself, not from a web server in front of it. */
export const notFoundSchema = z.object({ error: z.object({ code: z.literal(404) }) })

export type AskOptions = {
  connection: Connection
  session: ServiceSession
  /** Receives the Date header of each answer. */
  watchClock: (date: string | undefined) => void
}

/**
 * Asks Keystone, as the service user, whether a token is valid.
 * @param allowExpired accept a token that expired recently
 * @returns null if the token is invalid; includes the catalogue if the token has access rules
 * @throws IdentityUnavailable if Keystone gives no verdict
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
  const ask = async (serviceToken: string): Promise<KeystoneAnswer> => {
    const answer = await connection.send({
      method: 'GET',
      path: `/auth/tokens${query.length === 0 ? '' : `?${query.join('&')}`}`,
      headers: { 'X-Auth-Token': serviceToken, 'X-Subject-Token': token, 'OpenStack-Identity-Access-Rules': '1' },
    })
    options.watchClock(answer.headers.date)
    return answer
  }
  const serviceToken = await session.token()
  let answer = await ask(serviceToken)
  if (answer.status === 401) {
    session.discard(serviceToken)
    answer = await ask(await session.token())
  }
  if (answer.status === 404 && notFoundSchema.safeParse(answer.body).success) return null
  const document = answer.status === 200 ? readTokenDocument(answer.body) : null
  if (document !== null) return document
  throw new IdentityUnavailable(describeFailure(answer))
}

function describeFailure({ status }: KeystoneAnswer): string {
  switch (status) {
    case 200:
      return 'Keystone sent an invalid token document'
    case 401:
      return 'Keystone does not accept the token that it has just issued to the service user'
    case 403:
      return 'Keystone does not let the service user validate tokens. Give that user the role service (or admin)'
    default:
      return `Keystone answered the validation of a token with status ${status}`
  }
}
