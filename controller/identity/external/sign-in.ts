import type { Connection } from './connection.js'
import type { ServiceCredentials } from './external-identity.js'
import { IdentityAway, ServiceUserRefused } from './identity-away.js'
import { type KeystoneToken, readTokenDocument } from './token-document.js'

/** The roles that may validate the tokens of others, by Keystone's default policy. */
export const VALIDATING_ROLES: readonly string[] = ['service', 'admin']

export type SignedIn = {
  token: string
  document: KeystoneToken
  /** By which Keystone's clock is ahead of ours, as its Date header tells; that header as it came. */
  date: string | undefined
}

/**
 * Signs in at Keystone as our own user.
 * @param withCatalog whether the document is to hold the catalogue
 * @throws ServiceUserRefused when Keystone does not take the credentials
 * @throws IdentityAway when it does not answer as it should
 */
export async function signInAtKeystone(
  connection: Connection,
  credentials: ServiceCredentials,
  { withCatalog = false } = {},
): Promise<SignedIn> {
  const answer = await connection.send({
    method: 'POST',
    path: `/auth/tokens${withCatalog ? '' : '?nocatalog'}`,
    body: { auth: authOf(credentials) },
  })
  if (answer.status === 401) {
    throw new ServiceUserRefused(`Keystone does not accept ${credentialsWords(credentials)}`)
  }
  if (answer.status !== 201) throw new IdentityAway(`Keystone answered the sign-in of our own user by ${answer.status}`)
  const token = answer.headers['x-subject-token']
  const document = readTokenDocument(answer.body)
  if (typeof token !== 'string' || document === null) {
    throw new IdentityAway('What answered the sign-in of our own user is no Keystone: it sent no token')
  }
  return { token, document, date: answer.headers.date }
}

/** Which user that is, and by which settings. */
export function credentialsWords(credentials: ServiceCredentials): string {
  return credentials.method === 'password'
    ? `the user ${credentials.username} of the domain ${credentials.userDomainName} on the project ${credentials.projectName} (identity.username, identity.password, identity.project_name)`
    : `the application credential ${credentials.id} (identity.application_credential_id, identity.application_credential_secret)`
}

function authOf(credentials: ServiceCredentials): object {
  if (credentials.method === 'application_credential') {
    const { id, secret } = credentials
    // Its project is the credential's own: any other scope is refused.
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
