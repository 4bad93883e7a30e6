import type { Connection } from './connection.js'
import type { ServiceCredentials } from './external-identity.js'
import { IdentityUnavailable, ServiceUserRefused } from './identity-unavailable.js'
import { type KeystoneToken, readTokenDocument } from './token-document.js'

/** The roles that may validate other users' tokens, by Keystone's default policy. */
export const VALIDATING_ROLES: readonly string[] = ['service', 'admin']

export type SignedIn = {
  token: string
  document: KeystoneToken
  /** Keystone's Date header as received, to compute the clock skew. */
  date: string | undefined
}

/**
 * Signs in at Keystone as the service user.
 * @param withCatalog whether the document includes the catalogue
 * @throws ServiceUserRefused if Keystone rejects the credentials
 * @throws IdentityUnavailable if it does not answer as it should
 */
export async function signInAtKeystone(
  connection: Connection,
  credentials: ServiceCredentials,
  { withCatalog = false } = {},
): Promise<SignedIn> {
  const answer = await connection.send({
    method: 'POST',
    path: `/auth/tokens${withCatalog ? '' : '?nocatalog'}`,
    body: { auth: authRequest(credentials) },
  })
  if (answer.status === 401) {
    throw new ServiceUserRefused(`Keystone does not accept ${describeCredentials(credentials)}`)
  }
  if (answer.status !== 201)
    throw new IdentityUnavailable(`Keystone answered the service user’s sign-in with status ${answer.status}`)
  const token = answer.headers['x-subject-token']
  const document = readTokenDocument(answer.body)
  if (typeof token !== 'string' || document === null) {
    throw new IdentityUnavailable(
      'The answer to the service user’s sign-in contains no token. Check that identity.external_url is a Keystone',
    )
  }
  return { token, document, date: answer.headers.date }
}

/** Names the user and the settings that define it. */
export function describeCredentials(credentials: ServiceCredentials): string {
  return credentials.method === 'password'
    ? `the user ${credentials.username} of the domain ${credentials.userDomainName} on the project ${credentials.projectName} (identity.username, identity.password, identity.project_name)`
    : `the application credential ${credentials.id} (identity.application_credential_id, identity.application_credential_secret)`
}

function authRequest(credentials: ServiceCredentials): object {
  if (credentials.method === 'application_credential') {
    const { id, secret } = credentials
    // Without a scope: Keystone takes the credential's own project and refuses any other.
    return { identity: { methods: ['application_credential'], application_credential: { id, secret } } }
  }
  const { username, password, userDomainName, projectName, projectDomainName } = credentials
  return {
    identity: {
      methods: ['password'],
      password: { user: { name: username, password, domain: { name: userDomainName } } },
    },
    scope: { project: { name: projectName, domain: { name: projectDomainName } } },
  }
}
