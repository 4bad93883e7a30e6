import type * as z from 'zod'
import { type Answer, NO_CONTENT } from '../../api/answer.js'
import type { Call } from '../../api/call.js'
import type { OpenRoute } from '../../api/route.js'
import type { Parameter } from '../../api/schema.js'
import type { Database } from '../../database/connection.js'
import { execute } from '../../database/query.js'
import { sql } from '../../database/sql.js'
import { forbidden, notFound } from '../../http/errors.js'
import { sourceOf } from '../../http/trusted-proxies.js'
import { hasCatalog, readCatalog } from '../catalog.js'
import {
  type IdentityCall,
  type IdentityRoute,
  oneForm,
  openRoute,
  queryParameter,
  route,
  type Service,
  tokenFinder,
} from '../dialect.js'
import { anyone, isAdmin } from '../policy.js'
import { authRequestSchema } from '../tokens/auth-request.js'
import { roleNames, type TokenDocument } from '../tokens/document.js'
import { issueToken } from '../tokens/issue.js'
import { prove } from '../tokens/proof.js'
import { findToken, type StoredToken, tokenHash } from '../tokens/store.js'

const answer = oneForm('token')
const SUBJECT: Parameter = {
  name: 'X-Subject-Token',
  in: 'header',
  required: true,
  description: 'The token to show, check or revoke.',
  schema: { type: 'string' },
}
const CATALOG = queryParameter('nocatalog', 'Omits the catalog.')
const EXPIRED = queryParameter('allow_expired', 'Whether to accept a token that expired less than two days ago.')

/** Issuing, validation, check and revocation of tokens. */
export const tokenRoutes: readonly (IdentityRoute | OpenRoute<Service>)[] = [
  openRoute({
    ...{ method: 'POST', path: '/v3/auth/tokens', group: 'auth', status: 201 },
    summary: 'Log in; the header X-Subject-Token of the answer contains the token',
    parameters: [CATALOG],
    request: authRequestSchema,
    answer,
    handle: logIn,
  }),
  route({
    ...{ method: 'HEAD', path: '/v3/auth/tokens', right: anyone, group: 'auth', status: 200 },
    summary: 'Check a token',
    parameters: [SUBJECT, EXPIRED],
    handle: checkToken,
  }),
  route({
    ...{ method: 'GET', path: '/v3/auth/tokens', right: anyone, group: 'auth', status: 200 },
    summary: 'Show a token',
    parameters: [SUBJECT, EXPIRED, CATALOG],
    answer,
    handle: validateToken,
  }),
  route({
    ...{ method: 'DELETE', path: '/v3/auth/tokens', right: anyone, group: 'auth', status: 204 },
    summary: 'Revoke a token',
    parameters: [SUBJECT],
    handle: revokeToken,
  }),
]

async function logIn(service: Service, call: Call<null, z.output<typeof authRequestSchema>>): Promise<Answer> {
  const { database, logins, turns, limits } = service
  const source = sourceOf(call.address)
  const { auth } = await turns.take([`source ${source}`, String(call.port)], () => call.body())
  const proofs = await prove({ findToken: tokenFinder(service, source), database, logins, source }, auth.identity)
  const { token, body } = await turns.take([`user ${proofs[0]?.userId}`, ''], async () => {
    const { token, document } = await issueToken(database, proofs, auth.scope, limits)
    return { token, body: await presentToken(database, call, document) }
  })
  service.purgeTokens()
  return { status: 201, json: JSON.stringify(body), headers: { 'X-Subject-Token': token } }
}

async function validateToken({ database }: Service, call: IdentityCall): Promise<Answer> {
  const subject = await readSubject(database, call, ['admin', 'service'])
  const body = await presentToken(database, call, subject.document)
  return { status: 200, json: JSON.stringify(body), headers: subjectHeader(call) }
}

/** An empty answer with a content type and a length. */
async function checkToken({ database }: Service, call: IdentityCall): Promise<Answer> {
  await readSubject(database, call, ['admin'])
  const headers = { ...subjectHeader(call), 'Content-Type': 'text/plain; charset=utf-8' }
  return { status: 200, bytes: Buffer.alloc(0), headers }
}

async function revokeToken({ database }: Service, call: IdentityCall): Promise<Answer> {
  const subject = await readSubject(database, call, ['admin'])
  await execute(database, sql`DELETE FROM token WHERE sha256 = ${subject.sha256}`)
  return NO_CONTENT
}

/** The body of an answer with a token. */
async function presentToken(
  database: Database,
  call: Pick<IdentityCall, 'argument'>,
  document: TokenDocument,
): Promise<{ token: object }> {
  const token = toKeystoneForm(document)
  if (!hasCatalog(document) || call.argument('nocatalog') !== undefined) return { token }
  return { token: { ...token, catalog: await readCatalog(database, document) } }
}

/** Moves the access rules into the application credential, where services that validate a token look for them. */
function toKeystoneForm({ access_rules, application_credential, ...document }: TokenDocument): object {
  if (application_credential === undefined) return document
  return {
    ...document,
    application_credential: { ...application_credential, ...(access_rules !== undefined && { access_rules }) },
  }
}

/**
 * The token in X-Subject-Token.
 * @param roles those that may see other users' tokens
 * @throws ApiError 404 if it is missing or invalid, 403 if it is another user's
 */
async function readSubject(database: Database, call: IdentityCall, roles: readonly string[]): Promise<StoredToken> {
  const text = call.header('X-Subject-Token').trim()
  const sha256 = tokenHash(text)
  const allowExpired = /^(1|true|yes|on|t|y)$/i.test(call.argument('allow_expired') ?? '')
  const found = sha256.equals(call.caller.sha256) ? call.caller : await findToken(database, sha256, { allowExpired })
  // A service that does not know access rules would let such a token do everything.
  const isHidden =
    found?.document.access_rules !== undefined && call.header('OpenStack-Identity-Access-Rules').trim() !== '1'
  const maySee =
    found?.document.user.id === call.caller.document.user.id ||
    isAdmin(call.caller.document) ||
    roleNames(call.caller.document).some(role => roles.includes(role))
  if (found !== null && !maySee) throw forbidden()
  if (found === null || isHidden) throw notFound('Could not find token.')
  return found
}

const subjectHeader = (call: IdentityCall) => ({ 'X-Subject-Token': call.header('X-Subject-Token').trim() })
