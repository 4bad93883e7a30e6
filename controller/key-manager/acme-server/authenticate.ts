import type { Service } from '../service.js'
import { AcmeProblem, malformed } from './problem.js'
import {
  type AccountKey,
  type JwsHeader,
  parseJws,
  payloadOf,
  readAccountKey,
  requireAlgorithm,
  thumbprintOf,
  verifyWithKey,
} from './signatures/jws.js'
import type { Nonces } from './signatures/nonces.js'
import { type Account, findAccount } from './store/accounts.js'

/** Who signed a request, and what it says. */
export type Requester = {
  /** Null if the request brings its own key. */
  account: Account | null
  key: AccountKey
  thumbprint: string
  /** Null for POST-as-GET. */
  payload: Readonly<Record<string, unknown>> | null
  /** The URL that was signed: that of the request. */
  url: string
}

export type SignedRequest = {
  body: unknown
  /** As the client reaches it. */
  url: string
}

/**
 * Verifies a request: its form, URL and nonce, then its signature. Uses the nonce only if all else is right, so that
 * nobody but the holder of a key can fill the table of used nonces.
 * @throws AcmeProblem
 */
export async function authenticate(
  { database, nonces }: Pick<Service, 'database'> & { nonces: Nonces },
  { body, url }: SignedRequest,
): Promise<Requester> {
  const { jws, header } = parseJws(body)
  requireAlgorithm(header)
  if (header.url !== url) {
    throw new AcmeProblem('unauthorized', `The url in the protected header is not that of the request, ${url}.`)
  }
  const { nonce } = header
  if (nonce === undefined || !(await nonces.isCurrent(nonce))) throw badNonce()
  const signed = await signerOf(database, header, url)
  await verifyWithKey(jws, signed.key)
  if (!(await nonces.use(nonce))) throw badNonce()
  if (signed.account !== null && signed.account.status !== 'valid') {
    throw new AcmeProblem('unauthorized', `The account is ${signed.account.status}.`, { status: 401 })
  }
  return { ...signed, payload: payloadOf(jws), url }
}

const badNonce = () => new AcmeProblem('badNonce', 'The nonce is unknown, too old or used. Try again with the new one.')

async function signerOf(
  database: Service['database'],
  { kid, jwk }: JwsHeader,
  url: string,
): Promise<Pick<Requester, 'account' | 'key' | 'thumbprint'>> {
  if ((kid === undefined) === (jwk === undefined)) throw malformed('The protected header needs either kid or jwk.')
  if (jwk !== undefined) {
    const key = readAccountKey(jwk)
    return { account: null, key, thumbprint: await thumbprintOf(key) }
  }
  const account = await findAccount(database, accountIdIn(kid ?? '', url))
  if (account === null) throw new AcmeProblem('accountDoesNotExist', 'The kid is not the URL of an account.')
  return { account, key: account.jwk, thumbprint: account.thumbprint }
}

/** The id in the URL of an account of this server; '' for any other text. */
function accountIdIn(kid: string, url: string): string {
  const prefix = `${url.slice(0, url.indexOf('/acme/'))}/acme/account/`
  return kid.startsWith(prefix) ? kid.slice(prefix.length) : ''
}
