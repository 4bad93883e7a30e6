import { forbidden, notFound } from '../../http/errors.js'
import { hasCatalog, readCatalog } from '../catalog.js'
import { anyone, isAdmin } from '../policy.js'
import { type Answer, noContent, type Request, type Route } from '../request.js'
import { roleNames, type TokenDocument } from './document.js'
import { findToken, type StoredToken, tokenHash } from './store.js'

/** Validation, check and revocation of tokens. Issuing stands in issue.ts; it alone needs no token. */
export const tokenRoutes: readonly Route[] = [
  { method: 'HEAD', path: '/auth/tokens', allow: anyone, answer: checkToken },
  { method: 'GET', path: '/auth/tokens', allow: anyone, answer: validateToken },
  { method: 'DELETE', path: '/auth/tokens', allow: anyone, answer: revokeToken },
]

async function validateToken(request: Request): Promise<Answer> {
  const subject = await readSubject(request, ['admin', 'service'])
  return { status: 200, headers: subjectHeader(request), body: await presentToken(request, subject.document) }
}

async function checkToken(request: Request): Promise<Answer> {
  await readSubject(request, ['admin'])
  return { status: 200, headers: subjectHeader(request) }
}

async function revokeToken(request: Request): Promise<Answer> {
  const subject = await readSubject(request, ['admin'])
  await request.database('token').where({ sha256: subject.sha256 }).delete()
  return noContent
}

/** The answer to a request that shows a token. */
export async function presentToken(
  { database, query }: Pick<Request, 'database' | 'query'>,
  document: TokenDocument,
): Promise<{ token: object }> {
  const token = asKeystoneShows(document)
  if (!hasCatalog(document) || query('nocatalog') !== undefined) return { token }
  return { token: { ...token, catalog: await readCatalog(database, document) } }
}

/** The access rules stand in the application credential that they belong to: whoever validates a token looks for them there. */
function asKeystoneShows({ access_rules, application_credential, ...document }: TokenDocument): object {
  if (application_credential === undefined) return document
  return {
    ...document,
    application_credential: { ...application_credential, ...(access_rules !== undefined && { access_rules }) },
  }
}

/**
 * The token in X-Subject-Token.
 * @param roles who may look at the tokens of other users
 * @throws ApiError 404 when it is missing or not good, 403 when it is another user's
 */
async function readSubject(request: Request, roles: readonly string[]): Promise<StoredToken> {
  const text = request.header('X-Subject-Token').trim()
  const sha256 = tokenHash(text)
  const allowExpired = /^(1|true|yes|on|t|y)$/i.test(request.query('allow_expired') ?? '')
  const found = sha256.equals(request.token.sha256)
    ? request.token
    : await findToken(request.database, sha256, { allowExpired })
  // A caller that does not know access rules would let such a token do everything.
  const isHidden =
    found?.document.access_rules !== undefined && request.header('OpenStack-Identity-Access-Rules').trim() !== '1'
  const mayLook =
    found?.document.user.id === request.token.document.user.id ||
    isAdmin(request.token.document) ||
    roleNames(request.token.document).some(role => roles.includes(role))
  if (found !== null && !mayLook) throw forbidden()
  if (found === null || isHidden) throw notFound('Could not find token.')
  return found
}

const subjectHeader = (request: Request) => ({ 'X-Subject-Token': request.header('X-Subject-Token').trim() })
